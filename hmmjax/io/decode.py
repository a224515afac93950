"""Decode text files: UTF-8 and UTF-16, with and without a byte order mark."""

from pathlib import Path
from typing import NamedTuple

from hmmjax.io.errors import FormatError

_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""The byte order marks of UTF-16."""
_PACKED = {
    b"\x1f\x8b": "compressed (gzip)",
    b"PK\x03\x04": "an archive or a workbook (zip, xlsx)",
    b"BZh": "compressed (bzip2)",
}
"""The first bytes of files that hold text in another form."""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1a")
"""Bytes that text does not have."""


class Encoding(NamedTuple):
    """How text is stored.

    Attributes:
        codec: "utf-8", "utf-16-le" or "utf-16-be".
        mark: whether the file starts with a byte order mark.
    """

    codec: str = "utf-8"
    mark: bool = False

    def encode(self, text: str) -> bytes:
        """Return the bytes of a file with this text."""
        return ("\ufeff" * self.mark + text).encode(self.codec)


UTF_8 = Encoding()
"""UTF-8 without a byte order mark."""


def read_text_file(file: str) -> str:
    """Return the text of a file, without a byte order mark; raise FormatError as `read_encoded` does."""
    return read_encoded(file)[0]


def read_encoded(file: str) -> tuple[str, Encoding]:
    """Return the text of a file, and how it is stored.

    Spreadsheets save UTF-16, which starts with a byte order mark; other programs leave the mark out, but Latin letters
    then have a zero byte each.

    Args:
        file: the file's path.

    Returns:
        The text, without a byte order mark, and its encoding.

    Raises:
        FormatError: the file cannot be opened, is not text, or is in an encoding whose letters cannot be told from
            others, such as Latin-1; the message names the line.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise FormatError(
            f"the file cannot be read ({error.strerror})", file=file, fix="check the path and its permissions"
        ) from None
    if packed := next((word for mark, word in _PACKED.items() if data.startswith(mark)), None):
        raise FormatError(f"the file is {packed}, not text", file=file, fix="unpack it, or save it as csv")
    encoding = Encoding(_utf16(data) or "utf-8", data[:2] in _MARKS or data.startswith(b"\xef\xbb\xbf"))
    not_text = FormatError("the file is not UTF-8 text", file=file, fix="pass txt, csv, npz or npy files")
    try:
        text = data.decode(encoding.codec).removeprefix("\ufeff" * encoding.mark)
    except UnicodeDecodeError as error:
        if encoding.codec != "utf-8" or _CONTROLS & set(data):
            raise not_text from None
        raise _of_another_encoding(file, data, error.start) from None
    if "\0" in text:
        raise not_text
    return text.removesuffix("\x1a"), encoding  # the end of a file to DOS


def _utf16(data: bytes) -> str | None:
    """Return the encoding of UTF-16 text, None for other data."""
    if data[:2] in _MARKS:
        return _MARKS[data[:2]]
    pairs = len(data) // 2
    if pairs < 2 or len(data) % 2:
        return None
    first, second = data[::2].count(0), data[1::2].count(0)
    if first == 0 and second >= 0.8 * pairs:
        return "utf-16-le"
    return "utf-16-be" if second == 0 and first >= 0.8 * pairs else None


def _of_another_encoding(file: str, data: bytes, at: int) -> FormatError:
    """Return the error for text with letters of an encoding of one byte per letter."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    line = data[start : len(data) if end < 0 else end].decode("cp1252", "replace").strip()
    return FormatError(
        f"the file is not UTF-8 text. In Windows-1252 (Latin-1) the line reads {line[:60]!r}",
        file=file,
        line=data.count(b"\n", 0, at) + 1,
        fix="save it as UTF-8 ('CSV UTF-8' in Excel), or run iconv -f WINDOWS-1252 -t UTF-8",
    )
