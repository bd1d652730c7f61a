"""A folder with checksums holds what its manifest lists, and nothing else."""

import os

import pytest

from pipeline.core.errors import ArtifactError
from pipeline.core.files import MANIFEST, read_json, verify, write_checksums, write_facts


@pytest.fixture
def folder_of_two(tmp_path):
    """A folder of two files."""
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "inner" / "b.txt").write_text("b")
    write_checksums(folder, {"format": 1})
    return folder


def rewritten(folder, **changes):
    """Write the manifest again with values replaced (None: left out) and a fitting checksum."""
    manifest = read_json(folder / MANIFEST) | changes
    kept = {key: value for key, value in manifest.items() if value is not None}
    write_facts(folder / MANIFEST, kept)


def test_a_folder_verifies_also_where_a_file_is_a_link_into_a_cache(folder_of_two, tmp_path):
    (folder_of_two / "a.txt").rename(tmp_path / "cached")
    (folder_of_two / "a.txt").symlink_to(tmp_path / "cached")
    assert verify(folder_of_two)["format"] == 1


@pytest.mark.parametrize("files", [None, ["a.txt"], {"../outside": "00"}, {"/etc/passwd": "00"}])
def test_a_manifest_that_lists_no_files_of_its_folder_is_refused(folder_of_two, files):
    rewritten(folder_of_two, files=files)
    with pytest.raises(ArtifactError, match=r"does not list files of its folder|is missing"):
        verify(folder_of_two)


def test_a_linked_folder_a_broken_link_and_a_pipe_are_refused_by_name(folder_of_two, tmp_path):
    for make in (
        lambda place: place.symlink_to(tmp_path),
        lambda place: place.symlink_to(tmp_path / "nowhere"),
        os.mkfifo,
    ):
        make(folder_of_two / "strange")
        with pytest.raises(ArtifactError, match="strange is no file"):
            verify(folder_of_two)
        (folder_of_two / "strange").unlink()
    verify(folder_of_two)
