"""What a refresh shows in Prefect: verdict, metrics, reliability, links to the pages."""

import base64
import sys
from pathlib import Path
from typing import Any

from prefect import artifacts
from prefect.logging import get_run_logger

from flows.worktree import git_output
from pipeline.core.errors import masked
from pipeline.core.files import publish, read_json
from pipeline.registry.history import name_page
from pipeline.registry.tools.programs import run_program
from pipeline.report.result_tables import gate_rows, metric_table
from pipeline.report.trend import TREND, shown_rows, trend_pictures, trend_rows, write_trend

REPORT = Path("artifacts/report")
TREND_DAYS = 60  # that Prefect's table shows
INK = "#888888"  # of pictures on Prefect's pages, light or dark
DATA_DOCS = Path("artifacts/data_docs/index.html")


def verdict_text(day: str, gate: dict[str, Any]) -> str:
    """The verdict of a day in Markdown: every question of the gate, what failed first.

    It is a list, as Prefect's pages cut the cells of a table.
    """
    verdict = "passed" if gate["passed"] else "refused"
    asked = [f"- {asks} **{answer}**: {why}" for asks, answer, _, why in gate_rows(gate)]
    return "\n".join([f"# {day}: {verdict}", "", *asked])


def picture(svg: str) -> str:
    """A picture as an address that holds it whole: Prefect's pages show no file of this machine."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def pages(day: str, folder: Path) -> str:
    """Links to the pages of a day in Markdown; their paths too, as browsers open no such link.

    The report is the day's own copy, as the next day writes another to the same place.
    """
    report, own = folder / REPORT / "report.html", Path(f"{REPORT}-{day}/report.html")
    if report.exists():
        with publish(folder / own) as copy:
            name_page(report, copy, day, git_output(folder, "rev-parse", "HEAD"))
    there = {"report": own, "Data Docs of the bin tables (the newest)": DATA_DOCS}
    found = {name: (folder / page).resolve() for name, page in there.items()}
    return "\n".join(
        f"- [{name}]({page.as_uri()}): `{page}`" for name, page in found.items() if page.exists()
    )


def build_data_docs(folder: Path) -> None:
    """Build Data Docs again beside the stages; a warning where that fails, for the day goes on."""
    built = run_program([sys.executable, "-m", "pipeline.cli.main", "docs"], folder)
    if built.code:
        get_run_logger().warning(f"no Data Docs: {built.output.strip()[-500:]}")


def show(day: str, folder: Path) -> None:
    """Make the artifacts of a day, which is committed, from the reports in a folder."""
    about = f"day {day}"
    gate = read_json(folder / "reports/gate.json")
    verdict = masked(verdict_text(day, gate))
    artifacts.create_markdown_artifact(verdict, key="verdict", description=about)
    evaluation = read_json(folder / "reports/evaluation.json")
    artifacts.create_table_artifact(metric_table(evaluation), key="metrics", description=about)
    reliability = folder / REPORT / "reliability.svg"
    if reliability.exists():
        address = picture(reliability.read_text())
        artifacts.create_image_artifact(address, key="reliability", description=about)
    artifacts.create_markdown_artifact(pages(day, folder), key=f"pages-{day}", description=about)


def show_trend(folder: Path) -> None:
    """Make the artifacts of the trend, and its page beside the report."""
    rows = trend_rows((folder / TREND).read_text())
    page = write_trend(folder, rows)
    artifacts.create_table_artifact(
        shown_rows(rows[-TREND_DAYS:]), key="trend", description=str(page)
    )
    address = picture(next(trend_pictures(rows, INK)))
    artifacts.create_image_artifact(
        address, key="trend-pcoc", description="PCOC of what served, by day"
    )
