"""report: every report → artifacts/report/report.html and the plots beside it."""

from pathlib import Path

from pipeline.core.columns import read_parquet
from pipeline.core.files import publish, read_json
from pipeline.formats.maps import read_maps
from pipeline.params.sections import ReportParams
from pipeline.report.charts import drawing_script, plot_files
from pipeline.report.page import page_sums, pictured, render, specifications


def run(
    validation: Path,
    tables_check: Path,
    evaluation: Path,
    gate: Path,
    evaluation_sums: Path,
    calibrator: Path,
    model: Path,
    report: Path,
    *,
    params: ReportParams,
) -> None:
    """Write the page people read.

    Raises:
        ArtifactError: a report is missing or is not JSON.
    """
    paths = {"validation": validation, "tables": tables_check, "evaluation": evaluation}
    reports = {name: read_json(path) for name, path in (paths | {"gate": gate}).items()}
    manifest = read_json(model / "manifest.json")
    about = read_json(calibrator / "manifest.json")
    maps = read_maps(calibrator / "maps.parquet")
    names = ("counts", "reliability", *["worth"] * (evaluation_sums / "worth.parquet").exists())
    counts, bins, *worth = (
        read_parquet(evaluation_sums / f"{name}.parquet", "evaluate").to_pandas() for name in names
    )
    shown = pictured(reports["evaluation"], about["chosen"])
    carried = page_sums(
        counts,
        bins,
        maps,
        field_values=manifest["base"]["field"]["values"],
        chosen_bins=about.get("chosen_bins", []),
        listed=params.field_values,
        shown=shown,
        evaluation=reports["evaluation"],
        worth=worth[0] if worth else None,
    )
    specs = specifications(maps, shown)
    beside = plot_files(counts, bins, specs["reliability"])
    vega = drawing_script()
    page = render(reports, carried, specs, manifest=manifest, calibrator=about, vega=vega)
    with publish(report) as folder:
        folder.mkdir()
        for name, text in {"report.html": page, **beside}.items():
            (folder / name).write_text(text)
