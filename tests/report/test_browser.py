"""The page in a real browser: pictures render, search and sort work, everything can be reached."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from pipeline.report.charts import drawing_script
from pipeline.report.trend import TREND, trend_rows, write_trend
from tests.report.test_trend import refreshed
from tests.report.worlds import page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = (
    "overall",
    "days",
    "ages",
    "forest",
    "value-reliability",
    "value-curves",
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    """One Chromium for the module."""
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """The page on disk."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(vega=drawing_script()))
    return path


NARROW_TOO = pytest.mark.parametrize("opened", [(1440, "light"), (390, "dark")], indirect=True)


@contextmanager
def open_page(browser, report, width: int, scheme: str) -> Iterator["playwright.Page"]:
    """The page as a person has it open; any complaint of the browser fails the test."""
    window = browser.new_page(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        timezone_id="America/Los_Angeles",  # where the names of days are read as the day before
    )
    said: list[str] = []
    window.on("console", lambda message: said.append(message.text))
    window.on("pageerror", lambda error: said.append(str(error)))
    window.on("request", lambda asked: said.append(asked.url) if asked.url[:4] == "http" else None)
    window.goto(report.as_uri())
    window.wait_for_selector("#value-curves svg")
    yield window
    window.close()
    assert said == []


@pytest.fixture(scope="module")
def opened(request, browser, report) -> Iterator["playwright.Page"]:
    """A page that tests look at, and leave as it is."""
    with open_page(browser, report, *getattr(request, "param", (1440, "light"))) as window:
        yield window


@pytest.fixture
def used(browser, report) -> Iterator["playwright.Page"]:
    """A page that a test does something to."""
    with open_page(browser, report, 1440, "light") as window:
        yield window


def names(window) -> list[str]:
    """The field values that the table shows, from the top."""
    return window.locator("#values tbody th").all_inner_texts()


@NARROW_TOO
def test_every_picture_renders_and_the_page_is_not_wider_than_the_window(opened, tmp_path):
    """What it looked like, light and dark, is kept in the folder ADACALIB_SCREENSHOTS."""
    for place in PICTURES:
        drawn = opened.locator(f"#{place} svg")
        assert drawn.count() == 1, place
        assert drawn.bounding_box()["width"] > 200, place
        assert opened.locator(f"#{place} svg path").count() > 3, place
        clipped = f"""() => [...document.querySelectorAll('#{place} svg text')].filter(
            text => text.getBoundingClientRect().right > innerWidth).map(t => t.textContent)"""
        assert opened.evaluate(clipped) == [], place
    assert "Dec 9" in opened.locator("#days svg").text_content()
    width = opened.viewport_size["width"]
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    shots = Path(os.environ.get("ADACALIB_SCREENSHOTS", tmp_path))
    dark = opened.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    for scheme in ("light", "dark") if dark else ("dark", "light"):  # its own last: it stays
        opened.emulate_media(color_scheme=scheme)
        opened.screenshot(path=shots / f"report-{width}-{scheme}.png", full_page=True)


def test_search_sort_and_pick_work_by_keyboard(used):
    assert names(used)[0] == "B / 2"
    used.locator("#values thead th[data-key=impressions] button").press("Enter")
    assert names(used)[-1] == "B / 2"
    used.locator("#search").press_sequentially("PLAIN")
    assert names(used) == ["plain"]
    assert "1 of 1 shown" in used.locator("#found").inner_text()
    used.locator("#values tbody button").press("Enter")
    assert used.locator("#picked").inner_text() == "plain"
    assert used.locator("#values tbody button").get_attribute("aria-pressed") == "true"


def test_field_values_are_sorted_by_the_money_at_stake_where_it_is_known(browser, tmp_path):
    worth = pd.DataFrame({"expected": [0.0, 5.0, 9.5, 1.0], "observed": [0.0, 1.0, 1.0, 20.25]})
    (tmp_path / "report.html").write_text(page(vega=drawing_script(), worth=worth))
    opened = browser.new_page()
    opened.goto((tmp_path / "report.html").as_uri())
    opened.locator("#values thead th[data-key=stake] button").click()
    assert opened.locator("#values tbody td:last-child").all_inner_texts() == ["8.5", "4", "-19.25"]


