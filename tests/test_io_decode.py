"""Encodings of text files: read where letters are certain, refused with the line where they are not."""

import unicodedata

import pytest
from files import fails, put

from hmmjax import io
from hmmjax.io.decode import read_text_file

TEXT = "Frame\tPhase\n0\tPréparation\n25\tRückzug\n"
NAMES = ["Préparation", "Rückzug"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_unicode_in_any_form(tmp_path, encoding):
    path = tmp_path / "video01.txt"
    path.write_bytes(TEXT.encode(encoding))
    assert read_text_file(str(path)) == TEXT
    assert io.read(path, phase_names=NAMES)[0].values.tolist() == [0, 1]
    (tmp_path / "names.txt").write_bytes("\n".join(NAMES).encode(encoding))
    assert io.resolve_names(str(tmp_path / "names.txt"), "phases") == tuple(NAMES)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_letters_of_one_byte_are_shown_and_refused(tmp_path, encoding):
    path = tmp_path / "video01.txt"
    path.write_bytes(TEXT.encode(encoding))
    error = fails(r"the line reads '0\\tPréparation'", path, phase_names=NAMES)
    assert error.line == 2 and "save it as UTF-8" in error.fix and "iconv -f WINDOWS-1252" in error.fix
    with pytest.raises(io.FormatError, match="is not UTF-8 text"):
        io.resolve_names(str(path), "phases")


def test_files_that_are_not_text(tmp_path):
    for data in (b"\x00\x01\x02\x03" * 9, b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", b"\xff\xd8\xff\xe0\x00\x10JFIF"):
        (tmp_path / "video01.txt").write_bytes(data)
        assert fails("the file is not UTF-8 text", tmp_path / "video01.txt").fix == "pass txt, csv, npz or npy files"


def test_accents_may_be_split(tmp_path):
    """As on some file systems, and in names that were typed on them."""
    split = unicodedata.normalize("NFD", "Jürgen OP 3")
    assert split != "Jürgen OP 3" and io.video_id(f"{split}.csv") == io.video_id("Jürgen OP 3.csv") == "jürgenop03"
    path = put(tmp_path, f"{split}.txt", unicodedata.normalize("NFD", TEXT))
    assert io.read(path, phase_names=NAMES)[0].values.tolist() == [0, 1]
