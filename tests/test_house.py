"""The import rules: who may import whom, where each thing is written, and how large it may be."""

import ast
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.params.dag import code_of
from pipeline.params.params_file import STAGES, read_params
from pipeline.params.sections import Params

ROOT = Path(__file__).parent.parent
PIPELINE = sorted((ROOT / "pipeline").rglob("*.py"))
FLOWS = sorted((ROOT / "flows").rglob("*.py"))
DAG = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree, the file itself first."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imports(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it, by its full name."""
    names = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def module_file(name: str) -> Path | None:
    """The file of a module of the pipeline, or None where the name is something in a module."""
    path = ROOT / Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def top_imports(file: Path) -> set[str]:
    """What a file imports when it is imported itself, not later in a function."""
    names = set()
    for node in nodes(file)[0].body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def importers(package: str, files: list[Path]) -> set[str]:
    """The files that import a package."""
    return {
        str(file.relative_to(ROOT))
        for file in files
        if any(name == package or name.startswith(f"{package}.") for name in imports(file))
    }


def imported_by(file: Path) -> set[Path]:
    """The pipeline's files that a file imports, directly or not, with the packages they are in."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        for name in imports(current):
            if name.split(".")[0] == "pipeline":
                parts = name.split(".")
                names = [".".join(parts[: i + 1]) for i in range(len(parts))]
                waiting += [f for f in map(module_file, names) if f]
    return found


def data_paths(stage: dict) -> set[str]:
    """The declared data paths of a stage: dependencies and outputs that are not code."""
    declared = stage.get("deps", []) + stage.get("outs", [])
    declared += [next(iter(metric)) for metric in stage.get("metrics", [])]
    return {path for path in declared if not path.startswith("pipeline")}


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
    "data": {"core", "formats", "encoding"},
    "model": {"core", "formats", "encoding"},
    "calibration": {"core", "formats"},
    "metrics": {"core", "formats"},
    "quality": {"core", "formats", "calibration"},
    "serving": {"core", "formats", "encoding"},
    "checkpoint": {"core", "formats", "encoding", "params", "model", "calibration", "serving"},
    "gate": {"core", "formats", "params", "metrics", "serving", "checkpoint"},
    "report": {"core", "formats", "encoding", "metrics"},
    "registry": {"core", "formats", "params"},
    "stages": {
        "core", "params", "formats", "encoding", "data", "model", "calibration", "metrics",
        "quality", "serving", "checkpoint", "gate", "report",
    },
    "cli": {
        "core", "params", "formats", "data", "metrics", "serving", "report", "registry", "stages",
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


def test_stages_have_one_name_everywhere():
    modules = {f.stem for f in (ROOT / "pipeline/stages").glob("*.py")} - {"__init__"}
    sections = set(read_params(ROOT / "params.yaml").model_dump(by_alias=True)) - {"log"}
    assert tuple(DAG) == STAGES
    assert modules == sections == set(STAGES)
    assert {f.alias or name for name, f in Params.model_fields.items()} == {*STAGES, "log"}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_lists_its_own_section_and_the_contract_only_where_it_reads_it(stage):
    log = ["log"] if stage in {"validate", "split", "train_base"} else []
    assert DAG[stage]["params"] == [*log, stage]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_command_names_exactly_its_declared_data_paths(stage):
    words = DAG[stage]["cmd"].split()
    assert words[:4] == ["python", "-m", "pipeline", stage]
    assert set(words[4:]) == data_paths(DAG[stage])
    assert len(words[4:]) == len(set(words[4:]))


def code_dependencies(stage: str) -> list[str]:
    """The declared dependencies of a stage that are code."""
    return [path for path in DAG[stage]["deps"] if path.startswith("pipeline")]


def code_used_by(stage: str) -> set[Path]:
    """The files whose code a stage runs, without packages that hold a docstring alone."""
    used = imported_by(ROOT / f"pipeline/stages/{stage}.py") | {ROOT / "pipeline/__main__.py"}
    return {file for file in used if len(nodes(file)[0].body) > 1}


@pytest.mark.parametrize("stage", STAGES)
def test_the_code_dependencies_of_a_stage_cover_what_it_imports(stage):
    uncovered = code_used_by(stage) - set(code_of(ROOT, stage))
    assert not {str(file.relative_to(ROOT)) for file in uncovered}


@pytest.mark.parametrize("stage", sorted(set(STAGES) - {"merge"}))
def test_a_stage_depends_on_no_code_that_it_does_not_use(stage):
    """Merge does: its lineage names the code of every stage that made what it merges."""
    used = code_used_by(stage)
    for declared in code_dependencies(stage):
        assert any((ROOT / declared) in (file, *file.parents) for file in used), declared


@pytest.mark.parametrize("stage", STAGES)
def test_code_dependencies_are_packages_but_for_modules_that_stages_share(stage):
    modules = {path for path in code_dependencies(stage) if path.endswith(".py")}
    shared = ("pipeline/params/", "pipeline/formats/", "pipeline/stages/", "pipeline/__main__.py")
    assert not {path for path in modules if not path.startswith(shared)}


def test_what_training_does_not_use_is_no_dependency_of_it():
    """So that to change it, or anything that stands above it, leaves the base model fresh."""
    packages = {path for path in code_dependencies("train_base") if not path.endswith(".py")}
    assert packages <= {
        f"pipeline/{name}" for name in ("core", "data/log_store", "encoding", "model")
    }
    before = {path for path in code_dependencies("split") if not path.endswith(".py")}
    assert before <= packages


@pytest.mark.slow
def test_dvc_leaves_the_base_model_fresh_where_other_code_changes(tmp_path):
    """Asked of DVC itself, in a copy with a lock that was committed and not run."""
    for name in ("dvc.yaml", "params.yaml", ".dvcignore", "pipeline"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    for folder in ("data", "artifacts/split", "artifacts/base"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part").write_text(folder)

    def dvc(*words: str) -> str:
        command = [Path(sys.executable).parent / "dvc", *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    dvc("init", "--no-scm")
    dvc("commit", "--force", "train_base")
    used = {file.relative_to(ROOT) for file in code_of(ROOT, "train_base")}
    for file in (tmp_path / "pipeline").rglob("*.py"):
        if file.relative_to(tmp_path) not in used:
            file.write_text(file.read_text() + "# touched\n")
    assert dvc("status", "--json", "train_base").strip() == "{}"
    (tmp_path / "pipeline/model/network.py").write_text("# touched\n")
    assert "pipeline/model" in dvc("status", "--json", "train_base")


def test_the_model_names_the_code_of_every_stage_that_made_it():
    """Its lineage is the code that merge depends on: else it would name code that is not used."""
    named = set(code_of(ROOT, "merge"))
    for stage in ("split", "train_base", "score", "tabulate", "calibrate"):
        assert set(code_of(ROOT, stage)) <= named, stage


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_writes_under_data(stage):
    written = DAG[stage].get("outs", []) + [next(iter(m)) for m in DAG[stage].get("metrics", [])]
    assert all(path.startswith(("artifacts/", "reports/")) for path in written)


def test_every_stage_depends_on_the_check_before_it():
    assert "reports/validation.json" in DAG["split"]["deps"]
    assert "reports/tables.json" in DAG["calibrate"]["deps"]
    assert {"reports/tables.json", "reports/evaluation.json"} <= set(DAG["gate"]["deps"])


def test_no_parameter_has_a_name_that_dvc_keeps_for_itself():
    """DVC leaves keys named like its own out of the run cache's key: a change would go unseen."""
    sections = read_params(ROOT / "params.yaml").model_dump(by_alias=True)
    assert not {"size", "nfiles", "md5", "hash", "path"} & {k for s in sections.values() for k in s}


def test_byte_code_is_no_dependency():
    assert "__pycache__/" in (ROOT / ".dvcignore").read_text().split()


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
}


@pytest.mark.parametrize(
    "code",
    [
        "import adacalib",
        "import pipeline",
        "import pipeline.cli.main",
        "import pipeline.params.params_file",
        "import pipeline.params.sections",
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
