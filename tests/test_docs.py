"""The documentation builds, and what it tells people to type exists and works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
import typer

from pipeline.cli.main import app
from pipeline.params.params_file import STAGES
from tests.checkpoint.parts import rows
from tests.serving.conftest import make_model
from tests.source_tree import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON = [
    pytest.param(found["text"], id=f"{page.name}-{n}")
    for page in PAGES
    for n, found in enumerate(BLOCK.finditer(page.read_text()))
    if found["kind"] == "python"
]


def typed(program: str) -> list[tuple[str, list[str]]]:
    """What pages ask people to type, by page: the words after the name of a program."""
    pattern = re.compile(rf"(?:^|`|\s{{4}}){program} ([^`\n|#]+)", re.MULTILINE)
    return [
        (page.name, shlex.split(found[1].split(";")[0].replace("…", ""), posix=True))
        for page in PAGES
        for found in pattern.finditer(page.read_text())
        if not found[1].startswith("…")
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and rows, as after a run."""
    folder = tmp_path_factory.mktemp("place")
    make_model(folder / "artifacts", seed=0)
    pq.write_table(rows(5), folder / "impressions.parquet")
    return folder


@pytest.mark.parametrize("code", PYTHON)
def test_python_blocks_run(code, place, monkeypatch):
    monkeypatch.chdir(place)
    exec(compile(code, "docs", "exec"), {})


def test_every_command_and_option_that_is_shown_exists():
    commands = typer.main.get_command(app)
    assert isinstance(commands, click.Group) or hasattr(commands, "commands")
    shown = [words for _, words in typed("adacalib") if words and words[0].isalpha()]
    assert len(shown) > 10
    for words in shown:
        command = commands.commands.get(words[0])
        assert command, f"adacalib {words[0]} is shown and does not exist"
        options = {name for parameter in command.params for name in parameter.opts}
        used = {word.split("=")[0].strip("[]") for word in words if word.startswith(("--", "[--"))}
        assert used <= options | {"--help", "--debug"}, words


def test_every_stage_and_module_that_is_shown_exists():
    for page, words in typed(r"python -m"):
        if words[0] == "pipeline":
            assert words[1] in (*STAGES, "STAGE"), (page, words)
        else:
            place = ROOT / words[0].replace(".", "/")
            known = place.with_suffix(".py").exists() or place.is_dir() or words[0] == "pytest"
            assert known, (page, words)


def test_the_reference_of_params_is_made_from_the_code():
    made = subprocess.run(
        [sys.executable, "-c", "import runpy; print(runpy.run_path('docs/params.py')['page']())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.rstrip("\n")
    written = (ROOT / "docs/params.md").read_text().rstrip("\n")
    assert written == made, "run: python docs/params.py"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    mkdocs = Path(sys.executable).parent / "mkdocs"
    command = [mkdocs, "build", "--quiet", "--strict", "--site-dir", tmp_path / "site"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    outside = re.findall(
        r'<(?:script|link)[^>]+(?:src|href)="(http[^"]+)',
        (tmp_path / "site/index.html").read_text(),
    )
    assert [link for link in outside if 'rel="canonical"' not in link] == []
