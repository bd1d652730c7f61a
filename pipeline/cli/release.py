"""adacalib promote, pull, serve, online …: what people call once there is a model."""

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.console import answer, columns_of, note, versions_table
from pipeline.core.errors import AdaCalibError
from pipeline.serving.state import RequestLimits

app = typer.Typer()

Model = Annotated[Path, typer.Option(help="folder of a checkpoint")]
Texts = list[str] | None
ONLINE_PAGE = Path("artifacts/online.html")


@app.command()
def promote() -> None:
    """Make the model of this folder the production model, if its verdict allows it."""
    from pipeline.registry.promote import promote as promote_model

    answer(promote_model(Path()))


@app.command()
def override(
    reason: Annotated[str, typer.Option(help="why, in one line; it is committed with your name")],
) -> None:
    """Allow the promotion of a model that the gate refused; never if it is not what was measured.

    The verdict stays a no. reports/override.json says who overrode which checks of which model.

    Example: adacalib override --reason "the campaign ended, the mix is meant"
    """
    from pipeline.registry.verdicts import override as override_verdict

    answer(override_verdict(Path(), reason))


@app.command()
def champion(
    pin: Annotated[bool, typer.Option("--pin", help="pin what is in production now")] = False,
) -> None:
    """Bring the champion that champion.json pins: the model that this folder's is held against.

    It is the version that was in production when the run began; promotion does not move the pin.
    """
    from pipeline.registry.pull import fetch_champion, pin_champion

    answer(pin_champion(Path()) if pin else fetch_champion(Path()))


@app.command()
def rollback(
    version: Annotated[str | None, typer.Argument(help="for example v0.0.2")] = None,
) -> None:
    """Put an earlier version back into production: the one before this one, or the one named.

    Examples: adacalib rollback; adacalib rollback v0.0.2
    """
    from pipeline.registry.promote import rollback as roll_back

    answer(roll_back(Path(), version))


@app.command()
def pull(
    to: Annotated[Path, typer.Option(metavar="DIR", help="the folder that shows it")],
    remote: Annotated[str | None, typer.Option(help="another DVC remote than the default")] = None,
) -> None:
    """Make a folder of a serving host show what is in production; nothing is done where it does.

    Run in a clone of the project, which needs no data and no cache. Readers of DIR see one whole,
    verified version at any time; an older one comes by adacalib rollback alone.

    Example: adacalib pull --to serving/model; adacalib serve --model serving/model
    """
    from pipeline.registry.pull import pull as pull_version

    answer(pull_version(Path(), to, remote))


@app.command()
def status() -> None:
    """Say what is in production, since when and why, and what the last verdict was.

    And what the last refresh of this clone did, and why.
    """
    from pipeline.registry.history import last_refresh
    from pipeline.registry.history import status as release_status

    answer(f"{release_status(Path())}\n{last_refresh(Path())}")


@app.command()
def history() -> None:
    """Every version, newest first: days, verdict, who put it in production, from when to when."""
    from dataclasses import asdict

    from pipeline.registry.history import history as versions

    found = versions(Path())
    answer(versions_table(found), versions=[asdict(version) for version in found])


@app.command()
def report(
    which: Annotated[str | None, typer.Argument(metavar="[VERSION|DAY]")] = None,
    show: Annotated[bool, typer.Option("--open", help="open it in a browser")] = False,
) -> None:
    """Say where the report of a version or day is, after it was brought; else of the last run here.

    Examples: adacalib report; adacalib report v0.0.2; adacalib report 2013-09-30 --open
    """
    from pipeline.registry.history import report_of

    page = report_of(Path(), which).resolve()
    answer(str(page), report=str(page))
    if show:
        typer.launch(page.as_uri())


@app.command()
def trend(days: Annotated[int, typer.Option(min=1, help="so many, the newest")] = 14) -> None:
    """Show what each refreshed day made and how what served did on it, and write the charts.

    The rows are reports/trend.csv of the branch release, a row for each refreshed day.
    """
    from pipeline.registry.history import released
    from pipeline.report.trend import TREND, shown_rows, trend_rows, write_trend

    rows = trend_rows(released(Path(), TREND))
    page = write_trend(Path(), rows).resolve()
    shown = shown_rows(rows[-days:])
    answer(f"{columns_of(shown)}\ncharts: {page}", days=shown, charts=str(page))


