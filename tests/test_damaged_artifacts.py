"""What a stage reads of another stage, and what was damaged since, ends in one sentence."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.__main__ import run_stage
from pipeline.core.errors import AdaCalibError
from tests.whole_walk import DAYS, PATHS, project, walk

OUTPUTS = {"evaluate": 2}  # of a stage's paths so many, the last ones, are its own; else one


def days() -> dict[str, pa.Table]:
    """Clicks on six items."""
    rng = np.random.default_rng(0)
    found = {}
    for day in DAYS:
        price, item = rng.normal(size=200), rng.choice(list("abcdef"), 200)
        click = rng.random(200) < 1 / (1 + np.exp(1 - price - (item == "a")))
        found[day] = pa.table(
            {"item": item.tolist(), "price": price, "click": click.astype("int8")}
        )
    return found


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    """A project after its stages; never left changed."""
    folder = project(tmp_path_factory.mktemp("walked") / "it", days(), log__numeric=["price"])
    return walk(folder, "report")


def damaged(file: Path) -> dict[str, bytes | None]:
    """What becomes of a file, by what happened to it; None: a folder stands in its place."""
    whole = file.read_bytes()
    if file.suffix != ".json":
        return {"cut short": whole[: len(whole) // 2], "empty": b"", "a folder": None}
    (said,) = found if isinstance(found := json.loads(whole), list) else (found,)
    name = min(said)
    less = {key: value for key, value in said.items() if key != name}
    return {
        "cut short": whole[: len(whole) // 2],
        "a folder": None,
        "nothing": b"{}",
        "a list": b"[]",
        "null": b"null",
        "without a key": json.dumps(less).encode(),
        "another type": json.dumps(said | {name: 3.5}).encode(),
        "of something else": b'{"made_of": {}}',
    }


def one_of_a_kind(place: Path) -> list[Path]:
    """Files of an output to damage; of those of days, which are read alike, the last one."""
    files = [place] if place.is_file() else sorted(f for f in place.rglob("*") if f.is_file())
    kinds = {file.parent if file.name.startswith("day=") else file: file for file in files}
    return [
        file
        for file in kinds.values()
        if file.name != "gate.json" and file.suffix in (".json", ".parquet")
    ]


def sentence_of(stage: str, paths: list[Path], params: Path) -> str:
    """What a stage refuses with, empty where it does not."""
    try:
        run_stage(stage, paths, params)
    except AdaCalibError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage for stage in PATHS if stage not in ("validate", "gate")])
def test_a_damaged_input_is_refused_by_name_or_not_read(walked, tmp_path, stage):
    """`gate.json`, whose every key DVC shows, has no sum; a folder of days is landing's matter."""
    n_own = OUTPUTS.get(stage, 1)
    inputs, own = PATHS[stage][:-n_own], PATHS[stage][-n_own:]
    paths = [*(walked / path for path in inputs), *(tmp_path / path.name for path in own)]
    refused = []
    for place in (walked / path for path in inputs if path.parts[0] != "data"):
        for file in one_of_a_kind(place):
            whole = file.read_bytes()
            for content in damaged(file).values():
                file.unlink()
                file.mkdir() if content is None else file.write_bytes(content)
                refused.append(sentence_of(stage, paths, walked / "params.yaml"))
                file.rmdir() if content is None else file.unlink()
                file.write_bytes(whole)
    refused = [sentence for sentence in refused if sentence]
    assert len(refused) >= 7
    assert all("dvc" in sentence or "adacalib" in sentence for sentence in refused)
    assert not [sentence for sentence in refused if "\n" in sentence]
