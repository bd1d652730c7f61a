"""gate: table checks, evaluation and model → reports/gate.json. A no is a fact, not a failure."""

from dataclasses import asdict
from pathlib import Path

from pipeline.checkpoint.serving_table import falls, read_table
from pipeline.core.files import MANIFEST, read_json, refuse_others, sha256_of, verify, write_json
from pipeline.gate.deployed import from_table
from pipeline.gate.judge import compared, judge
from pipeline.params.sections import GateParams


def run(tables: Path, evaluation: Path, model: Path, report: Path, *, params: GateParams) -> None:
    """Write the verdict on a model, with the model's sha256 and the last day it was tested on.

    The map is proved not to fall on its knots, and the deployed file to be that map score by score.

    Raises:
        ArtifactError: a report or the model is missing or damaged, or another model was evaluated.
    """
    manifest = verify(model)
    field_values = manifest["base"]["field"]["values"]
    measured = read_json(evaluation)
    refuse_others(evaluation, {"model": model})
    table = read_table(model, len(field_values))
    fallen, parity = falls(table, field_values), from_table(model, table)
    checked, about = read_json(tables), manifest["calibrator"]
    verdict = judge(checked, measured, params, calibrator=about, falls=fallen, parity=parity)
    write_json(
        report,
        {
            "passed": verdict.passed,
            "verdict": "pass" if verdict.passed else "refuse",
            "reasons": verdict.reasons,
            "checks": [asdict(check) for check in verdict.checks],
            "model_sha256": sha256_of(model / MANIFEST),
            "last_day": measured.get("last_day"),
            "metrics": compared(measured),
        },
    )
