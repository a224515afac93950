"""Fill in the page templates: values in, one HTML file without links to other files out."""

import base64
import io
import json
from importlib.resources import files
from typing import Any

from hmmjax.plots.style import literal


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package; values that are not marked safe are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hmmjax.report", "template"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(style=asset("style.css"), **values)


def asset(name: str) -> str:
    """Read a text file of the template folder."""
    return (files("hmmjax.report") / "template" / name).read_text(encoding="utf-8")


def embed(figure: Any) -> str:
    """Return a matplotlib figure as an SVG data URI."""
    buffer = io.BytesIO()
    with literal(figure):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def css_width(figure: Any) -> int:
    """Return the width of a matplotlib figure in CSS pixels."""
    return round(96 * figure.get_size_inches()[0])


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")
