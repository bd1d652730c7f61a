"""params.yaml is typed; what does not fit is refused with its path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import ParamsError
from pipeline.params.params_file import read_params, set_values


@pytest.fixture
def edited(project, tmp_path):
    """params.yaml with one text replaced, as a file."""

    def edit(before: str, after: str) -> Path:
        text = (project / "params.yaml").read_text()
        assert before in text
        path = tmp_path / "params.yaml"
        path.write_text(text.replace(before, after, 1))
        return path

    return edit


@pytest.mark.parametrize("spelling", ["0.001", "1e-3", "1.0e-3"])
def test_a_number_is_a_number_however_it_is_spelled(edited, spelling):
    path = edited("  learning_rate: ", f"  learning_rate: {spelling} # ")
    assert read_params(path).train_base.learning_rate == 0.001


def test_the_order_of_candidates_does_not_matter(edited):
    path = edited("candidates: [5, 10, 20]", "candidates: [20, 10, 5]")
    assert read_params(path).tabulate.candidates == (5, 10, 20)


def test_a_whole_number_is_accepted_where_a_number_is_asked(edited):
    path = edited("confidence: 0.95", "confidence: 1")
    with pytest.raises(ParamsError, match=r"evaluate.confidence is 1: .* less than 1"):
        read_params(path)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("candidates: [5, 10, 20]", 'candidates: "5,10,20"', 'tabulate.candidates is "5,10,20"'),
        (
            "grid_cells: 160",
            "grid_cell: 160",
            r"tabulate.grid_cells is missing; tabulate.grid_cell is unknown "
            r"\(did you mean tabulate.grid_cells\?\)",
        ),
        (
            "  test_days: 28",
            "  test_days: 28\n  test_dates: null",
            r"yaml: split.test_dates is unknown; docs",
        ),
        ("grid_cells: 160", "grid_cells: 161", "grid_cells 161 is not a multiple of candidates"),
        ("batch_size: 1024", "batch_size: 1024.0", "train_base.batch_size is 1024.0: it should be"),
        ("batch_size: 1024", "batch_size: -1", "train_base.batch_size is -1"),
        ("  seed: 1", "  seed: true", "seed is true"),
        ('last_day: "2013', "last_day: 2013", "last_day"),
        ('last_day: "2013-', 'last_day: "2013/', "last_day"),
        ("min_slope: 0.05", "min_slope: .nan", "calibrate.min_slope is NaN"),
        ("log:", "logs:", r"log is missing; logs is unknown \(did you mean log\?\)"),
        ("  field: [carrier]", "  field: []", r"log.field is \[\]: .* at least 1 item"),
        (
            'last_day: "2013-09-30"',
            "last_day: 2013-09-30",
            'is 2013-09-30: a date is quoted: "2013',
        ),
        ("log:", "log: [", "is not YAML"),
        ("field_parents: []", "field_parents: [carrier]", "log: .*is its own parent"),
        ("weight: null", "weight: late", "log: .*late.* may be named once"),
        ("weight: null", "weight: distance", "log: .*distance.* may be named once"),
        ("served_probability: null", "served_probability: late", "log: .*late.* may be named once"),
        ("served_logit: null", "served_logit: late", "log: .*late.* may be named once"),
        ("impressions: null", "impressions: late", "log: .*late.* may be named once"),
        ("value: null", "value: late", "log: .*late.* may be named once"),
        ("event_id: null", "event_id: late", "log: .*late.* may be named once"),
        ("America/New_York", "America/New_Yorck", "log.time_zone is .*no time zone"),
        ("America/New_York", "../../etc/passwd", "log.time_zone is .*no time zone"),
        ("replicates: 1000", "replicates: 1", "evaluate.replicates is 1"),
        ("  field: [carrier]", "  field: carrier", "log.field is .*should be a list"),
        ("log:", "log: &a {x: *a}\nlogs:", "inside its own anchor|is not YAML"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(edited, before, after, sentence):
    with pytest.raises(ParamsError, match=sentence):
        read_params(edited(before, after))


def test_a_missing_file_says_where_to_run(tmp_path):
    with pytest.raises(ParamsError, match="run in the project's folder"):
        read_params(tmp_path / "params.yaml")


def test_setting_a_value_keeps_every_other_line(edited):
    path = edited("field_values: 10000", "field_values: 10000")
    before = path.read_text().splitlines()
    set_values(path, {"split.last_day": "2013-10-01", "log.truth": None})
    after = path.read_text().splitlines()
    changed = [(b, a) for b, a in zip(before, after, strict=True) if b != a]
    assert len(changed) == 1
    assert changed[0][1].startswith('  last_day: "2013-10-01" #')


SET = """
import sys
from pathlib import Path
from pipeline.params.params_file import set_values
set_values(Path(sys.argv[1]), {"split.last_day": "2013-10-01"})
"""


def test_setting_a_value_needs_no_locale(edited):
    path = edited("label: late", "label: späte")
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", SET, str(path)], env=os.environ | plain, check=True)
    assert read_params(path).log.label == "späte"


@pytest.mark.parametrize("values", [{"log.last_dy": "2013-10-01"}, {"split.last_day": "tomorrow"}])
def test_a_setting_that_does_not_fit_leaves_the_file_as_it_was(edited, values):
    path = edited("field_values: 10000", "field_values: 10000")
    before = path.read_bytes()
    with pytest.raises(ParamsError):
        set_values(path, values)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_sections_are_frozen(project):
    params = read_params(project / "params.yaml")
    with pytest.raises(ValueError, match="frozen"):
        params.split.test_days = 3
