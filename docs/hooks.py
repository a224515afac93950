"""MkDocs hooks: render formulas as MathML, which needs no network, and unlink files that the site does not hold."""

import posixpath
import re
from typing import Any

from latex2mathml.converter import convert

#: Code is left alone; the rest of a page has formulas between dollar signs.
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
_DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
_INLINE = re.compile(r"(?<![\w\\$])\$([^$\n]+?)\$(?!\d)")
_UPWARD = re.compile(r"\[([^\]]+)\]\((\.\./[^)]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Convert formulas to MathML, and links to files outside docs/ to their text in code font."""
    folder = posixpath.dirname(page.file.src_uri)

    def unlink(match: re.Match[str]) -> str:
        outside = posixpath.normpath(posixpath.join(folder, match[2])).startswith("..")
        return f"`{match[1]}`" if outside else match[0]

    parts = _CODE.split(markdown)
    for i in range(0, len(parts), 2):
        text = _DISPLAY.sub(lambda m: convert(m[1], display="block"), parts[i])
        # A vertical bar would end a table cell.
        text = _INLINE.sub(lambda m: convert(m[1]).replace("|", "&#x7C;"), text)
        parts[i] = _UPWARD.sub(unlink, text)
    return "".join(parts)
