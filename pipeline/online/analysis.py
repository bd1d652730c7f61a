"""The whole analysis of an experiment: what can be claimed, what cannot, and why."""

from typing import Any

from pipeline.core.errors import NotEnoughDataError
from pipeline.online.effects import (
    LEAST_RATIO_PVALUE,
    METRICS,
    Arms,
    effects,
    moments,
    sample_ratio,
    stratified,
)
from pipeline.online.experiment_log import ExperimentLog
from pipeline.online.traffic import traffic_calibration
from pipeline.report.online_page import SENTENCES

MONEY = {"gmv", "revenue"}
WITHHOLDING = ("not_randomised", "broken", "early")


def analyse(log: ExperimentLog, separate_budgets: bool = False) -> dict[str, Any]:
    """What a log says of its test: facts by name, as JSON carries them.

    Args:
        log: as `open_log` returns it.
        separate_budgets: whether no advertiser's budget was spent by both arms.

    Returns:
        `first_day`, `last_day` (mature), `planned_last_day`; `arms`: totals of each;
        `sample_ratio`: of each period; `effects` (see there), empty where `withheld` has reasons;
        `calibration` (see `traffic_calibration`); `notes`: what limits the claims, a sentence each.

    Raises:
        NotEnoughDataError: an arm has fewer than two units in a period.
    """
    days = {"first_day": log.first, "last_day": log.mature, "planned_last_day": log.last}
    found: dict[str, Any] = {name: str(day) for name, day in days.items()}
    found |= {"arms": [], "sample_ratio": [], "effects": []}
    counts = {"moved": 0, "together": 0, "empty": 0}
    if randomised := {"arm", "unit"} <= log.there:
        cells = _cells(log)
        found |= {"arms": _totals(log), "sample_ratio": _ratios(log, cells)}
        counts = _unit_counts(log)
    broken = ", ".join(
        "from {from} on {control:,} and {treatment:,}, planned share {share:g}, p = {pvalue:.2g}"
        .format(**ratio) for ratio in found["sample_ratio"] if ratio["broken"]
    )  # fmt: skip
    money = MONEY & set(log.summed)
    applies = {
        "not_randomised": not randomised,
        "broken": broken,
        "early": randomised and log.mature < log.last,
        "end": randomised,
        "maturity": True,
        "outside": log.outside,
        "selected": len(log.versions) == 1 and len(log.arms) == 2,
        "budgets": money and randomised and not separate_budgets,
        "apart": money and randomised and separate_budgets,
        "empty": counts["empty"],
        "no_empty": randomised and not counts["empty"],
        "moved": counts["moved"],
        "ramp": len(log.shares) > 1,
        "pre": randomised and log.pre,
    }
    ramp = ", ".join(f"{share:g} from {day}" for day, share in log.shares)
    said = {name: SENTENCES[name].format(log=log, broken=broken, ramp=ramp, **counts)
            for name, true in applies.items() if true}  # fmt: skip
    found["withheld"] = [sentence for name, sentence in said.items() if name in WITHHOLDING]
    found["notes"] = [sentence for name, sentence in said.items() if name not in WITHHOLDING]
    if not found["withheld"]:
        names = _metric_names(log, separate_budgets)
        found["effects"] = effects(stratified(cells), names, log.pre)
    return found | {"calibration": traffic_calibration(log) if log.versions else []}


def _cells(log: ExperimentLog) -> list[Arms]:
    """The moments of units in each period and arm."""
    columns = [*log.summed, *(f"pre_{column}" for column in log.summed if log.pre)]
    found = moments(log.sum_units(), columns)
    for place, (day, _) in enumerate(log.shares):
        counts = [found[c].count() if c in found else 0 for c in (2 * place, 2 * place + 1)]
        if min(counts) < 2:
            raise NotEnoughDataError(
                f"an effect needs 2 units of each arm in each period, that from {day} has "
                f"{counts[0]:,} and {counts[1]:,}; correct --share, or wait"
            )
    return [{0: found[2 * place], 1: found[2 * place + 1]} for place in range(len(log.shares))]


def _ratios(log: ExperimentLog, cells: list[Arms]) -> list[dict[str, Any]]:
    found = []
    for (day, share), arms in zip(log.shares, cells, strict=True):
        counts = {"control": arms[0].count(), "treatment": arms[1].count()}
        pvalue = sample_ratio(arms, share)
        broken = pvalue < LEAST_RATIO_PVALUE / len(cells)
        found.append(
            {"from": str(day), "share": share, **counts, "pvalue": pvalue, "broken": broken}
        )
    return found


def _metric_names(log: ExperimentLog, separate_budgets: bool) -> list[str]:
    """The metrics of what the log has; a rate of responses to impressions is CTR times CVR."""
    return [
        name
        for name, (numerator, denominator, _) in METRICS.items()
        if {numerator, denominator} <= {*log.summed, None}
        if separate_budgets or numerator not in MONEY
        if name != "response rate" or "clicks" not in log.there
    ]


def _totals(log: ExperimentLog) -> list[dict[str, Any]]:
    """Units and sums of each arm, in the order of the arms."""
    names = ["units", *log.summed]
    sums = ", ".join(f"sum({column})" for column in log.summed)
    query = f"SELECT count(*), {sums} FROM units GROUP BY treated ORDER BY treated"
    rows = log.database.execute(query).fetchall()
    return [
        {"arm": arm} | dict(zip(names, row, strict=True))
        for arm, row in zip(log.arms, rows, strict=True)
    ]


def _unit_counts(log: ExperimentLog) -> dict[str, int]:
    """Units that both arms served, at one instant, and units without impressions."""
    moved, together, empty = log.database.execute(
        "SELECT count(in0 - in1), count_if(in0 = in1), count_if(impressions = 0) FROM units"
    ).fetchall()[0]
    return {"moved": moved, "together": together, "empty": empty}
