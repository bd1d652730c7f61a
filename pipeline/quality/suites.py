"""Suites of great-expectations' built-in expectations on prepared frames, and what they found.

A built-in expectation on a column passes over values that are missing, so every frame says in a
column of its own which of its numbers is not finite (`with_not_finite`), and a suite asks first
whether there are rows at all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import great_expectations as gx
import great_expectations.expectations as gxe
import numpy as np
import pandas as pd
from great_expectations.data_context.types.base import ProgressBarsConfig

from pipeline.core.errors import ArtifactError
from pipeline.core.typed_yaml import read_yaml

SEVERITIES = {"error": "critical", "warning": "warning"}  # ours, and great-expectations' word
LOADED = re.compile(  # what a page of great-expectations loads from the web, and what it advertises
    r"<script[^>]*https?:[^>]*>\s*</script>|<(?:link|img)[^>]*https?:[^>]*>|<footer>.*?</footer>",
    re.S,
)
Rule = dict[str, Any]
"""Arguments of `rule`."""

RULES: dict[str, list[Rule]] = read_yaml(Path(__file__).with_name("rules.yaml"), ArtifactError)
"""What must be true in every row of a frame, by its name."""

SHOWN = 5  # rows a sentence names
KEYS = {  # columns that say where a row is, and the word before each
    "requested_bins": "K =",
    "bin_id": "bin",
    "cell_id": "cell",
    "day": "day",
    "column": "column",
}


@dataclass(frozen=True)
class CheckResult:
    """One expectation and what came of it.

    Attributes:
        table: the name of the frame that was looked at.
        name: the rule, or the built-in expectation's name.
        sentence: what was expected.
        severity: "error" or "warning".
        limit: the limit that was set; None where the rule has none.
        rows: how many rows were looked at.
        breaches: how many of them broke it.
        breach: one sentence with the first places and their values; None where it passed.
    """

    table: str
    name: str
    sentence: str
    severity: str
    limit: float | None
    rows: int
    breaches: int
    breach: str | None


@dataclass(frozen=True)
class Suite:
    """What is expected of one frame: that it has rows, and what `rule` makes of arguments."""

    name: str
    frame: pd.DataFrame
    rules: Sequence[Rule]

    def expectations(self) -> gx.ExpectationSuite:
        """The suite as great-expectations runs it."""
        some = rule("TableRowCountToBeBetween", None, "there are rows", min_value=1)
        made = [rule(**arguments) for arguments in self.rules]
        return gx.ExpectationSuite(self.name, expectations=[some, *made])


def rule(
    expect: str,
    name: str | None,
    sentence: str,
    breach: str = "",
    *,
    severity: str = "error",
    limit: float | None = None,
    **arguments: Any,
) -> gxe.Expectation:
    """A built-in expectation that carries its own words.

    Args:
        expect: which one, by its name without the word Expect, as in ColumnValuesToBeBetween.
        name: of the rule, in reports; None: the expectation's own.
        sentence: what is true where it passes.
        breach: what is wrong with a row, with the row's columns as {places}; empty: the values of
            the columns that are looked at.
        severity: "error" or "warning".
        limit: the parameter that it keeps, for the sentence.
        arguments: its own.
    """
    looked_at = [arguments[key] for key in arguments if key.startswith("column")]
    values = " and ".join(f"{column} is {{{column}}}" for column in looked_at)
    breach = breach or f"{values}, expected that {sentence}"
    meta = {"name": name, "breach": breach, "severity": severity, "limit": limit}
    kind: type[gxe.Expectation] = getattr(gxe, f"Expect{expect}")
    return kind(description=sentence, severity=SEVERITIES[severity], meta=meta, **arguments)


def with_not_finite(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `not_finite`: the first number of a row that is none, or "".

    Columns of text are left out.
    """
    text = np.full(len(frame), "", dtype=object)
    for name in reversed(frame.select_dtypes("number").columns):
        numbers = frame[name].to_numpy(dtype=np.float64, na_value=np.nan)
        for row in np.flatnonzero(~np.isfinite(numbers)):
            text[row] = f"{name} is {numbers[row]}"
    return frame.assign(not_finite=text)


