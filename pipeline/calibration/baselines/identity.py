"""No calibration: the base model's logit as it is."""

from pipeline.formats.maps import PiecewiseLinearMap, identity_map
from pipeline.formats.scores import Scores


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The map that returns every logit unchanged."""
    return identity_map(scores.n_field_values)
