"""The report says the verdict first, needs no network, and says undefined where a metric is."""

import json
import re

import pytest

from tests.report.worlds import page


@pytest.fixture(scope="module")
def text() -> str:
    """The page of a run that passed."""
    return page()


def markup(text: str) -> str:
    """The page without its scripts."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_verdict_comes_before_every_figure():
    refused = page(passed=False)
    assert refused.index("This model was refused") < refused.index("<table>")
    assert refused.index("too few responses to tell") < refused.index("<table>")


def test_the_page_loads_nothing_from_outside(text):
    links = re.findall(r'(?:src|href)="([^"]*)"', markup(text))
    assert {n for n in links if not n.startswith(("#", "data:"))} == {"../data_docs/index.html"}
    assert "@import" not in text
    assert re.findall(r"<script[^>]*src", text) == []


def test_equal_reports_give_equal_bytes(text):
    assert page() == text


def test_what_is_undefined_says_so():
    words = markup(page(field_rce=None, field_rce_low=None))
    assert "undefined" in words
    assert "None" not in words
    assert "nan" not in re.sub(r"<[^>]*>", "", words).lower().split()


def test_names_from_the_log_are_text_that_ends_no_script(text):
    carried = re.search(r'id="sums">(.*?)</script>', text, flags=re.DOTALL)
    assert carried
    assert '<b>"A"$_{$</b></script>' in json.loads(carried[1])["values"]["name"]
    assert "<b>" not in text


def test_the_page_says_what_the_evidence_is_about_what_age_costs_and_what_is_missing(text):
    words = " ".join(markup(text).split())
    assert words.index("<table>") < words.index("The evidence is about the procedure")
    assert "it has learned from days up to 2024-01-07" in words
    assert "<td>2</td><td>0.51000</td><td>0.50000</td>" in words
    assert "passed: pcoc (cannot tell)" in words
    assert "<dd>2024-01-04: all rows moved by -0.24</dd>" in words


def test_the_gates_intervals_stand_beside_the_drawn_bands_and_are_told_apart(text):
    words = markup(text)
    assert "<td>1.609</td><td>1.037 to 2.180</td>" in words
    assert "B / 2</th><td>undefined</td>" in words
    assert "it is wider, and it alone decides" in " ".join(words.split())


def test_field_values_beyond_the_limit_are_counted_not_listed(text):
    assert "field values with the fewest impressions are not listed" not in text
    carried = json.loads(re.findall(r'id="sums">(.*?)</script>', text, flags=re.DOTALL)[0])
    assert len(carried["values"]["id"]) == 3


def test_a_base_that_ships_as_it_is_is_said_so_and_drawn_once():
    text = page(chosen="identity")
    assert "drawn once" in markup(text)
    assert "drawn once" not in markup(page())
    carried = json.loads(re.findall(r'id="sums">(.*?)</script>', text, flags=re.DOTALL)[0])
    assert carried["pictured"] == ["model"]
    assert {row["method"] for row in carried["days"]} == {"what ships"}
