"""Data Docs: a page for every suite, built beside the stages."""

import re
from urllib.parse import unquote

from pipeline.quality.suites import build_data_docs
from pipeline.quality.table_checks import table_suites
from tests.quality.test_table_checks import CANDIDATES, TOLERANCE, changed


def test_every_suite_has_a_page_that_says_what_failed(log, tmp_path):
    bins, cells, sums = log
    broken = changed(bins, "responses", 0, bins.impressions[0] + 1)
    index = build_data_docs(
        table_suites(broken, cells, sums, CANDIDATES, TOLERANCE), tmp_path / "docs"
    )
    assert index.is_file()
    pages = {page.stem: page.read_text() for page in (tmp_path / "docs").glob("expectations/*")}
    assert set(pages) == {"bins", "cells", "days", "field values"}
    results = "".join(p.read_text() for p in (tmp_path / "docs").glob("validations/**/*.html"))
    assert "no more responses than impressions" in results
    assert "Failed" in results


def test_pages_load_nothing_and_the_index_leads_to_every_result(log, tmp_path):
    index = build_data_docs(table_suites(*log, CANDIDATES, TOLERANCE), tmp_path / "docs")
    for page in index.parent.rglob("*.html"):
        loading = re.findall(r"<(?:script|link|img)[^>]*https?://[^>]*>", page.read_text())
        assert loading == [], page
    linked = {
        index.parent / unquote(link) for link in re.findall('href="(.*?)"', index.read_text())
    }
    assert linked == set(index.parent.glob("validations/**/*.html"))
    assert len(linked) == 4
