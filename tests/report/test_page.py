"""The report says the verdict first, needs no network, and says undefined where a metric is."""

import json
import re

import pytest

from pipeline.registry.history import UNNAMED, name_page
from pipeline.report.result_tables import QUESTIONS, extent
from tests.gate.evidence import changed, good, verdict
from tests.report import worlds
from tests.report.worlds import page, reports


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
    assert {n for n in links if not n.startswith(("#", "data:"))} == {
        "../data_docs/index.html",
        "../trend.html",
    }
    assert "@import" not in text
    assert re.findall(r"<script[^>]*src", text) == []


def test_a_champion_of_another_log_is_named_with_why_it_was_not_compared(monkeypatch):
    made = reports()
    about = {"version": "v0.0.7", "last_day": "2026-01-01", "readable": False, "why": "other log"}
    made["evaluation"] |= {"champion": about}
    monkeypatch.setattr(worlds, "reports", lambda *_, **__: made)
    words = markup(page())
    assert "not compared" in words
    assert "cannot score the test days: other log" in words


def test_equal_reports_give_equal_bytes(text):
    assert page() == text


def test_the_commit_is_said_where_the_page_is_brought_by_version_or_day(text, tmp_path):
    (tmp_path / "report.html").write_text(text)
    pages = tmp_path / "report.html", tmp_path / "named.html"
    name_page(*pages, "v0.0.2", "0123456789abcdef", promoted=True)
    assert "; v0.0.2, commit 0123456789</dd>" in pages[1].read_text()
    assert UNNAMED in pages[0].read_text()
    nexts = [re.findall(r"Next command</span><strong>([^<]*)", each.read_text()) for each in pages]
    assert nexts == [["adacalib promote"], ["adacalib status"]]


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
    carried = json.loads(re.findall(r'id="sums">(.*?)</script>', text, flags=re.DOTALL)[0])
    assert carried["age"][1]["frozen"] == 0.51
    assert 'overall?</th><td class="pass">cannot tell</td>' in words
    assert "<dd>2024-01-04: all rows moved by -0.24</dd>" in words


def test_the_first_screen_has_before_and_after_the_model_and_the_next_command(text):
    top = markup(text).partition("<main>")[0]
    for said in ("1.010 → 1.010", "c0ffeec0ff", "none is pinned", "adacalib promote"):
        assert said in top
    assert "adacalib promote" not in markup(page(passed=False)).partition("<main>")[0]


def test_every_entry_of_the_contents_leads_somewhere(text):
    led = re.findall(r'<a\s+href="#([^"]+)"', text)
    assert len(led) > 5
    assert set(led) <= set(re.findall(r'<section id="([^"]+)"', text))


def test_every_question_of_the_gate_is_asked_in_words():
    checks = [*verdict(good()).checks, *verdict(changed("champion", None)).checks]
    assert {check.name for check in checks} == set(QUESTIONS)


def test_advice_stands_on_the_page_once():
    assert page(passed=False).count("too few responses to tell: 30 of 1,000") == 1


def test_a_sampled_log_is_counted_in_two_units_that_both_have_names():
    sampled = reports()["evaluation"] | {"before_sampling": {"impressions": 5000, "responses": 30}}
    assert extent(sampled) == "600 impressions kept, which stand for 5,000; 30 responses"
    assert extent(reports()["evaluation"]) == "600 impressions; 30 responses"


def test_field_values_that_changed_parents_are_counted_where_there_are_any():
    evaluation = reports()["evaluation"]
    few, some = ({"ids": 20, "moved": moved, "pairs": 0} for moved in (0, 3))
    assert extent(evaluation | {"parents": few}) == "600 impressions; 30 responses; 20 parents"
    assert "3 came under another parent" in extent(evaluation | {"parents": some})


def test_the_page_says_how_the_log_was_sampled(monkeypatch):
    rates = {"training": 0.1, "calibration": 0.2, "test": 1.0}
    sampled = worlds.MANIFEST | {"conventions": {"keep_rate": rates, "weight": None}}
    monkeypatch.setattr(worlds, "MANIFEST", sampled)
    assert "0.1 on training days, 0.2 on calibration days, 1 on test days" in " ".join(
        markup(page()).split()
    )


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


def test_a_choice_that_was_not_asked_for_is_said_to_decide_nothing(monkeypatch):
    assert "near tie" in markup(page())
    monkeypatch.setattr(worlds, "CALIBRATOR", worlds.CALIBRATOR | {"choose": "always"})
    assert "near tie" not in markup(page())


def test_the_page_says_how_late_labels_came(text):
    """Of days that were landed more than once; an age without responses has no share."""
    assert "were known: 42.0 % after 0 days (3 landed then);" in text
    assert "after 2 days" not in text
