"""Where files lie: patterns, an object store; and records that may be unreadable."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from pipeline.core.errors import DataError, ToolError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.sources import local_files, names_of, of_day
from pipeline.data.log_store.day_rows import read_day
from tests.data.logs import HEADER, landed, mapping, refusal, refused, written


def test_a_pattern_names_files_in_order_and_a_file_of_that_name_itself(tmp_path):
    """Also below folders; what says that a folder is whole is no log."""
    for day in ("2024-04-02", "2024-04-01"):
        (tmp_path / f"dt={day}").mkdir()
        written(tmp_path / f"dt={day}" / "part-0.csv", HEADER)
        (tmp_path / f"dt={day}" / "_SUCCESS").touch()
    odd = written(tmp_path / "log[1]*.csv", HEADER)
    with local_files([f"{tmp_path}/dt=*/*", str(odd)]) as files:
        assert [str(file.relative_to(tmp_path)) for file in files] == [
            "dt=2024-04-01/part-0.csv",
            "dt=2024-04-02/part-0.csv",
            "log[1]*.csv",
        ]
    for nothing in ("x*", "*/_SUCCESS", "dt=2024-04-01/_SUCCESS"):
        with pytest.raises(DataError, match="no file fits"), local_files([f"{tmp_path}/{nothing}"]):
            pass


def test_an_address_on_the_disk_is_fetched_and_its_file_stays(tmp_path):
    path = written(tmp_path / "log.csv", HEADER)
    for address in (f"file://{path}", f"file://{tmp_path}/*.csv"):
        with local_files([address]) as (file,):
            assert file.read_bytes() == path.read_bytes()
        assert (file.exists(), path.exists()) == (False, True)


def test_the_signature_of_an_address_is_in_no_name_that_the_manifest_keeps():
    store = fsspec.filesystem("memory")
    store.pipe("/logs/x.csv?part=2&sig=hunter2", b"rows")
    with local_files(["memory://logs/x.csv?part=2&sig=hunter2"]) as (file,):
        assert file.read_bytes() == b"rows"
        assert file.name.startswith("x.csv?part=2&")
        assert "hunter2" not in str(file)


def test_what_is_refused_in_a_store_is_named_by_its_address(tmp_path):
    fsspec.filesystem("memory").pipe("/logs/bad.csv", f"{HEADER}0,a,1,x\n".encode())
    with pytest.raises(DataError) as error, local_files(["memory://logs/bad.csv"]) as files:
        land_files(tmp_path / "data", mapping(), files)
    assert str(error.value).startswith("memory://logs/bad.csv, line 2: ")


@pytest.fixture
def bucket(monkeypatch) -> Iterator[str]:
    """The name of an empty bucket of a store on loopback, to which the environment leads."""
    pytest.importorskip("flask_cors", reason="moto[server] is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "ENDPOINT_URL": f"http://127.0.0.1:{port}"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    program = Path(sys.executable).parent / "moto_server"
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(300):
                with socket.socket() as caller:
                    if not caller.connect_ex(("127.0.0.1", port)):
                        break
                time.sleep(0.1)
            yield "logs"
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_log_in_an_object_store_lands_as_from_the_disk(tmp_path, bucket):
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    store = s3fs.S3FileSystem(skip_instance_cache=True)
    store.mkdir(bucket)
    for number, name in enumerate(("dt=1970-01-01/a.csv.gz", "dt=1970-01-02/a.csv.gz")):
        path = written(tmp_path / "a.csv.gz", HEADER + f"{86400 * number},x{number},1,0\n")
        store.put(str(path), f"{bucket}/{name}")
    with local_files([f"s3://{bucket}/dt=*/*.csv.gz"]) as files:
        tables = landed(tmp_path / "data", mapping(), *files)
    assert {day: table["item"].to_pylist() for day, table in tables.items()} == {
        "1970-01-01": ["x0"],
        "1970-01-02": ["x1"],
    }
    assert not any(file.exists() for file in files)
    address = f"s3://{bucket}/dt=1970-01-02/a.csv.gz"
    for source in ("dt={day}/*.csv.gz", "dt={day:%Y-%m-%d}/a.csv.gz"):
        assert names_of(of_day(f"s3://{bucket}/{source}", "1970-01-02")) == [address]
    assert names_of(of_day(f"s3://{bucket}/dt={{day}}/*", "1970-01-03")) == []
    with (
        pytest.raises(ToolError, match="could not be fetched"),
        local_files([f"s3://{bucket}/gone.csv"]),
    ):
        pass


FAULTY = HEADER + "0,a,1,0\n1,b,one,0\n2,c,1\n3,d,1,0\n86400,e,1,9999\n86401,f,1,1\n"


def test_records_that_cannot_be_read_are_left_out_where_the_mapping_allows_so_many(tmp_path):
    """A number, a record of three columns, a type; they are counted on the newest day."""
    path = written(tmp_path / "log.csv", FAULTY)
    came = land_files(tmp_path / "data", mapping(max_rejected=3), [path]).days
    items = [read_day(tmp_path / "data", day)["item"].to_pylist() for day in came]
    assert items == [["a", "d"], ["f"]]
    assert came["1970-01-02"].dropped == {"cannot be read": 3}
    (tmp_path / "other").mkdir()
    sentence = refused(tmp_path / "other", mapping(max_rejected=2), path)
    assert sentence.endswith("so 3 cannot be read, max_rejected allows 2")


def test_a_record_that_hides_other_lines_is_no_single_one_to_leave_out(tmp_path):
    """A quote that is opened, and closed far below or never, takes good lines with it."""
    good, rules = "0,a,1,0\n" * 50, mapping(max_rejected=3)
    for text in (good + '0,"a,1,0\n' + good, good + '0,"a,1,0\n' + good + '0,"b",1,0\n' + good):
        assert refusal(tmp_path, rules, HEADER + text).startswith("log.csv, line 52: ")
    path = written(tmp_path / "last.csv", (HEADER + good + '0,"a,1,0\n').replace("\n", "\r\n"))
    (table,) = landed(tmp_path / "data", rules, path).values()
    assert len(table) == 50


def test_without_leave_the_first_record_that_cannot_be_read_stops_the_landing(tmp_path):
    for text in (FAULTY, FAULTY.replace("one", "1")):
        path = written(tmp_path / "log.csv", text)
        sentence = refused(tmp_path, mapping(), path)
        assert sentence.startswith(("log.csv, line 3: ", "log.csv, line 4: "))
