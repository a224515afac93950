"""The exception that readers and writers raise about the content of files."""

import os


class FormatError(ValueError):
    """A file, or a set of files, that cannot be used as it is.

    The message reads ``file, line: cause. Fix: fix``.

    Attributes:
        cause: what is wrong.
        file: the file, or None if the error concerns a set of files.
        line: 1-based line of a text file or row of an array, or None.
        fix: what the user can do about it.
    """

    def __init__(
        self,
        cause: str,
        *,
        file: str | os.PathLike[str] | None = None,
        line: int | None = None,
        fix: str | None = None,
    ):
        self.cause = cause
        self.file = None if file is None else os.fspath(file)
        self.line = line
        self.fix = fix
        place = ", ".join(part for part in (self.file, None if line is None else f"line {line}") if part)
        text = f"{place}: {cause}" if place else cause
        super().__init__(text + (f". Fix: {fix}" if fix else ""))