@app.command()
def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="do it; without it nothing is removed")
    ] = False,
) -> None:
    """Say which bytes in DVC's cache and remote nobody needs any more, or remove them.

    The versions in production and before it, champions, worktrees and tips of branches stay; days
    and experiments that none of these name go. Tags and reports stay, too. What was made of single
    days and kept for the next run goes, too: the next run takes longer, and makes the same.
    """
    from dataclasses import asdict

    from pipeline.engine.reuse import forget
    from pipeline.registry.clean import clean as clean_stores

    found = clean_stores(Path(), really=yes)
    size = forget(Path("dvc.yaml"), really=yes) / 1e6
    note(f"{'removed' if yes else 'would remove'} {size:,.1f} MB that was made of single days")
    answer(str(found), **asdict(found))


@app.command()
def score(
    sources: Annotated[list[Path], typer.Argument(metavar="IN…")],
    target: Annotated[Path, typer.Argument(metavar="OUT")],
    *,
    model: Model = Path("artifacts/model"),
    keep: Annotated[list[str] | None, typer.Option(help="a column that travels along")] = None,
    threads: Annotated[int, typer.Option(min=0, help="0: as many as there are cores")] = 0,
) -> None:
    """Score the rows of Parquet or CSV files, in their order.

    The columns are the log's: field values and categories as text, numbers as numbers. One file
    gives one file, its format by its name; several, or a folder, give a new folder.

    Examples: adacalib score day.parquet scored.csv --keep event_id; adacalib score logs/ scored/
    """
    from dataclasses import asdict
    from functools import partial

    from pipeline.core.work import WorkProgress
    from pipeline.engine.day_map import map_days, processes
    from pipeline.serving.offline import files_of, score_files
    from pipeline.serving.predictor import load

    predictor, over = load(model), partial(map_days, title="score", unit="files")
    if processes():  # which are in other folders
        sources, target = [source.absolute() for source in sources], target.absolute()
    size = sum(file.stat().st_size for file in files_of(sources) if file.is_file())
    with WorkProgress("score", size, "bytes") as progress:
        counted = score_files(
            predictor, sources, target, keep=keep or (), threads=threads,
            report=progress.advance, over=over if processes() else None,
        )  # fmt: skip
    answer(str(counted), **asdict(counted))


@app.command()
def serve(
    model: Model = Path("artifacts/model"),
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="processes that answer")] = 1,
    max_rows: Annotated[int, typer.Option(min=1, help="of one request")] = RequestLimits.rows,
    max_bytes: Annotated[
        int, typer.Option(min=1, help="of one request")
    ] = RequestLimits.body_bytes,
    shadow: Annotated[
        Path | None, typer.Option(help="a second checkpoint: it sees requests, does not answer")
    ] = None,
    shadow_limit: Annotated[
        float, typer.Option(min=0.0, help="distance in calibrated logit that is counted")
    ] = 0.1,
) -> None:
    """Score over HTTP (/score, /health, /metrics, /openapi.json).

    A model promoted into the folder takes over, in processes of its own.

    Example: adacalib serve --port 8080
    """
    from pipeline.serving.workers import serve as serve_folder

    serve_folder(
        model, host, port, RequestLimits(max_bytes, max_rows),
        workers=workers, shadow=shadow, shadow_limit=shadow_limit, report=note,
    )  # fmt: skip


@app.command()
def triton(
    target: Annotated[Path, typer.Argument(metavar="REPOSITORY")],
    model: Model = Path("artifacts/model"),
) -> None:
    """Lay the model out as a repository for the Triton inference server.

    Example: adacalib triton models
    """
    from pipeline.serving.triton import triton_repository

    answer(f"tritonserver --model-repository {triton_repository(model, target)}")


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
    page: Annotated[Path, typer.Option(help="where the page is written")] = ONLINE_PAGE,
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
