"""merge: base and calibrator → ONE checkpoint, published only if all its forms say the same."""

from pathlib import Path

from pipeline.checkpoint.bundle import export, lineage_of, load, merge
from pipeline.checkpoint.parity import prove_parity, runtimes_of
from pipeline.checkpoint.serving_table import falls
from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish, read_json, refuse_others
from pipeline.data.log_store.day_rows import read_days
from pipeline.formats.maps import read_maps
from pipeline.model.scoring import load_base
from pipeline.params.sections import MergeParams


def run(
    data: Path, split: Path, base: Path, calibrator: Path, model: Path, *, params: MergeParams
) -> None:
    """Publish the checkpoint after proving parity on rows of the newest day and around every knot.

    Raises:
        DataError: the newest test day is missing or damaged.
        ArtifactError: a part is missing or damaged, they were not made of one another, the
            checkpoint differs from its parts, or a calibrated logit falls somewhere; nothing is
            published then.
    """
    refuse_others(calibrator, {"split": split})
    days = read_json(split / "manifest.json")["parts"]["test"]
    with publish(model) as folder:
        lineage = lineage_of(split, base, calibrator, params.model_dump(mode="json"))
        merge(base, calibrator, folder, lineage)
        merged = load(folder)
        parts = load_base(base, merged.manifest["base"]["field"])
        fallen = falls(merged.serving_map, merged.field_values)
        if fallen:
            raise ArtifactError(f"{'; '.join(fallen[:3])}; run dvc repro calibrate")
        serving_map = read_maps(calibrator / "maps.parquet")[merged.manifest["map"]]
        rows = (table for _, table in read_days(data, days[-1:], parts.columns))
        export(merged, folder)
        forms = runtimes_of(folder, merged)
        prove_parity(forms, merged, parts, serving_map, rows, tolerance=params.parity_tolerance)
