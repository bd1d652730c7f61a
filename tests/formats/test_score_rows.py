"""Scores refuse what no calibrator may see."""

import numpy as np
import pytest

from pipeline.core.columns import joined
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores


def scores(**changes):
    """Three valid rows, with some columns replaced."""
    columns = {
        "uncalibrated_logit": np.array([-1.0, 0.0, 2.0], np.float32),
        "field_value_id": np.array([0, 1, 1], np.int32),
        "impressions": np.array([1, 5, 1], np.int32),
        "responses": np.array([0, 2, 1], np.int32),
        "day": np.zeros(3, np.int32),
        "n_field_values": 2,
    }
    return Scores(**(columns | changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"uncalibrated_logit": np.float32([0, np.nan, 1])}, "must be finite, row 1 has nan"),
        ({"uncalibrated_logit": np.float32([0, 1, np.inf])}, "must be finite, row 2 has inf"),
        ({"field_value_id": np.int32([0, 2, 1])}, r"must lie in \[0, 2\)"),
        ({"field_value_id": np.int32([0, -1, 1])}, r"must lie in \[0, 2\)"),
        ({"responses": np.int32([0, 6, 1])}, "row 1 has 6 of 5"),
        ({"responses": np.int32([-1, 2, 1])}, "row 0 has -1 of 1"),
        ({"day": np.zeros(2, np.int32)}, "columns of one length"),
    ],
)
def test_impossible_rows_are_refused_by_number(changes, sentence):
    with pytest.raises(DataError, match=sentence):
        scores(**changes)


def test_taken_rows_do_not_share_memory():
    rows = scores()
    taken = rows.take(rows.field_value_id == 1)
    taken.responses[:] = 0
    assert rows.responses.tolist() == [0, 2, 1]
    assert len(taken) == 2


def test_joined_parts_are_their_rows_in_order():
    whole = scores()
    again = joined([whole.take(np.array([0])), whole.take(np.array([1, 2]))])
    for name in vars(whole):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