def test_the_button_says_how_many_more_it_shows(used):
    press = used.locator("#more")
    assert press.is_hidden()
    used.evaluate("state.shown = 2; showTable()")
    assert press.inner_text() == "Show 1 more"
    press.click()
    assert press.is_hidden()
    assert len(names(used)) == 3


def test_no_table_needs_a_scroll_bar_in_a_wide_window(opened):
    wider = "t => t.filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
    assert opened.locator(".wide").evaluate_all(wider) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_the_trend_fits_the_window_and_is_kept_beside_the_report(browser, tmp_path, width):
    for day in ("2024-01-06", "2024-01-07", "2024-01-08"):
        refreshed(tmp_path, day)
    path = write_trend(tmp_path, trend_rows((tmp_path / TREND).read_text()))
    shots = Path(os.environ.get("ADACALIB_SCREENSHOTS", tmp_path))
    for scheme in ("light", "dark"):
        window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        window.goto(path.as_uri())
        assert window.evaluate("document.documentElement.scrollWidth") <= width
        window.screenshot(path=shots / f"trend-{width}-{scheme}.png", full_page=True)
        window.close()


@pytest.mark.parametrize("opened", [(390, "light")], indirect=True)
def test_a_table_wider_than_a_phone_says_that_it_scrolls(opened):
    unsaid = "t => t.filter(e => (e.scrollWidth > e.clientWidth) !== e.matches('.scrolls')).length"
    assert opened.locator(".wide.scrolls").count() > 0
    assert opened.locator(".wide").evaluate_all(unsaid) == 0


def test_a_name_from_the_log_is_shown_as_it_is_spelled(opened):
    assert '<b>"A"$_{$</b></script>' in names(opened)


def test_the_worst_field_values_can_be_drawn_instead_of_the_largest(used):
    before = used.locator("#forest svg").inner_html()
    used.locator("input[value=worst]").check()
    used.wait_for_timeout(300)
    assert used.locator("#forest svg").count() == 1
    assert used.locator("#forest svg").inner_html() != before


def test_everything_that_acts_can_be_reached_by_the_tab_key(used):
    acting = used.locator("button:visible, input:visible").count()
    reached = set()
    for _ in range(acting + 20):
        used.keyboard.press("Tab")
        reached.add(used.evaluate("document.activeElement.outerHTML"))
    buttons = [html for html in reached if html.startswith("<button")]
    assert len(buttons) == used.locator("button:visible").count()
    assert any('id="search"' in html for html in reached)


@NARROW_TOO
def test_words_stand_out_from_the_page(opened):
    """WCAG 2.1, 1.4.3: contrast of at least 4.5 : 1."""
    ratio = """name => {
        const style = getComputedStyle(document.documentElement);
        const box = document.createElement('i'); document.body.append(box);
        const light = (colour) => {
            box.style.color = colour;
            const parts = getComputedStyle(box).color.match(/[\\d.]+/g).slice(0, 3)
                .map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
            return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2];
        };
        const colours = [name, '--paper'].map(n => light(style.getPropertyValue(n)));
        const [a, b] = colours.sort((x, y) => y - x);
        box.remove();
        return (a + .05) / (b + .05);
    }"""
    for ink in ("--ink", "--faint", "--good", "--bad"):
        assert opened.evaluate(ratio, ink) >= 4.5, ink


def test_an_axis_of_nearly_equal_predictions_has_ticks_too(opened):
    rates = """() => ticks([{predicted: -2.55}, {predicted: -2.3}], ["predicted"], [-3, -2.2])
        .map(tick => +(1 / (1 + Math.exp(-tick))).toFixed(6))"""
    between = [rate for rate in opened.evaluate(rates) if 0.0725 < rate < 0.0911]
    assert between == [0.08, 0.09]
