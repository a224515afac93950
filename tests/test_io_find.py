"""Files in folders: links, archives, and files that are given twice."""

import gzip

import pytest
from files import fails, put

from hmmjax import io

TEXT = "Frame\tPhase\n0\tPreparation\n"


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    """Files that were not downloaded, as git-annex leaves them, are no videos less."""
    put(tmp_path, "video01.txt", TEXT)
    (tmp_path / "README").symlink_to(tmp_path / "nowhere")
    assert len(io.read(tmp_path)) == 1
    (tmp_path / "video02.txt").symlink_to(tmp_path / "gone.txt")
    assert "download the file" in fails("video02.txt: the link leads to no file", tmp_path).fix


def test_a_link_to_a_file_of_the_folder_is_named_with_it(tmp_path):
    put(tmp_path, "video01.txt", TEXT)
    (tmp_path / "video02.txt").symlink_to(tmp_path / "video01.txt")
    error = fails("the file is the same as", tmp_path)
    assert "video01.txt" in str(error) and "video02.txt" in str(error)
    fails("the file is given twice", [tmp_path / "video01.txt", tmp_path / "video01.txt"])


def test_archives_are_to_be_unpacked(tmp_path):
    path = tmp_path / "video01.txt.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    fails("Fix: unpack video01.txt.gz", tmp_path)
    fails(r"the file is compressed \(gzip\), not text. Fix: unpack it", path)
    workbook = tmp_path / "video01.csv"
    workbook.write_bytes(b"PK\x03\x04" + bytes(100))
    fails("an archive or a workbook", workbook)


def test_folders_that_cannot_be_written_to_are_refused_before_anything_is_read(tmp_path, monkeypatch):
    put(tmp_path, "file", "")
    for folder in (tmp_path / "file", tmp_path / "file" / "results"):
        with pytest.raises(FileExistsError, match=r"is a file, not a folder\. Fix: choose another --out"):
            io.check_free(folder)
        with pytest.raises(FileExistsError, match="is a file, not a folder"):
            io.refuse_existing(folder, ["explore.html"])
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PermissionError, match=r"is read-only\. Fix: choose another --out"):
        io.check_free(tmp_path / "new" / "results")
