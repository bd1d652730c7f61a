"""report: every report → artifacts/report/report.html."""

from pathlib import Path

import pandas as pd

from pipeline.files import publish, read_json
from pipeline.params import ReportParams
from pipeline.report.page import render


def run(
    validation: Path,
    tables: Path,
    evaluation: Path,
    gate: Path,
    evaluation_sums: Path,
    calibrator: Path,
    report: Path,
    *,
    params: ReportParams,
) -> None:
    """Write the page people read.

    Raises:
        ArtifactError: a report is missing or is not JSON.
    """
    sources = {"validation": validation, "tables": tables, "evaluation": evaluation, "gate": gate}
    manifest = read_json(evaluation_sums / "manifest.json")
    page = render(
        {name: read_json(path) for name, path in sources.items()},
        pd.read_parquet(evaluation_sums / "counts.parquet"),
        pd.read_parquet(evaluation_sums / "reliability.parquet"),
        field=" × ".join(manifest["field"]),
        field_values=manifest["field_values"],
        shipped=read_json(calibrator / "manifest.json")["chosen"],
        shown=params.field_values,
    )
    with publish(report) as folder:
        folder.mkdir()
        (folder / "report.html").write_text(page)
