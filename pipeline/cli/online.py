"""adacalib online: what a test of two randomised arms says."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.console import answer
from pipeline.core.errors import AdaCalibError

app = typer.Typer()
PAGE = Path("artifacts/online.html")
Texts = list[str] | None


@app.command()
def online(
    sources: Annotated[list[Path], typer.Argument(metavar="LOG...")],
    *,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="first day of the test")],
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="last, as fixed beforehand")],
    arm: Annotated[str | None, typer.Option(metavar="COLUMN", help="the arm that served")] = None,
    unit: Annotated[str | None, typer.Option(metavar="COLUMN", help="randomised: user …")] = None,
    control: Annotated[str | None, typer.Option(help="an arm, else the first by name")] = None,
    share: Annotated[Texts, typer.Option(help="[DAY=]SHARE of the treatment as planned")] = None,
    column: Annotated[
        Texts, typer.Option(help="MEANING=COLUMN: day, clicks, responses, value, price, cost")
    ] = None,
    probability: Annotated[
        Texts, typer.Option(help="COLUMN that served, or VERSION=COLUMN of each on all rows")
    ] = None,
    separate_budgets: Annotated[
        bool, typer.Option("--separate-budgets", help="no budget was spent by both arms")
    ] = False,
    page: Annotated[Path, typer.Option(help="where the page is written")] = PAGE,
) -> None:
    """Say what the treatment changed in a randomised test, and how well what served is calibrated.

    LOG are Parquet or CSV files, or folders; days before --from are the pre-period. Responses,
    impressions, field, time zone and label maturity are those of params.yaml. Without --unit no
    effect is claimed, and the calibration of versions on the same rows is what is left.

    Example: adacalib online test/ --arm arm --unit user --from 2026-03-02 --to 2026-03-29
    """
    from pipeline.core.files import finite_json
    from pipeline.online.analysis import analyse
    from pipeline.online.experiment_log import open_log
    from pipeline.params.params_file import read_params
    from pipeline.registry.history import columns_of
    from pipeline.report.page import headline, shown_tables, write_online_page

    log = read_params().log
    known = {"day": "day", "responses": log.label, "impressions": log.impressions}
    given = known | {"arm": arm, "unit": unit} | _pairs(column, "")
    versions = _pairs(probability, "as served")
    shares = [_share(*pair) for pair in _pairs(share or ["0.5"], first).items()]
    if shares[0][0] != _share(first, "0")[0]:
        raise AdaCalibError(
            f"the first --share is of {shares[0][0]}, not of --from {first}; add it"
        )
    opened = open_log(
        sources, {meaning: name for meaning, name in given.items() if name}, shares,
        _share(last, "0")[0], field=log.field if versions else (), versions=versions,
        control=control, maturity_days=log.maturity_days, time_zone=log.time_zone,
    )  # fmt: skip
    with opened.database:
        found = finite_json(analyse(opened, separate_budgets))
    write_online_page(page, found)
    tables = [f"{title}\n{columns_of(rows)}" for title, rows in shown_tables(found).items()]
    notes = [f"- {note}" for note in [*found["withheld"], *found["notes"]]]
    place = str(page.resolve())
    answer("\n".join([headline(found), *tables, *notes, f"page: {place}"]), **found, page=place)


def _pairs(texts: Texts, otherwise: str) -> dict[str, str]:
    """KEY=VALUE of each text by its key, `otherwise` where it has none."""
    found: dict[str, str] = {}
    for text in texts or []:
        key, _, value = text.rpartition("=")
        if found.setdefault(key or otherwise, value) != value:
            raise AdaCalibError(
                f"{key or otherwise!r} has two values, the second {text!r}; give one"
            )
    return found


def _share(day: str, share: str) -> tuple[date, float]:
    try:
        return date.fromisoformat(day), float(share)
    except ValueError:
        raise AdaCalibError(
            f"a day is YYYY-MM-DD and a share a number, got {day!r} and {share!r}; correct --from, "
            "--to or --share"
        ) from None
