"""Decode text files: UTF-8 and UTF-16, with and without a byte order mark."""

from pathlib import Path

from hmmjax.io.errors import FormatError

_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks of UTF-16."""
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x1a")
"""Bytes that text does not have."""


def read_text_file(file: str) -> str:
    """Return the text of a file.

    Spreadsheets save UTF-16, which starts with a byte order mark; other programs leave the mark out, but Latin letters
    then have a zero byte each.

    Args:
        file: the file's path.

    Returns:
        The text, without a byte order mark.

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
    encoding = _utf16(data) or "utf-8-sig"
    not_text = FormatError("the file is not UTF-8 text", file=file, fix="pass txt, csv, npz or npy files")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8-sig" or _CONTROLS & set(data):
            raise not_text from None
        raise _of_another_encoding(file, data, error.start) from None
    if "\0" in text:
        raise not_text
    return text


def _utf16(data: bytes) -> str | None:
    """Return the encoding of UTF-16 text, None for other data."""
    if data[:2] in _MARKS:
        return "utf-16"
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
