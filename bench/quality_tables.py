"""The tables that bench.quality prints."""

from typing import Any

import numpy as np

from bench.quality_ablation import MEASURED, losses, verdict
from bench.quality_gains import Judged

Result = dict[str, Any]

# Title, key, format, whether the ends of its interval follow.
COLUMNS: tuple[tuple[str, str, str, bool], ...] = (
    ("LogLoss", "logloss", "{:.5f}", False),
    ("field deviance", "field_deviance", "{:.4f}", True),
    ("Field-RCE", "field_rce", "{:.4f}", True),
    ("floor", "field_rce_floor", "{:.4f}", False),
    ("Field-AUC", "field_auc", "{:.4f}", False),
    ("AUC", "auc", "{:.4f}", False),
    ("PCOC", "pcoc", "{:.4f}", False),
    ("fit s", "fit_seconds", "{:.2f}", False),
    ("rows/s", "rows_per_second", "{:.2g}", False),
    ("excess ·10⁻⁴", "excess_logloss", "{:.2f}", False),
)


def _cell(results: list[Result], key: str, form: str, interval: bool) -> str:
    def mean(name: str) -> float:
        return float(np.mean([result[name] for result in results]))

    text = form.format(mean(key) * (1e4 if key == "excess_logloss" else 1))
    if interval:
        text += f" [{form.format(mean(key + '_low'))}, {form.format(mean(key + '_high'))}]"
    return text


def _by_method(results: list[Result]) -> dict[str, list[Result]]:
    methods = dict.fromkeys(result["method"] for result in results)
    return {name: [r for r in results if r["method"] == name] for name in methods}


def table(results: list[Result]) -> str:
    """A row per method: means over cases; the ends of intervals are means too."""
    columns = [c for c in COLUMNS if not np.isnan(results[0][c[1]])]
    lines = [["method", *(title for title, *_ in columns)]]
    for method, own in _by_method(results).items():
        lines.append([method, *(_cell(own, key, form, ends) for _, key, form, ends in columns)])
    return aligned(lines)


def losses_table(judged: list[Judged]) -> str:
    """What each removal of a part lost against the row above, with paired intervals."""
    lines = [["parts", *(f"{name} lost, paper's order" for name in MEASURED)]]
    for row, lost in losses(judged).items():
        each = [lost[metric] for metric in MEASURED]
        lines.append(
            [row, *(f"{i.value:+.5f} [{i.low:+.5f}, {i.high:+.5f}] {verdict(i)}" for i in each)]
        )
    return aligned(lines)


def aligned(lines: list[list[str]]) -> str:
    """Lines of cells as text, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
