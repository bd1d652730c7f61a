"""Pictures as SVG text: no script, no font and no link from outside; they take the page's ink."""

import io
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from pipeline.metrics.calibration import wilson_interval
from pipeline.report.terminal import NAMES

# Drawn in this colour and renamed, so that axes and words take the colour of the text around.
_INK = "#010203"
COLOURS = {
    "uncalibrated": "#c2571a",
    "model": "#2f7fd0",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a field value may hold dollar signs
    "svg.hashsalt": "adacalib",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _logit(probability: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probability) - np.log1p(-probability)


def svg(figure: Figure, title: str) -> str:
    """A figure as an SVG element with a title for screen readers; equal figures give equal text."""
    text = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(
            text, format="svg", transparent=True, metadata={"Date": None, "Title": title}
        )
    element = text.getvalue()
    element = element[element.index("<svg") :].replace(_INK, "currentColor")
    return element.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)


def reliability(curves: dict[str, dict[str, np.ndarray]], title: str) -> str:
    """Reliability on logit axes: observed rate with Wilson's 95 % band over predicted rate.

    Args:
        curves: by method, arrays [bins] of `impressions`, `responses` and `expected_responses`;
            bins without impressions are left out, and a bin without responses (or with nothing
            else) has its band but no point.
        title: what is shown, for the label.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6, 4.6), layout="constrained")
        axes = figure.add_subplot()
        ends: list[float] = []
        for method, bins in curves.items():
            filled = bins["impressions"] > 0
            n, o = bins["impressions"][filled], bins["responses"][filled]
            expected = bins["expected_responses"][filled]
            low, high = wilson_interval(o, n)
            x, y = _logit(expected / n), _logit(o / n)
            seen = np.isfinite(y)
            colour = COLOURS.get(method, "#777777")
            low, high = (_logit(np.clip(end, 1e-7, 1 - 1e-7)) for end in (low, high))
            axes.vlines(x, low, high, color=colour, alpha=0.35, lw=3)
            label = NAMES.get(method, method)
            axes.plot(x[seen], y[seen], "o-", color=colour, ms=4, lw=1.2, label=label)
            ends += [*x, *y[seen]]
        if ends:
            span = [min(ends), max(ends)]
            axes.plot(span, span, color=_INK, lw=0.8, ls="--", zorder=0)
            _probability_ticks(axes, span)
            axes.set_ylim(span[0] - 0.7, span[1] + 0.7)  # a band without an end leaves the picture
        axes.set_xlabel("predicted probability (logit scale)")
        axes.set_ylabel("observed rate")
        axes.legend(frameon=False)
        return svg(figure, title)


def _probability_ticks(axes: "mpl.axes.Axes", span: list[float]) -> None:
    rates = np.array([1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999])
    shown = rates[(_logit(rates) > span[0] - 0.7) & (_logit(rates) < span[1] + 0.7)]
    labels = [f"{rate:g}" for rate in shown]
    axes.set_xticks(_logit(shown), labels)
    axes.set_yticks(_logit(shown), labels)


def _ratio_axis(axes: "mpl.axes.Axes", ratios: np.ndarray) -> None:
    """A logarithmic axis as wide as the points ask, at least 1/1.5 to 1.5; bands may leave it."""
    spread = 1.2 * np.nanmax([np.log(1.5), *np.abs(np.log(ratios[ratios > 0]))])
    axes.set_xscale("log")
    axes.set_xlim(np.exp(-spread), np.exp(spread))
    shown = [
        tick for tick in (0.1, 0.25, 0.5, 0.8, 1, 1.25, 2, 4, 10) if abs(np.log(tick)) < spread
    ]
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()


def horizontal_intervals(
    names: list[str],
    intervals: tuple[np.ndarray, np.ndarray, np.ndarray],
    reference: float,
    title: str,
) -> str:
    """A forest plot of ratios: a point with its interval for each name, on a logarithmic axis.

    Args:
        names: one a row, from the top.
        intervals: low end, point and high end, each [n]; NaN rows stay empty.
        reference: where the vertical line stands.
        title: label of the horizontal axis and of the picture.
    """
    low, values, high = intervals
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6, 0.8 + 0.28 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        rows = np.arange(len(names))[::-1]
        axes.hlines(rows, low, high, color=COLOURS["model"], alpha=0.5, lw=3)
        axes.plot(values, rows, "o", color=COLOURS["model"], ms=5)
        _ratio_axis(axes, values / reference)
        axes.axvline(reference, color=_INK, lw=0.8, ls="--")
        axes.set_yticks(rows, names)
        axes.set_xlabel(title)
        return svg(figure, title)
