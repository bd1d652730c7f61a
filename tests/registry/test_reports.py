"""The report of any version or day, and what refreshed days left in git."""

from pathlib import Path

import pytest

from pipeline.core.errors import ReleaseError
from pipeline.registry.history import released, report_of
from tests.registry.conftest import git


def test_the_report_of_the_last_run_is_the_one_that_is_here(tmp_path):
    page = tmp_path / "artifacts/report/report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>")
    assert report_of(tmp_path, None) == page


@pytest.mark.parametrize("which", ["v9.9.9", "1999-01-01", "....-01-02"])
def test_what_was_never_made_is_refused_by_name(judged, which):
    git(judged, "commit", "--quiet", "--allow-empty", "--message", "day=2026-01-02")
    with pytest.raises(ReleaseError, match=which):
        report_of(judged, which)


def test_a_clone_without_a_refreshed_day_says_what_makes_one(judged):
    with pytest.raises(ReleaseError, match=r"flows\.refresh"):
        released(judged, Path("reports/trend.csv"))


def test_the_release_branch_is_read_wherever_one_stands(judged, tmp_path):
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(judged), str(clone))
    git(clone, "switch", "--quiet", "--create", "release")
    (clone / "trend.csv").write_text("day\n")
    git(clone, "add", "trend.csv")
    git(clone, "commit", "--quiet", "--message", "day=2026-01-02")
    git(clone, "switch", "--quiet", "-")
    git(clone, "tag", "release", "HEAD~1")  # of a person's, which knows no day
    assert released(clone, Path("trend.csv")) == "day\n"
