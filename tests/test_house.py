"""The import rules: who may import whom, where each thing is written, and how large it may be."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from tests.source_tree import (
    FLOWS,
    PIPELINE,
    ROOT,
    importers,
    imports,
    module_file,
    nodes,
    top_imports,
)


def test_the_pipeline_knows_nothing_of_prefect_or_flows():
    assert importers("prefect", PIPELINE) == set()
    assert importers("flows", PIPELINE) == set()


def test_only_the_registry_touches_dvc_and_gto():
    """By their command lines; `stores` uses DVC's own modules where DVC has no command."""
    assert importers("dvc", PIPELINE + FLOWS) <= {"pipeline/registry/tools/stores.py"}
    assert importers("gto", PIPELINE + FLOWS) == set()
    callers = {
        str(file.relative_to(ROOT))
        for file in PIPELINE + FLOWS
        for node in nodes(file)
        if isinstance(node, ast.List) and node.elts
        if isinstance(node.elts[0], ast.Constant) and node.elts[0].value in {"dvc", "gto"}
    }
    assert callers <= {"pipeline/registry/tools/dvc.py"}


@pytest.mark.parametrize("package", ["numpy", "pandas", "torch", "pyarrow"])
def test_flows_hold_no_numbers(package):
    assert importers(package, FLOWS) == set()


# Which packages of pipeline/ a package may import beside itself.
MAY_IMPORT = {
    "core": set(),
    "params": {"core"},
    "formats": {"core"},
    "encoding": {"core", "formats"},
    "engine": {"core", "formats"},
    "data": {"core", "formats", "encoding"},
    "model": {"core", "formats", "encoding"},
    "calibration": {"core", "formats"},
    "metrics": {"core", "formats"},
    "quality": {"core", "formats", "calibration"},
    "serving": {"core", "formats", "encoding"},
    "checkpoint": {"core", "formats", "encoding", "params", "model", "calibration", "serving"},
    "gate": {"core", "formats", "params", "metrics", "serving", "checkpoint"},
    "report": {"core", "formats", "encoding", "metrics"},
    "online": {"core", "formats", "encoding", "data", "metrics", "report"},
    "registry": {"core", "formats", "params"},
    "stages": {
        "core", "params", "formats", "encoding", "data", "model", "calibration", "metrics",
        "quality", "serving", "checkpoint", "gate", "report", "engine",
    },
    "cli": {
        "core", "params", "formats", "data", "metrics", "serving", "report", "online", "registry",
        "stages", "engine",
    },
}  # fmt: skip


def test_every_package_is_in_the_import_rules():
    assert set(MAY_IMPORT) == {p.parent.name for p in (ROOT / "pipeline").glob("*/__init__.py")}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_what_stands_below_it_alone(package):
    for file in (ROOT / "pipeline" / package).rglob("*.py"):
        for name in imports(file):
            top, _, rest = name.partition(".")
            if top == "pipeline" and rest:
                assert rest.split(".")[0] in MAY_IMPORT[package] | {package}, f"{file}: {name}"


def test_no_circle_of_packages():
    """Of packages, by the rules above; and of modules, as the files are."""
    assert set(TopologicalSorter(MAY_IMPORT).static_order()) == set(MAY_IMPORT)
    modules = {
        file: {f for name in top_imports(file) if (f := module_file(name)) and f != file}
        for file in PIPELINE + FLOWS
    }
    assert len(list(TopologicalSorter(modules).static_order())) >= len(PIPELINE)


def test_only_quality_imports_great_expectations():
    files = importers("great_expectations", PIPELINE + FLOWS)
    assert all(file.startswith("pipeline/quality/") for file in files)


def test_only_params_opens_params_yaml():
    openers = {
        str(file.relative_to(ROOT))
        for file in PIPELINE
        if any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"open", "read_text", "load"}
            and "params.yaml" in ast.unparse(node)
            for node in nodes(file)
        )
    }
    assert openers <= {"pipeline/params/params_file.py"}


@pytest.mark.parametrize("package", ["calibration", "metrics"])
def test_kernels_do_not_touch_the_disk(package):
    for file in (ROOT / "pipeline" / package).rglob("*.py"):
        for node in nodes(file):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called != "open", file
                assert not called.endswith(
                    (".write_text", ".read_text", ".write_bytes", ".read_table", ".write_table")
                ), file


def test_no_pickle_is_read_or_written():
    for file in PIPELINE + FLOWS:
        assert not {"pickle", "joblib", "cloudpickle", "dill"} & imports(file), file
        for node in nodes(file):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "torch.load",
                "torch.save",
            }:
                assert "weights_only=True" in ast.unparse(node), file


def test_the_tree_in_the_readme_is_the_tree_on_disk():
    tree = (ROOT / "README.md").read_text().split("<!-- tree -->")[1]
    named = {line.split()[0].rstrip("/") for line in tree.splitlines() if line.startswith("    ")}
    assert named == set(MAY_IMPORT)


def modules_loaded_by(code: str) -> set[str]:
    """Top-level packages in memory after running `code` in a new interpreter."""
    program = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(finished.stdout.split())


HEAVY = {
    "torch",
    "pandas",
    "prefect",
    "great_expectations",
    "sklearn",
    "altair",
    "vl_convert",
    "dvc",
    "gto",
    "tea_tasting",
}


@pytest.mark.parametrize(
    "code",
    [
        "import adacalib",
        "import pipeline",
        "import pipeline.cli.main",
        "import pipeline.params.params_file",
        "import pipeline.params.sections",
        "import pipeline.registry.promote",
    ],
)
def test_a_light_import_stays_light(code):
    assert not HEAVY & modules_loaded_by(code)


def test_no_package_holds_more_than_sixteen_files():
    packages = {file.parent for file in PIPELINE + FLOWS}
    sizes = {str(p.relative_to(ROOT)): len(list(p.glob("*.py"))) for p in packages}
    assert {package: size for package, size in sizes.items() if size > 16} == {}


def test_the_dag_fits_two_screens():
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) <= 150


def test_no_file_is_longer_than_350_lines_and_no_function_than_60():
    for file in PIPELINE + FLOWS:
        assert len(file.read_text().splitlines()) <= 350, file
        for node in nodes(file):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno - node.lineno < 60, (file, node.name)


def test_one_name_is_one_thing():
    """Names of files, where the package does not say it all, and of classes."""
    places: dict[str, set[str]] = {}
    for file in PIPELINE + FLOWS:
        names = {node.name for node in nodes(file) if isinstance(node, ast.ClassDef)}
        if not file.name.startswith("__") and file.parent.name != "stages":
            names.add(file.name)
        for name in names:
            places.setdefault(name, set()).add(str(file.relative_to(ROOT)))
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}
