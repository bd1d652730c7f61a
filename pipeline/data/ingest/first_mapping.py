"""A mapping and values of params.yaml to start from, by what the first rows of files look like."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from pipeline.core.errors import DataError
from pipeline.data.ingest.first_look import ColumnLook, look_at

LABELS = (
    r"click|clk|klick",
    r"conver|attributed|purchase|bought|install|order",
    r"label|target|response|late",
)
ID = re.compile(r"(^|_)(id|uuid|guid|event|request|key)s?($|_)|(?-i:[a-z]I[dD]$)", re.IGNORECASE)
FIELDS = re.compile(
    r"campaign|kampagne|advertiser|item|article|shop|site|app|slot|channel|placement|publisher|"
    r"keyword|creative|banner|carrier|product|brand|(^|_)ad(_|$|group)|^pid$|^tab$|^id$",
    re.IGNORECASE,
)
YES = {"yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "click", "clicked", "converted"}
DAY_IN_NAME = re.compile(r"\d{4}-\d\d-\d\d|(?<!\d)20\d{6}(?!\d)")
WINDOW_DAYS = 30  # of a response that is a time stamp, until somebody says otherwise
OFFSET = re.compile(r":\d\d(?:[.,]\d+)? ?(Z|UTC|[+-]\d\d(?::?\d\d)?)$")  # of a stamp
FEWEST_ROWS = 20  # of a value of the field, on average
FEWEST = 100  # rows that tell whether values are ids of events, or one value is all
SPARSE = 0.15  # share of rows without a value from which more of them may break the limit shipped


@dataclass(frozen=True)
class FirstMapping:
    """What was found.

    Attributes:
        mapping: the text of a mapping.
        params: name in params.yaml, such as log.label → value.
        found: what was chosen and why, a sentence each.
        unknown: what the rows could not say.
    """

    mapping: str
    params: dict[str, Any]
    found: list[str]
    unknown: list[str]


def first_mapping(paths: Sequence[Path], name: str) -> FirstMapping:
    """A mapping that lands files like these, and what params.yaml says of such a log.

    Args:
        paths: files of one log.
        name: of the log's format.

    Raises:
        DataError: a file cannot be read, or files differ in their columns.
    """
    return _Roles(paths, name).result()


class _Roles:
    """Who is what among the columns of a file."""

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        self._dialect, columns, nested = look_at(paths)
        self._path, self._name = paths[0], name
        alike = {column.name.lower(): column.name for column in reversed(columns)}
        self._looks = {c.name: c for c in columns if c.name in alike.values()}
        self._rest = dict(self._looks)
        self._found: list[str] = []
        self._not_known: list[str] = []
        self._say, self._unknown = self._found.append, self._not_known.append
        self._later: list[ColumnLook] = []  # stamps of what not all rows have come to
        self._made: dict[str, Any] = {}
        self._keys: dict[str, Any] = {}
        self._responded = np.zeros(0, bool)  # of each row, where a row is one impression
        for other in (c.name for c in columns if c.name not in self._looks):
            self._say(f"no feature: {other}, called as another one but for upper and lower case")
        self._by_hand = "write the mapping as docs/data.md says"
        if nested:
            inside = f"what is in {', '.join(nested)}"
            self._unknown(f"{inside} (select of the mapping reaches it)")
            self._by_hand += f", where select reaches {inside}"
        if sign := self._dialect.get("thousands"):
            self._unknown(f"whether {sign!r} in numbers parts thousands, or is the decimal sign")

    def result(self) -> FirstMapping:
        day = self._day()
        impressions, label = self._label()
        event = None if impressions else self._event()
        features = self._features()
        chosen = self._field(features)
        log = {
            **{"format": self._name, "time_zone": "UTC", "label": label},
            **{"impressions": impressions, "event_id": event, "field": [chosen]},
            "categorical": [name for name, kind in features.items() if kind == "text"]
            + [name for name in self._made if name in ("hour_of_day", "weekday")],
            "numeric": [name for name, kind in features.items() if kind != "text"],
            **dict.fromkeys(("truth", "served_logit", "served_probability", "weight")),
        }
        params: dict[str, Any] = {f"log.{key}": value for key, value in log.items()}
        params |= {"split.last_day": None} | self._sparse(features)
        landed = {**({event: "text"} if event else {}), **features}
        for name in (impressions, label):
            if name in self._looks:
                kind = self._looks[name].type
                landed[name] = "int64" if kind == "float64" else kind
        self._not_known += [
            "in which time zone days begin (time_zone in both files; UTC is written)",
            "which columns are known after the impression alone: take them out of the features",
            "when labels are final (log.maturity_days), how the log was sampled (log.keep_rate)",
            "how many days the log has: split's counts of days are those of params.yaml",
        ]
        return FirstMapping(self._text(day, landed), params, self._found, self._not_known)

    def _day(self) -> dict[str, Any]:
        """The mapping's rule for the day of a row."""
        for kind in ("time", "date"):
            if found := [column for column in self._rest.values() if column.type == kind]:
                return {kind: self._stamp(kind, found)}
        if DAY_IN_NAME.search(self._path.as_posix()):
            self._say("the day of a row: the date in the file's name or its folders'")
            return {"file_day": f"({DAY_IN_NAME.pattern})"}
        self._unknown("which day a row belongs to: seven equal blocks of rows are written")
        return {"row_blocks": 7}

    def _stamp(self, kind: str, found: list[ColumnLook]) -> dict[str, Any]:
        """The rule for the column of stamps or dates with the fewest gaps; none is a feature."""
        column = min(found, key=lambda found: found.nulls)
        stamp = column.stamp
        assert stamp
        for other in found:
            del self._rest[other.name]
        self._later = [c for c in found if c.nulls > column.nulls]
        unused = ", ".join(c.name for c in found if c is not column)
        others = f"; not {unused}" if unused else ""
        offsets = sorted({end for text in column.values for end in OFFSET.findall(text)})
        others += f"; its offsets are {', '.join(offsets[:5])}" if offsets else ""
        self._say(f"{kind}: {column.name}, {stamp.format}, e.g. {column.values[0]}{others}")
        if "/%m/" in stamp.format or stamp.format.startswith("%m/"):
            self._unknown(f"whether {column.name} has the day or the month first")
        if words := column.missing:
            self._keys |= {"drop_null": [column.name], "nulls": ["", *words]}
            self._say(f"rows whose {column.name} is {' or '.join(words)} are left out")
        if kind == "date":
            return {"column": column.name, "format": stamp.format}
        rules = {"hour_of_day": "hour", "weekday": "weekday"}
        taken = {*self._looks, *map(str.lower, self._rest)}
        self._made = {n: {"rule": r} for n, r in rules.items() if not {n, r} & taken}
        if stamp.zone:
            self._unknown(f"where the clock hung that wrote {column.name} (zone; UTC is written)")
        return {key: value for key, value in asdict(stamp).items() if value}

    def _label(self) -> tuple[str | None, str]:
        """The columns with impressions, None where a row is one, and with the responses."""
        shown = [c for c in self._rest.values() if re.search("impress|shows|views", c.name, re.I)]
        counts = [c for c in self._rest.values() if re.search("clicks|conversions", c.name, re.I)]
        if shown and counts and shown[0].type == counts[0].type == "int64":
            self._keys["at_most"] = {counts[0].name: shown[0].name}
            self._say(f"label: {counts[0].name} of {shown[0].name}, a row stands for several")
            for column in (shown[0], counts[0]):
                del self._rest[column.name]
            return shown[0].name, counts[0].name
        for pattern in (*LABELS, ""):
            able = [c for c in self._rest.values() if re.search(pattern, c.name, re.I)]
            able = [c for c in able if _yes_of(c) and (pattern or len(c.values) == 2)]
            if able:
                column = min(able, key=_contrary)
                return None, self._labelled(column, _yes_of(column), sure=bool(pattern))
        for column in self._later:
            if self._made and re.search("|".join(LABELS), column.name, re.I):
                return None, self._labelled_by_time(column)
        raise DataError(
            f"{self._path} has no column with two values that could be a response (0 and 1, yes "
            f"and no), nor clicks beside impressions; {self._by_hand}"
        )

    def _labelled(self, column: ColumnLook, yes: str, *, sure: bool) -> str:
        del self._rest[column.name]
        self._responded = np.asarray(pc.equal(column.texts, yes).fill_null(False))
        kinds, share = ", ".join(column.values[:3]), self._responded.mean()
        self._say(f"label: {column.name}, {yes} of {kinds} is a response, {share:.2%} of rows")
        if not sure:
            self._unknown(f"whether {column.name} is the response: its name does not say so")
        marked = len(column.values) == 1 and column.nulls > 0
        if marked:
            self._say(f"rows where {column.name} is empty, {column.nulls:,} here, count as none")
            self._unknown(f"whether an empty {column.name} is none, or a label that is to come")
        elif column.nulls:
            self._keys["drop_null"] = [*self._keys.get("drop_null", []), column.name]
            self._say(f"rows without a label, {column.nulls:,} here, are left out")
            self._unknown("whether labels come late: then no drop_null, but log.maturity_days")
        if column.type in ("int64", "bool") and not marked:
            return column.name
        made, rule = f"{column.name}_is_{yes}", "marked" if marked else "equals"
        self._made[made] = {"rule": rule, "of": column.name, "values": [yes]}
        return made

    def _labelled_by_time(self, column: ColumnLook) -> str:
        self._responded = np.asarray(column.texts.is_valid())
        made = f"{column.name}_within_{WINDOW_DAYS}_days"
        self._made[made] = {"rule": "within", "of": column.name, "seconds": 86_400 * WINDOW_DAYS}
        self._say(f"label: {column.name}, which {self._responded.mean():.2%} of rows have")
        self._unknown(f"how long after the row {column.name} may be ({WINDOW_DAYS} days)")
        return made

    def _event(self) -> str | None:
        for column in [*self._rest.values()]:
            there = len(column.texts) - column.nulls
            is_id = ID.search(column.name) and not FIELDS.search(column.name.removeprefix("id"))
            if is_id and there >= FEWEST and len(column.values) > 0.95 * there:
                del self._rest[column.name]
                self._say(f"event_id: {column.name}, {len(column.values):,} ids in {there:,} rows")
                return column.name
        self._unknown("whether a column has the ids of events (log.event_id)")
        return None

    def _features(self) -> dict[str, str]:
        """Column → its type in the log."""
        found: dict[str, str] = {}
        for column in self._rest.values():
            if re.search("|".join(LABELS), column.name, re.I) and _yes_of(column):
                self._say(f"no feature: {column.name}, which looks like another response")
            elif self._tells(column):
                self._say(f"no feature: {column.name}, which nearly responses alone have or change")
            elif len(column.values) > max(len(column.texts) / 2, 2) and column.type == "text":
                self._say(f"no feature: {column.name}, {len(column.values):,} values are too many")
            elif len(column.values) < 2 and len(column.texts) >= FEWEST:
                self._say(f"no feature: {column.name}, which has one value, or none")
            elif column.type == "float64" or (column.type == "int64" and not _is_name(column)):
                found[column.name] = column.type
            else:
                found[column.name] = "text"
        return found

    def _tells(self, column: ColumnLook) -> bool:
        """Whether a column is filled, or other than usual, where there was a response alone."""
        usual = "" if column.nulls > len(column.texts) / 2 else column.values[0]
        odd, yes = np.asarray(pc.not_equal(column.texts.fill_null(""), usual)), self._responded
        return bool(yes.sum() >= 10 and odd[yes].mean() > 0.5 and odd[~yes].mean() < 0.01)

    def _sparse(self, features: dict[str, str]) -> dict[str, float]:
        """The limit of params.yaml under which every feature of these rows passes, if it is not."""
        shares = {n: self._looks[n].nulls / max(len(self._looks[n].texts), 1) for n in features}
        sparse = {name: share for name, share in shares.items() if share > SPARSE}
        if not sparse:
            return {}
        named = ", ".join(f"{name} (no value in {share:.0%})" for name, share in sparse.items())
        self._unknown(
            f"why so much is missing in {named}; validate.max_null_share is raised for it, and a "
            "column that is filled for responses alone must be no feature"
        )
        return {"validate.max_null_share": min(round(max(sparse.values()) + 0.1, 1), 1.0)}

    def _field(self, features: dict[str, str]) -> str:
        able = [c for c in self._rest.values() if features.get(c.name) == "text"]
        enough = [c for c in able if 1 < len(c.values) <= len(c.texts) / FEWEST_ROWS] or able
        named = [c for c in enough if FIELDS.search(c.name)]
        best = sorted(named or enough, key=lambda column: -len(column.values))
        if not best:
            raise DataError(
                f"{self._path} has no column that names things, such as a campaign, whose "
                f"probabilities could be calibrated; {self._by_hand}"
            )
        values, rows = best[0].values, best[0].texts
        self._say(f"field: {best[0].name}, {len(values):,} values in {len(rows):,} rows")
        if best[1:]:
            others = ", ".join(f"{c.name} ({len(c.values):,})" for c in best[1:6])
            self._unknown(
                f"which field is priced by: {others} could be log.field, too, or what "
                f"{best[0].name} belongs to (log.field_parents)"
            )
        return best[0].name

    def _text(self, day: dict[str, Any], landed: dict[str, str]) -> str:
        looks = self._looks
        missing = sorted(
            {m for c in looks.values() if landed.get(c.name) != "text" for m in c.missing}
        )
        if missing:
            self._keys["number_nulls"] = ["", *missing]
        document = CommentedMap(format=self._name, **self._dialect, time_zone="UTC", **day)
        document |= {**self._keys, "columns": CommentedMap(landed)}
        for name in landed:
            document["columns"].yaml_add_eol_comment(repr(str(looks[name]))[1:-1], name)
        document |= {"made": self._made} if self._made else {}
        document.yaml_set_start_comment(
            f"Written by adacalib init from the first rows of {self._path.name}; correct it."
        )
        with StringIO() as text:
            YAML().dump(document, text)
            return text.getvalue()


def _yes_of(column: ColumnLook) -> str:
    """The value that says yes in a column of two, or of one of them; "" where it is no such."""
    values = {value.lower(): value for value in column.values}
    if column.type in ("int64", "bool"):
        yes_or_no = set(values) <= {"0", "1", "true", "false"}
        return ("true" if column.type == "bool" else "1") if yes_or_no else ""
    if set(values) == {"0.0", "1.0"}:  # whole numbers that had gaps
        return values["1.0"]
    yes = [values[value] for value in values if value in YES]
    two = len(column.values) + (column.nulls > 0) >= 2 and len(column.values) <= 2
    return yes[0] if two and len(yes) == 1 else ""


def _contrary(column: ColumnLook) -> tuple[bool, bool]:
    """Whether a column rather says that there was no response: by its name, or as most rows do."""
    return bool(re.match("non|not|no_|un", column.name, re.I)), column.values[0] == _yes_of(column)


def _is_name(column: ColumnLook) -> bool:
    """Whether whole numbers are names: of few kinds, or called so."""
    few = len(column.values) <= min(50, max(len(column.texts) / FEWEST_ROWS, 2))
    return few or bool(ID.search(column.name) or FIELDS.search(column.name))
