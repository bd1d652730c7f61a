"""What is compared on demand: more competitors, and the paper's ablation table, as maps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pipeline.calibration.baselines import fit
from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores

# Posterior guidance, adaptive function, adaptive binning: the paper's second table from its second
# row on. Its first has the auxiliary network, which reads the rows' features: bench.quality has it.
ABLATION = {
    "paper": (True, True, True),
    "paper_one_bin_count": (True, True, False),
    "paper_shared_bins": (True, False, False),
    "paper_free_knots": (False, False, False),
}


def competitor_maps(rows: Scores, names: Sequence[str]) -> dict[str, PiecewiseLinearMap]:
    """The maps of competitors by name, fitted on calibration rows.

    Args:
        rows: calibration rows.
        names: of `calibrate.competitors`, which are those that are continuous and piecewise linear.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    return {name: cast(PiecewiseLinearMap, fit(name, rows)) for name in names}


def ablation_maps(rows: Scores, settings: PaperSettings) -> dict[str, PiecewiseLinearMap]:
    """The maps of AdaCalib as published with one part after the other taken away, by ABLATION.

    Args:
        rows: calibration rows.
        settings: how they are trained; its own choice of parts is passed over.

    Raises:
        NotEnoughDataError: no row stands for an impression.
        TrainingError: the loss is not finite.
    """
    maps = {}
    for row, (guidance, function, binning) in ABLATION.items():
        parts = replace(
            settings,
            posterior_guidance=guidance,
            adaptive_function=function,
            adaptive_binning=binning,
            auxiliary=False,
        )
        maps[row] = fit_paper(rows, parts).serving
    return maps
