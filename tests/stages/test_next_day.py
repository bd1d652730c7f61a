"""One day more, the same base: ids and scored days stay, what is new has a map of its own."""

import numpy as np
import pytest

from pipeline.__main__ import run_stage
from pipeline.core.files import read_json
from pipeline.encoding.values import NULL_NAME
from pipeline.formats.days import day_name, day_number
from pipeline.formats.maps import read_maps
from pipeline.formats.rolling import read_rolling
from pipeline.params.params_file import STAGES, set_values
from tests.stages.worlds import busy_day
from tests.tiny_logs import files_of
from tests.whole_walk import PATHS, project

DAYS = [day_name(day_number("2024-03-09") + n) for n in range(9)]  # from a Saturday to a Sunday
BORN, NEWEST = DAYS[7], DAYS[8]
ROWS = 120
METHODS = ["isotonic", "eb_platt", "adacalib"]


def log_days():
    """A third of the rows of the last two days have values that no day before had."""
    new = {BORN: ["born", None, "a"], NEWEST: ["born", "last", "a"]}
    items = {day: np.array(values * (ROWS // 3), object) for day, values in new.items()}
    days = {day: busy_day(day, ROWS) for day in DAYS}
    return days | {day: busy_day(day, ROWS, item=values) for day, values in items.items()}


def run_up_to(folder, last_day):
    """Every stage up to calibrate, as of the morning after a day."""
    set_values(folder / "params.yaml", {"split.last_day": last_day})
    for stage in STAGES[: STAGES.index("calibrate") + 1]:
        run_stage(stage, [folder / path for path in PATHS[stage]], folder / "params.yaml")
    return {name: files_of(folder / "artifacts" / name) for name in ("base", "split", "scores")}


@pytest.fixture(scope="module")
def mornings(tmp_path_factory):
    """Two mornings in a row: folders, and what their stages left."""
    found = []
    for last_day in DAYS[-2:]:
        folder = tmp_path_factory.mktemp("walk") / "project"
        values = {"categorical": ["item"], "numeric": ["price"]}
        log = {f"log__{name}": value for name, value in values.items()}
        project(folder, log_days(), **log, split__retrain_every_days=7)
        found.append((folder, run_up_to(folder, last_day)))
    return found


def names_of(folder):
    return read_json(folder / "artifacts/scores/manifest.json")["field"]["values"]


def test_the_base_is_the_same_to_the_byte(mornings):
    (_, one), (_, two) = mornings
    assert one["base"] == two["base"]
    assert one["split"]["training.json"] == two["split"]["training.json"]
    assert one["split"]["manifest.json"] != two["split"]["manifest.json"]


def test_every_id_keeps_its_value_and_new_values_are_appended(mornings):
    one, two = (names_of(folder) for folder, _ in mornings)
    assert one == [None, "001", "NA", "a", "b", "born", NULL_NAME]
    assert two == [*one, "last"]


def test_days_that_were_scored_are_as_they_were(mornings):
    """To the byte, so that nothing that was made of them is made again."""
    (_, one), (_, two) = mornings
    scored = [name for name in one["scores"] if name != "manifest.json"]
    assert len(scored) == 8
    assert {name: one["scores"][name] for name in scored} == {
        name: two["scores"][name] for name in scored
    }


def logits(served, field_value_id):
    """Of a map, at points, for one field value."""
    at = np.linspace(-3, 3, 9)
    return served(at, np.full(9, field_value_id))


@pytest.mark.parametrize("name", METHODS)
def test_a_value_is_served_as_unseen_on_the_day_that_it_is_born(mornings, name):
    """Whether that is a later test day or the first, whose maps are of all values."""
    for folder, _ in mornings:
        born = names_of(folder).index("born")
        served = read_rolling(folder / "artifacts/calibrator/rolling.parquet")[name]
        of_day = served[day_number(BORN)]
        assert np.array_equal(logits(of_day, born), logits(of_day, 0))


def test_a_value_that_no_day_before_had_has_no_row_in_what_serves_its_day(mornings):
    """So it is counted as unseen, though the day asks for it and it has an id."""
    for (folder, _), value, day in zip(mornings, ("born", "last"), (BORN, NEWEST), strict=True):
        names = names_of(folder)
        served = read_rolling(folder / "artifacts/calibrator/rolling.parquet")["adacalib"]
        assert names.index(value) not in served[day_number(day)].ids
        assert names.index("a") in served[day_number(day)].ids


def test_a_day_later_it_has_a_map_of_its_own(mornings):
    """In what serves that day, while the value that is born then has not."""
    folder, _ = mornings[1]
    names = names_of(folder)
    served = read_rolling(folder / "artifacts/calibrator/rolling.parquet")
    for name in METHODS[1:]:
        of_day = served[name][day_number(NEWEST)]
        assert not np.array_equal(
            logits(of_day, names.index("born")), logits(of_day, names.index("last"))
        )
        assert np.array_equal(logits(of_day, names.index("last")), logits(of_day, 0))


def test_what_ships_has_a_map_of_its_own_for_every_value_of_a_test_day(mornings):
    for folder, _ in mornings:
        names, maps = names_of(folder), read_maps(folder / "artifacts/calibrator/maps.parquet")
        for name in METHODS[1:]:
            own = {logits(maps[name], number).tobytes() for number in range(len(names))}
            assert len(own) == len(names)