def quiet_context() -> Any:
    """A great-expectations context that lives in memory, sends nothing and draws no bars."""
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


def run_suites(
    suites: Sequence[Suite], field_values: Sequence[str | None] = ()
) -> list[CheckResult]:
    """What came of every expectation; one that could not be evaluated is a breach, too.

    Args:
        suites: what is expected.
        field_values: text of each field value id, for the places in sentences.
    """
    source = quiet_context().data_sources.add_pandas("frames")
    found = []
    for suite in suites:
        definition = source.add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe("")
        batch = definition.get_batch({"dataframe": suite.frame})
        results = batch.validate(suite.expectations(), result_format="SUMMARY").results
        found += [_check_result(suite, result, field_values) for result in results]
    return found


def build_data_docs(suites: Sequence[Suite], folder: Path) -> Path:
    """Validate every suite and write its page below `folder`; the index page comes back.

    The pages carry the time of the run, so they are built beside the stages and are no tracked
    output. They need no network.
    """
    context = quiet_context()
    for site in list(context.get_site_names()):
        context.delete_data_docs_site(site)
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.resolve())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    site = {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": store}
    context.add_data_docs_site("pages", site)
    source = context.data_sources.add_pandas("frames")
    for suite in suites:
        asset = source.add_dataframe_asset(suite.name)
        definition = gx.ValidationDefinition(
            name=suite.name,
            data=asset.add_batch_definition_whole_dataframe("whole"),
            suite=context.suites.add(suite.expectations()),
        )
        context.validation_definitions.add(definition).run(
            batch_parameters={"dataframe": suite.frame}
        )
    context.build_data_docs()
    return _stand_alone(folder)


def _stand_alone(folder: Path) -> Path:
    """Give the pages styles of their own for what they load, and an index that no script makes."""
    style = f"<style>{Path(__file__).with_name('data_docs.css').read_text()}</style>"
    for page in folder.rglob("*.html"):
        page.write_text(LOADED.sub("", page.read_text()).replace("</head>", f"{style}</head>", 1))
    pages = sorted(path.relative_to(folder) for path in folder.glob("validations/**/*.html"))
    links = "".join(f'<li><a href="{quote(str(path))}">{path.parts[1]}</a></li>' for path in pages)
    index = folder / "index.html"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Data Docs</title>{style}'
    index.write_text(f"{head}<h1>Checks of the bin tables</h1><ul>{links}</ul>")
    return index


def _check_result(suite: Suite, result: Any, field_values: Sequence[str | None]) -> CheckResult:
    config, found = result.expectation_config, result.result
    meta = config.meta
    return CheckResult(
        suite.name,
        meta["name"] or config.type,
        config.description,
        meta["severity"],
        meta["limit"],
        len(suite.frame),
        found.get("unexpected_count", 0),
        None if result.success else _breach(suite, config, result, field_values),
    )


def _breach(suite: Suite, config: Any, result: Any, field_values: Sequence[str | None]) -> str:
    found, meta = result.result, config.meta
    if "observed_value" in found:
        return (
            f"{suite.name}: expected that {config.description}, there are {found['observed_value']}"
        )
    if "partial_unexpected_index_list" not in found:
        return (
            f"{suite.name}: cannot evaluate whether {config.description} ({result.exception_info})"
        )
    rows = suite.frame.iloc[found["partial_unexpected_index_list"][:SHOWN]].to_dict("records")
    sentences = [f"{_place(row, field_values)}: {meta['breach'].format(**row)}" for row in rows]
    more = found["unexpected_count"] - len(rows)
    sentences += [f"and {more} more"] if more else []
    key = "validate.{name}.{severity} is {limit:g}".format(**meta) if meta["limit"] else ""
    return "; ".join(sentences) + (f" ({key})" if key else "")


def _place(row: dict[Any, Any], field_values: Sequence[str | None]) -> str:
    """Where a row is: the parts of its key that it has, the field value by its name."""
    parts = [f"{word} {row[name]}" for name, word in KEYS.items() if name in row]
    if "field_value_id" in row:
        value = row["field_value_id"]
        known = value in range(len(field_values))
        name = f" ({field_values[int(value)]!r})" if known else ""
        parts.insert(0, f"field value id {value}{name}")
    return ", ".join(parts)
