"""What people import: load works where little is installed, AdaCalib says what it needs."""

import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import adacalib
from tests.checkpoint.parts import rows
from tests.serving.conftest import make_model
from tests.test_house import modules_loaded_by

ABSENT = ("torch", "dvc", "gto", "prefect", "great_expectations", "onnx", "sklearn")


def run_where_little_is_installed(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in which whoever imports a package of ABSENT gets an ImportError."""
    blocked = f"import sys\nsys.modules |= dict.fromkeys({ABSENT})\n"
    command = [sys.executable, "-c", blocked + program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_published_model_scores_a_table_where_little_is_installed(tmp_path):
    model = make_model(tmp_path / "made", seed=0)
    pq.write_table(rows(5), tmp_path / "in.parquet")
    program = f"""
import pyarrow.parquet as pq
from adacalib import load
scores = load({str(model)!r}).predict(pq.read_table({str(tmp_path / "in.parquet")!r}))
assert scores.probability.shape == (5,)
"""
    finished = run_where_little_is_installed(program)
    assert finished.returncode == 0, finished.stderr


def test_the_notebooks_calibrator_names_the_package_that_it_lacks():
    finished = run_where_little_is_installed("from adacalib import AdaCalib")
    assert "adacalib.AdaCalib needs the package " in finished.stderr
    assert ".[pipeline]" in finished.stderr


def test_what_is_exported_is_there_and_nothing_else():
    assert adacalib.AdaCalib.__name__ == "AdaCalib"
    assert set(adacalib.__all__) == {"AdaCalib", "load"}
    with pytest.raises(AttributeError, match="no attribute 'predict'"):
        _ = adacalib.predict


def test_the_import_itself_loads_nothing_heavy():
    assert not {"torch", "onnxruntime", "numpy", "pipeline"} & modules_loaded_by("import adacalib")
