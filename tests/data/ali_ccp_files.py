"""Small files in exactly the format of Ali-CCP."""

from pathlib import Path

import pyarrow as pa

from pipeline.data.ingest.ali_ccp import land_files
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import read_manifest

Feature = tuple[str, str, float]


def spelled(features: list[Feature]) -> str:
    """feature_num,feature_list as the files have them."""
    listed = "\x01".join(f"{field}\x02{id_}\x03{value}" for field, id_, value in features)
    return f"{len(features)},{listed}"


def skeleton(number: int, click: int, conversion: int, index: str, features: list[Feature]) -> str:
    return f"{number},{click},{conversion},{index},{spelled(features)}\n"


def common(index: str, features: list[Feature]) -> str:
    return f"{index},{spelled(features)}\n"


ITEM = [("301", "9351665", 1.0), ("205", "4385603", 1.0), ("210", "8", 1.0), ("210", "07", 2.5)]
USER = [
    ("101", "31319", 1.0),
    ("122", "3864885", 1.0),
    ("109_14", "45", 2.39),
    ("109_14", "4", 1.1),
]
VISITS = [f"{number:016x}" for number in range(40)]
LINES = {
    "sample_skeleton_train.csv": "".join(
        skeleton(i, int(i % 3 == 0), int(i % 6 == 0), VISITS[i % 40], ITEM) for i in range(120)
    ),
    "common_features_train.csv": "".join(common(visit, USER) for visit in VISITS),
}


def files(folder: Path, lines: dict[str, str] = LINES) -> list[Path]:
    for name, text in lines.items():
        codec = "gzip" if name.endswith(".gz") else None
        with pa.output_stream(str(folder / name), compression=codec) as stream:
            stream.write(text.encode())
    return [folder / name for name in lines]


def rows_of(folder: Path) -> list[dict]:
    """All rows with their day, in the order of sample_id."""
    days = read_manifest(folder / "manifest.json").days
    rows = [{"day": day, **row} for day in days for row in read_day(folder, day).to_pylist()]
    return sorted(rows, key=lambda row: int(row["sample_id"]))


def dropped(folder: Path) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in read_manifest(folder / "manifest.json").days.values():
        for rule, count in entry.dropped.items():
            total[rule] = total.get(rule, 0) + count
    return total


def one_row(folder: Path, own: list[Feature], user: list[Feature]) -> dict:
    """The one row of a log of one impression."""
    folder.mkdir(exist_ok=True)
    lines = {
        "sample_skeleton_train.csv": skeleton(1, 1, 0, "ab", own),
        "common_features_train.csv": common("ab", user),
    }
    land_files(folder / "data", "ali-ccp", files(folder, lines))
    (row,) = rows_of(folder / "data")
    return row
