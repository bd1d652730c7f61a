"""adacalib …: what people call. Every command imports what it needs when it runs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import AdaCalibError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Yesterday's ad logs in, today's field-calibrated model out, with the evidence.",
)


@app.command()
def data(
    log_format: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="flights, obd, simulated; or a mapping, with SOURCE"),
    ],
    sources: Annotated[list[Path] | None, typer.Argument(metavar="[SOURCE]...")] = None,
    *,
    limit_days: Annotated[
        int | None, typer.Option(min=1, help="SOURCE: only its first so many days")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="simulated: impressions in all")] = None,
    days: Annotated[int | None, typer.Option(help="simulated: number of days")] = None,
    field_values: Annotated[int | None, typer.Option(help="simulated: number of items")] = None,
    seed: Annotated[int | None, typer.Option(help="simulated: seed")] = None,
) -> None:
    """Bring a log into data/, a folder a day, and into DVC's cache; nothing is done where it fits.

    Files of a log (CSV, .gz, .zst, Parquet) are read by a mapping, one that ships or a YAML file of
    yours: docs/data.md. Their days take the place of days of the same name, other days stay. Where
    log.event_id of params.yaml names a column, an event that comes twice in a day counts once.

    Examples: adacalib data flights; adacalib data avazu train.gz; adacalib data my.yaml day.csv
    """
    from pipeline.data.formats import land_sources
    from pipeline.data.landing import Roles
    from pipeline.model.progress import WorkProgress
    from pipeline.params import read_params
    from pipeline.release.registry import commit_data

    options = {"rows": rows, "days": days, "field_values": field_values, "seed": seed}
    given = {name: value for name, value in options.items() if value is not None}
    if sources and given:
        raise typer.BadParameter(f"{sorted(given)} are for simulated alone")
    if sources:
        log = read_params().log
        roles = Roles(log.format, log.event_id, log.label)
        size = sum(path.stat().st_size for path in sources if path.is_file())
        with WorkProgress("read", size, "bytes") as progress:
            typer.echo(
                land_sources(
                    log_format, Path("data"), sources, limit_days, progress.advance, roles=roles
                )
            )
    else:
        _land(log_format, **given)
    commit_data(Path())


def _land(log_format: str, **size: int) -> None:
    """Bring a log that needs no files into data/, and say what there is."""
    from pipeline.data.formats import expected_rows, land
    from pipeline.model.progress import WorkProgress

    with WorkProgress("made", expected_rows(log_format, **size), "rows") as progress:
        typer.echo(land(log_format, Path("data"), progress.advance, **size))


@app.command()
def demo(
    example: Annotated[str, typer.Argument(help="flights, simulated, obd …")] = "flights",
) -> None:
    """Bring a log, run the whole pipeline on it, and show the result and the verdict.

    flights runs in this folder; the others in demo/EXAMPLE, a copy with its own params.yaml.
    """
    import os

    from pipeline.params import read_params
    from pipeline.release.registry import commit_data, reproduce
    from pipeline.workspace import prepare

    os.chdir(prepare(example))
    _land(read_params().log.format)
    commit_data(Path())
    reproduce(None, Path())
    results()


@app.command()
def results() -> None:
    """Show the last evaluation and the verdict."""
    from pipeline.report.terminal import show_results

    show_results(Path())


@app.command()
def promote() -> None:
    """Make the model of this folder the production model, if its verdict allows it."""
    from pipeline.release.promotion import promote as promote_model

    typer.echo(promote_model(Path()))


@app.command()
def rollback(
    version: Annotated[str | None, typer.Argument(help="for example v0.0.2")] = None,
) -> None:
    """Put an earlier version back into production: the one before this one, or the one named."""
    from pipeline.release.promotion import rollback as roll_back

    typer.echo(roll_back(Path(), version))


@app.command()
def status() -> None:
    """Say what is in production, since when and why, and what the last verdict was."""
    from pipeline.release.promotion import status as release_status

    typer.echo(release_status(Path()))


Model = Annotated[Path, typer.Option(help="folder of a checkpoint")]


@app.command()
def score(
    source: Annotated[Path, typer.Argument(metavar="IN.parquet")],
    target: Annotated[Path, typer.Argument(metavar="OUT.parquet")],
    model: Model = Path("artifacts/model"),
    threads: Annotated[int, typer.Option(help="0: as many as there are cores")] = 0,
) -> None:
    """Score the rows of a Parquet file, in their order."""
    from pipeline.serving.offline import score_file
    from pipeline.serving.predictor import load

    typer.echo(score_file(load(model, threads), source, target))


@app.command()
def serve(
    model: Model = Path("artifacts/model"),
    host: str = "127.0.0.1",
    port: int = 8080,
    max_rows: Annotated[int, typer.Option(help="of one request")] = 10_000,
    max_bytes: Annotated[int, typer.Option(help="of one request")] = 4 << 20,
) -> None:
    """Score over HTTP (/score, /health, /metrics); a model promoted into the folder takes over."""
    from pipeline.serving.app import Limits
    from pipeline.serving.app import serve as serve_folder

    serve_folder(model, host, port, Limits(max_bytes, max_rows))


@app.command()
def triton(
    target: Annotated[Path, typer.Argument(metavar="REPOSITORY")],
    model: Model = Path("artifacts/model"),
) -> None:
    """Lay the model out as a repository for the Triton inference server."""
    from pipeline.release.triton import triton_repository

    typer.echo(f"tritonserver --model-repository {triton_repository(model, target)}")


def main() -> None:
    """Run the command line; a refusal is one sentence on stderr and exit code 1."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    try:
        app()
    except AdaCalibError as error:
        if debug:
            raise
        sys.exit(f"adacalib: {error}")


if __name__ == "__main__":
    main()
