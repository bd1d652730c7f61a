"""Pictures: the specifications of pictures.yaml; their rows come from the page's own sums."""

import re
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import vl_convert

from pipeline.core.errors import ArtifactError
from pipeline.core.typed_yaml import read_yaml
from pipeline.report.page_data import day_rows, drawn_bins
from pipeline.report.result_tables import NAMES

Spec = dict[str, Any]
PICTURES: Spec = read_yaml(Path(__file__).with_name("pictures.yaml"), ArtifactError)
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
LABELS = NAMES | {"identity": NAMES["uncalibrated"]}
_RATES = [10.0**-k * m for k in (6, 5, 4, 3, 2) for m in (1, 3)]
_RATES += [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 0.999]
_TICKS = [float(np.log(rate / (1 - rate))) for rate in _RATES]


def picture(name: str, methods: tuple[str, ...] = ()) -> Spec:
    """The Vega-Lite specification of a picture of pictures.yaml.

    Args:
        name: its key there.
        methods: those that it shows, by their names in reports/evaluation.json.
    """
    domain = [LABELS[method] for method in methods]
    colours = [PICTURES["colours"][label] for label in domain]
    stands_for = {"METHODS": {"domain": domain, "range": colours}, "TICKS": _TICKS}
    frame = {"$schema": SCHEMA, "data": {"name": "rows"}, "width": "container"}
    return frame | _filled(PICTURES[name], stands_for) | {"config": PICTURES["config"]}


def _filled(part: Any, stands_for: dict[str, Any]) -> Any:
    """A part of a specification with what its words stand for."""
    if isinstance(part, dict):
        return {key: _filled(value, stands_for) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, stands_for) for value in part]
    return stands_for.get(part, part) if isinstance(part, str) else part


def static(
    spec: Spec, rows: list[dict[Hashable, Any]], ink: str = "#444444", width: int = 460
) -> str:
    """A picture as SVG text, for places that run no script; equal rows give equal text."""
    fixed = {**spec, "datasets": {"rows": rows}, "width": width}
    text = vl_convert.vegalite_to_svg(fixed).replace("currentColor", ink)
    clips = list(dict.fromkeys(re.findall(r'id="(clip\d+)"', text)))  # numbered by the process
    return re.sub(r"clip\d+\b", lambda found: f"clip-{clips.index(found[0])}", text)


@cache
def drawing_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed package; takes seconds."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def plot_files(counts: pd.DataFrame, bins: pd.DataFrame, reliability: Spec) -> dict[str, str]:
    """What stands beside the page, texts by file name: tables for `dvc plots`, a still picture.

    Args:
        counts: sums by method, test day and field value.
        bins: sums by method, field value and bin; those of all rows (-1) are drawn, in log-odds.
        reliability: the specification of the picture.
    """
    drawn = drawn_bins(bins[bins["field_value_id"] == -1]).replace({"method": NAMES})
    columns = ["method", "predicted", "observed", "low", "high", "impressions", "responses"]
    return {
        "reliability.csv": drawn[columns].round(4).to_csv(index=False),
        "days.csv": pd.DataFrame(day_rows(counts)).to_csv(index=False),
        "reliability.svg": static(reliability, drawn[columns].to_dict("records")),
    }
