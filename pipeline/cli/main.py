"""adacalib …: what people call. Every command imports what it needs when it runs."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli import release
from pipeline.cli.console import Voice, answer, columns_of, note
from pipeline.core.errors import AdaCalibError, masked
from pipeline.core.signals import interrupt_on_signals

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 refused (one sentence on stderr says why), 2 wrong usage. "
    "--debug shows where a refusal comes from.",
)


ANYWHERE = ("score", "serve", "triton")


@app.callback()
def voice(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no answer, no progress")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the answer as a JSON object")] = False,
) -> None:
    """Yesterday's ad logs in, today's field-calibrated model out, with the evidence."""
    Voice.quiet, Voice.as_json = quiet, as_json
    if quiet:
        os.environ["ADACALIB_QUIET"] = "1"  # for the programs that are started, too
    alone = context.invoked_subcommand in ANYWHERE or "--help" in sys.argv
    if not (alone or (Path("dvc.yaml").is_file() and Path(".dvc").is_dir())):
        raise AdaCalibError(
            f"{Path().absolute()} is no project (dvc.yaml or .dvc is missing); run this in the "
            "folder of a clone; nothing was written"
        )


@app.command()
def data(
    log_format: Annotated[
        str,
        typer.Argument(metavar="FORMAT", help="flights, obd, simulated; or a mapping, with SOURCE"),
    ],
    sources: Annotated[list[str] | None, typer.Argument(metavar="[SOURCE]...")] = None,
    *,
    allow_shrink: Annotated[
        bool, typer.Option("--allow-shrink", help="SOURCE: take the place of landed days")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(help="SOURCE: the day up to which labels are known; by default the newest"),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, max=10**9, help="simulated: in all")] = None,
    days: Annotated[int | None, typer.Option(min=1, max=3660, help="simulated")] = None,
    field_values: Annotated[int | None, typer.Option(min=1, max=10**7, help="simulated")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="simulated: seed")] = None,
) -> None:
    """Bring a log into data/, a folder a day, and into DVC's cache; nothing is done where it fits.

    Files of a log (CSV, JSON lines, Parquet) are read by a mapping, one that ships or a YAML file
    of yours: docs/data.md. Rows that come for a day that has landed are merged with it, by
    log.event_id of params.yaml, by which an event counts once a day, else by the file they came
    from; what would take rows from a day is refused, unless --allow-shrink says otherwise.

    Examples: adacalib data flights; adacalib data avazu train.gz; adacalib data my.yaml day.csv
    """
    from pipeline.data.ingest.sources import land, land_sources, local_files
    from pipeline.data.log_store.landing import LandingOptions, one_by_one
    from pipeline.engine.day_map import map_days, processes
    from pipeline.formats.champion import start_pin
    from pipeline.params.params_file import read_params
    from pipeline.registry.tools.dvc import commit_data

    size = {"rows": rows, "days": days, "field_values": field_values, "seed": seed}
    given = {name: value for name, value in size.items() if value is not None}
    if sources and given:
        raise typer.BadParameter(f"{sorted(given)} are for simulated alone")
    log = read_params().log
    if sources:
        columns = log.format, log.event_id, log.label, log.impressions
        options = LandingOptions(*columns, as_of, allow_shrink)
        with local_files(sources) as files:
            over = map_days if processes() else one_by_one
            answer(land_sources(log_format, Path("data"), files, options, over))
    else:
        answer(land(log_format, Path("data"), **given))
    commit_data(Path())
    start_pin(Path())


@app.command()
def init(
    sources: Annotated[list[str], typer.Argument(metavar="FILE...")],
    *,
    name: Annotated[str, typer.Option(help="of the log; by default of the first file")] = "",
) -> None:
    """Look at files of a log, and write a mapping and a params.yaml to start from.

    NAME.yaml is the mapping, NAME.params.yaml the shipped params.yaml with the log's columns. What
    was chosen is said with the counts that speak for it, and what the files could not say.

    Example: adacalib init clicks.csv.gz; then adacalib data clicks.yaml clicks.csv.gz
    """
    from pipeline.cli.workspace import write_start
    from pipeline.data.ingest.first_mapping import first_mapping
    from pipeline.data.ingest.sources import as_pattern, local_files

    with local_files(sources) as files:
        stem = re.split(r"\.|[-_]\d", files[0].name)[0]  # without a day
        name = re.sub("[^a-z0-9_-]+", "-", (name or stem).lower()).strip("-_") or "log"
        found = first_mapping(files, name)
    written = write_start(name, found.mapping, found.params)
    said = [*found.found, *(f"not known: {what}" for what in found.unknown)]
    landed = shlex.join(["adacalib", "data", written[0], *as_pattern(sources)])
    away = "mv data ../data.before; " if Path("data").exists() else ""
    then = f"then: {away}mv {written[1]} params.yaml; {landed}; dvc repro"
    answer(
        "\n".join([*said, f"written: {' and '.join(written)}; read and correct them", then]),
        **{"written": written, "found": found.found, "unknown": found.unknown},
    )


@app.command()
def sql(
    table: Annotated[str, typer.Argument(help="its name in the warehouse")] = "logged_scores",
    *,
    dialect: Annotated[str, typer.Option(help="bigquery, snowflake, spark …")] = "duckdb",
    time: Annotated[str | None, typer.Option(help="column with instants, with a zone")] = None,
    date: Annotated[str | None, typer.Option(help="in its place: column with days")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="DAY", help="first day")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DAY", help="last day")] = None,
    cells: Annotated[int, typer.Option(min=1, help="to a nat of the logit")] = 32,
    mapping: Annotated[bool, typer.Option("--mapping", help="by which the result lands")] = False,
) -> None:
    """Print the query that counts logged scores where they are: an aggregated log comes out.

    The columns are those of `log:` in params.yaml, served_logit or served_probability among them.
    The dialects are bigquery, snowflake, spark, trino, duckdb and clickhouse.

    Examples: adacalib sql ads.served --dialect bigquery --time at; adacalib sql --mapping
    """
    from pipeline.data.warehouse import counted_mapping, counting_query
    from pipeline.params.params_file import read_params

    if (time is None) == (date is None) and not mapping:
        raise typer.BadParameter("exactly one of --time and --date says which day a row belongs to")
    log, days = read_params().log, (first, last)
    if mapping:
        answer(counted_mapping(log))
    else:
        answer(counting_query(table, dialect, log, time=time, date=date, days=days, cells=cells))


@app.command()
def drop(days: Annotated[list[str], typer.Argument(metavar="DAY...")]) -> None:
    """Take landed days out of data/; they come back when their files land again.

    Example: adacalib drop 2038-01-19
    """
    from pipeline.data.log_store.manifest import MANIFEST, read_manifest
    from pipeline.data.log_store.store import drop_days
    from pipeline.registry.tools.dvc import commit_data

    manifest = Path("data") / MANIFEST
    read_manifest(manifest)  # where it is damaged, nothing is noted
    try:
        rows = sum(entry.rows for entry in drop_days(Path("data"), days).values())
        holds = read_manifest(manifest).extent()
        answer(f"took out {', '.join(days)}: {rows:,} rows; data {holds}")
    finally:  # what an earlier one took out, too, that was killed before this
        commit_data(Path())


@app.command()
def demo(
    example: Annotated[str, typer.Argument(help="flights, simulated, obd …")] = "flights",
) -> None:
    """Bring a log, run the whole pipeline on it, and show the result and the verdict.

    flights runs in this folder; the others in demo/EXAMPLE, a copy with its own params.yaml.

    Examples: adacalib demo; adacalib demo simulated
    """
    from pipeline.cli.workspace import prepare
    from pipeline.data.ingest.sources import land
    from pipeline.params.params_file import read_params
    from pipeline.registry.tools.dvc import commit_data, reproduce

    os.chdir(prepare(example))
    note(land(read_params().log.format, Path("data")))
    commit_data(Path())
    reproduce(None, Path())
    results()


@app.command()
def results() -> None:
    """Show the last evaluation and the verdict, and whether anything was changed since.

    Examples: adacalib results; adacalib --json results
    """
    from pipeline.data.log_store.manifest import MANIFEST, read_manifest
    from pipeline.registry.staleness import changed_since
    from pipeline.report.result_tables import metric_table, read_results, result_lines

    found, changed = read_results(Path()), changed_since(Path())
    title, *lines = result_lines(found, changed)
    manifest, last = Path("data") / MANIFEST, found["gate"].get("last_day")
    newest = max(read_manifest(manifest).days, default="") if manifest.exists() else ""
    if last and newest > last:
        lines.append(f"data has days up to {newest}, results end {last} (split, log.maturity_days)")
    table = columns_of(metric_table(found["evaluation"]), numbers=True)
    answer("\n".join([title, table, *lines]), **found, changed_since=changed)


@app.command()
def doctor() -> None:
    """Look at everything that the next scheduled refresh needs; exit code 1 where a step is named.

    It writes one object into DVC's cache and remote, and removes it again.
    """
    from pipeline.cli.doctor import diagnoses

    found, names = list(diagnoses()), ("name", "ok", "said")
    lines = [f"{'ok  ' if good else 'MEND'}  {name}: {said}" for name, good, said in found]
    answer("\n".join(lines), checks=[dict(zip(names, entry, strict=True)) for entry in found])
    if not all(good for _, good, _ in found):
        raise typer.Exit(1)


@app.command()
def docs() -> None:
    """Build great-expectations' Data Docs of the bin tables, beside the report.

    They carry run times, so they are no output of a stage and not in DVC.
    """
    from pipeline.params.params_file import read_params
    from pipeline.stages.check_tables import build_docs

    artifacts, params = Path("artifacts"), read_params().check_tables
    folder = artifacts / "data_docs"
    index = build_docs(artifacts / "scores", artifacts / "tables", folder, params)
    answer(f"the checks of the bin tables: {index.resolve()}")


@app.command()
def backtest(
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="first origin")],
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="no origin after this day")],
    step: Annotated[int, typer.Option(min=1, help="days from one origin to the next")] = 7,
) -> None:
    """Run the pipeline as it would have run at each of several last days, and compare the results.

    It works in demo/backtest, a copy; this folder stays as it is. An origin that was run before is
    not run again. Exit code 1 where an origin was refused; a verdict of the gate is no refusal.

    Example: adacalib backtest --from 2013-08-05 --to 2013-10-28 --step 28
    """
    from pipeline.cli.backtest import run_backtest, table

    try:
        found = run_backtest(first, last, step, note)
    except KeyboardInterrupt:
        typer.echo("adacalib: stopped; the same command goes on where this one was", err=True)
        raise typer.Exit(130) from None
    answer(table(found), **found)
    refused = [origin for origin in found["origins"] if "refused" in origin]
    if refused:
        count = f"{len(refused)} of {len(found['origins'])} origins could not run"
        raise AdaCalibError(f"{count}, {refused[0]['origin']}: {refused[0]['refused']}")


@app.command()
def why() -> None:
    """Say what would run now, and because of which change."""
    from pipeline.params.params_file import read_params
    from pipeline.registry.staleness import why as staleness
    from pipeline.stages.split import kept_until

    params = read_params()  # says better than DVC what is wrong in params.yaml
    paths = Path("data/manifest.json"), Path("artifacts/split/training.json")
    try:
        trained_until = kept_until(*paths, params=params.split, log=params.log)
    except AdaCalibError:  # which the stage will say
        trained_until = None
    answer(staleness(Path(), trained_until))


app.add_typer(release.app)


def main() -> None:
    """Run the command line; a refusal is one sentence on stderr and exit code 1."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    interrupt_on_signals()
    try:
        app()
    except (AdaCalibError, OSError, ModuleNotFoundError) as error:
        if debug or str(getattr(error, "name", "")).startswith("pipeline"):
            raise
        sys.exit(f"adacalib: {masked(_sentence(error))}")


def _sentence(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        extra = next((e for e in ("serve", "pull", "online", "sql") if e in sys.argv), "pipeline")
        return (
            f"this command needs the package {error.name}, which is not installed; "
            f'pip install "adacalib[{extra}]" brings it'
        )
    if isinstance(error, OSError):  # a full disk, a place that cannot be
        return f"{error}; name another place, or make room there or give the right"
    return str(error)


if __name__ == "__main__":
    main()
