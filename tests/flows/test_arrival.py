"""Landing: the files of a day, those that came late, and a day that has not come."""

import shutil

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas import filters

from flows.arrival import NotLandedError, bring, files_of, files_to_land, landed_days
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import write_json
from pipeline.data.ingest.sources import land
from pipeline.params.params_file import set_values
from tests.tiny_logs import write_clicks


def arrive(folder, *days):
    """The file of each day, where the source says."""
    for day in days:
        (folder / f"log-{day}.csv").write_text("click,site\n")


def landed(folder, *days):
    """A log that holds these days."""
    write_json(folder / "data/manifest.json", {"days": {day: {} for day in days}})


def names(files):
    """The days in the names of files."""
    return [file[-14:-4] for file in files]


def test_the_files_of_a_day_are_those_of_the_pattern_in_order(tmp_path):
    (tmp_path / "2013-09-30").mkdir()
    for name in ("b.csv", "a.csv"):
        (tmp_path / "2013-09-30" / name).touch()
    found = files_of("{day}/*.csv", "2013-09-30", tmp_path)
    assert found == [f"{tmp_path}/2013-09-30/{name}" for name in ("a.csv", "b.csv")]


def test_a_source_that_does_not_name_the_day_is_refused(tmp_path):
    with pytest.raises(AdaCalibError, match=r"does not name the day; write \{day\}"):
        files_of("/logs/*.csv", "2013-09-30", tmp_path)


def test_a_day_is_spelled_as_the_names_of_files_have_it(tmp_path):
    for name in ("2013/09/30/log.csv", "20130930.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        source = name.replace("2013/09/30", "{day:%Y/%m/%d}").replace("20130930", "{day:%Y%m%d}")
        assert files_of(source, "2013-09-30", tmp_path) == [f"{tmp_path}/{name}"]
        assert files_of(source, "2013-09-29", tmp_path) == []


def test_a_folder_with_the_name_of_a_pattern_is_that_folder(tmp_path):
    for folder in ("ads[prod] *", "adsp x"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "2013-09-30.csv").touch()
    for source in ("{day}.csv", "{day}*"):
        found = files_of(f"{tmp_path}/ads[prod] */{source}", "2013-09-30", tmp_path)
        assert found == [f"{tmp_path}/ads[prod] */2013-09-30.csv"]


def test_a_day_that_came_late_is_taken_along_with_the_next_one(tmp_path):
    landed(tmp_path, "2013-09-26", "2013-09-28")
    arrive(tmp_path, "2013-09-27", "2013-09-28", "2013-09-29")
    files = files_to_land("log-{day}.csv", "2013-09-29", tmp_path, tmp_path)
    assert names(files) == ["2013-09-27", "2013-09-28", "2013-09-29"]


def test_the_days_of_an_outage_land_however_long_it_was(tmp_path):
    landed(tmp_path, "2013-08-30")
    days = [f"2013-09-{n:02}" for n in range(1, 31)]
    arrive(tmp_path, *days)
    assert names(files_to_land("log-{day}.csv", "2013-09-30", tmp_path, tmp_path)) == days


def test_nothing_lands_before_the_day_itself_has_come(tmp_path):
    landed(tmp_path, "2013-09-26")
    arrive(tmp_path, "2013-09-27")
    assert files_to_land("log-{day}.csv", "2013-09-28", tmp_path, tmp_path) == []
    shutil.copy("params.yaml", tmp_path)
    with pytest.raises(NotLandedError, match=r"2013-09-28 has not landed: there is no file log-"):
        bring("2013-09-28", tmp_path, tmp_path, "log-{day}.csv", None)


def test_the_first_day_of_a_log_comes_alone(tmp_path):
    arrive(tmp_path, "2013-09-27", "2013-09-28")
    assert names(files_to_land("log-{day}.csv", "2013-09-28", tmp_path, tmp_path)) == ["2013-09-28"]


@pytest.mark.slow
def test_an_unattended_run_adds_what_came_late_and_stops_where_a_file_brings_less_than_before(
    checkout, prefect_server
):
    """Events in the next day's file, and in a file that grew; what came as it was is not read."""
    shutil.rmtree(checkout / "data")
    write_clicks(checkout)
    set_values(checkout / "params.yaml", {"log.format": "clicks"})
    run = flow(bring)
    run("2024-04-01", checkout, checkout, "{day}.csv", "clicks.yaml")
    first = checkout / "2024-04-01.csv"
    first.write_text(first.read_text() + "2024-04-01T11:00:00Z,a,1\n" * 159)
    (change,) = run("2024-04-02", checkout, checkout, "{day}.csv", "clicks.yaml")
    assert "2024-04-01 has a new version: 1,500 -> 1,662 rows" in change
    assert run("2024-04-02", checkout, checkout, "{day}.csv", "clicks.yaml") == ()
    assert landed_days(checkout) == ["2024-04-01", "2024-04-02"]
    (checkout / "2024-04-02.csv").write_text("at,shop,click\n2024-04-02T10:00:00Z,b,0\n")
    with pytest.raises(ToolError, match=r"has 1,500 rows of 2024-04-02\.csv and would have 1;"):
        run("2024-04-02", checkout, checkout, "{day}.csv", "clicks.yaml")
    assert landed_days(checkout) == ["2024-04-01", "2024-04-02"]


@pytest.mark.slow
def test_a_log_that_the_committed_parameters_do_not_name_is_refused_before_it_lands(
    checkout, prefect_server
):
    shutil.rmtree(checkout / "data")
    write_clicks(checkout)
    set_values(checkout / "params.yaml", {"log.format": "flights"})
    with pytest.raises(AdaCalibError, match="flights as it was committed"):
        flow(bring)("2024-04-01", checkout, checkout, "{day}.csv", "clicks.yaml")
    assert landed_days(checkout) == []


@pytest.mark.slow
def test_a_log_of_ones_own_without_a_mapping_is_refused_at_once(checkout, prefect_server):
    """Nothing would change by trying again."""
    shutil.rmtree(checkout / "data")
    set_values(checkout / "params.yaml", {"log.format": "clicks"})
    state = flow(bring)("2024-04-01", checkout, checkout, None, None, return_state=True)
    mine = filters.FlowRunFilterId(any_=[state.state_details.flow_run_id])
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=filters.FlowRunFilter(id=mine))
    assert "clicks" in state.message
    assert [run.run_count for run in runs] == [1]


@pytest.mark.slow
def test_a_simulated_log_keeps_the_size_that_it_was_made_with(checkout, prefect_server):
    shutil.rmtree(checkout / "data")
    set_values(checkout / "params.yaml", {"log.format": "simulated", "log.time_zone": "UTC"})
    land("simulated", checkout / "data", rows=60, days=4, field_values=3, seed=5)
    made = (checkout / "data/manifest.json").read_bytes()
    assert flow(bring)("2025-01-04", checkout, checkout, None, None) == ()
    assert (checkout / "data/manifest.json").read_bytes() == made
