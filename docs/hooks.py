"""What the site needs beyond Markdown: formulas as MathML, so that reading needs no network; links out of the docs."""

import re
from typing import Any

from latex2mathml.converter import convert

#: Code is left alone; the rest of a page has formulas between dollars.
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.S)
_DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.S)
_INLINE = re.compile(r"(?<![\w\\$])\$([^$\n]+?)\$(?!\d)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas to MathML; links to files outside of docs/ to plain code, since the site does not hold them."""
    parts = _CODE.split(markdown)
    for i in range(0, len(parts), 2):
        text = _DISPLAY.sub(lambda m: convert(m[1], display="block"), parts[i])
        # A bar would end a cell of a table.
        text = _INLINE.sub(lambda m: convert(m[1]).replace("|", "&#x7C;"), text)
        parts[i] = re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"`\1`", text)
    return "".join(parts)
