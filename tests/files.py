"""Files for the readers' tests, and readers that must refuse them."""

import pytest

from hmmjax import io


def put(folder, name, text):
    """Write a file, folders and all; its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def fails(match, *args, **kwargs):
    """The error with which `io.read` refuses its arguments."""
    with pytest.raises(io.FormatError, match=match) as caught:
        io.read(*args, **kwargs)
    return caught.value
