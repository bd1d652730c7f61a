"""Stages that take no time: python cheap.py STAGE OUTPUT…, in a project made by conftest.py.

Where CHEAP_MARK names a file, merge writes its process id there and sleeps with half its output
written.
"""

import json
import os
import sys
import time
from pathlib import Path

from ruamel.yaml import YAML

from pipeline.core.files import sha256_of, write_checksums

# The project's params and report are not imported: many tests run these, each in a process.


def params(section: str) -> dict:
    """A section of params.yaml."""
    return YAML(typ="safe").load(Path("params.yaml"))[section]


def verdict(last_day: str) -> dict:
    """A verdict that is no where params.yaml asks for many test responses."""
    passed = params("gate")["min_test_responses"] <= 1000
    sentence = f"the test days have 1000 responses, {'enough' if passed else 'too few'}"
    check = {"name": "test responses", "value": 1000, "limit": 0, "passed": passed}
    return {
        "passed": passed,
        "verdict": "pass" if passed else "refuse",
        "reasons": [] if passed else [sentence],
        "checks": [check | {"sentence": sentence}],
        "last_day": last_day,
        "model_sha256": sha256_of(Path("artifacts/model/manifest.json")),
    }


def main() -> None:
    """Write the outputs of a stage; a label called `unheard_of` is what validate refuses."""
    stage, output = sys.argv[1], Path(sys.argv[2])
    output.parent.mkdir(parents=True, exist_ok=True)
    print(f"{stage} is at work with {os.environ.get('CHEAP_TOKEN')}", flush=True)
    if stage == "validate":
        if params("log")["label"] == "unheard_of":
            sys.exit("validate: no column unheard_of on day 2013-01-01; land the day again")
        output.write_text(json.dumps({"last_day": params("split")["last_day"]}))
        return
    last_day = json.loads(Path("reports/validation.json").read_text())["last_day"]
    if stage == "merge":
        output.mkdir()
        (output / "weights.txt").write_text(last_day[:4])
        if mark := os.environ.get("CHEAP_MARK"):
            Path(mark).write_text(str(os.getpid()))
            time.sleep(120)
        (output / "weights.txt").write_text(last_day)
        write_checksums(output, {"last_day": last_day})
    else:  # with the evaluation, as each stage is a process of DVC's more
        output.write_text(json.dumps(verdict(last_day)))
        metrics = json.loads(Path("metrics.json").read_text()) | {"logloss": 0.25, "auc": 0.75}
        evaluation = {"last_day": last_day, "methods": {"model": metrics}}
        Path(sys.argv[3]).write_text(json.dumps(evaluation))


if __name__ == "__main__":
    main()
