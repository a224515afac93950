"""Test that all text keeps to one vocabulary: plain American English and the field's terms."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("hmmjax", "models", "benchmarks", "docs", "examples", "tests")
SUFFIXES = {".py", ".md", ".j2", ".js", ".css", ".yaml", ".toml"}

BANNED = {
    # British spelling, identifiers included.
    r"(?:recogni|stabili|normali|maximi|minimi|optimi|summari|regulari|initiali|locali|factori|vectori|parametri)"
    r"s(?:e[ds]?|ers?|ing|ations?)(?![a-z])": "-ize",
    r"colour|neighbour|behaviour|favour": "-or",
    r"labell(?:ed|ing)(?!by)": "labeled, labeling",
    r"(?<![a-z])(?:centres?|grey|learnt|whilst)(?![a-z])": "center, gray, learned, while",
    # Idiom where the field has a term.
    r"\blikewise\b": "the sentence itself",
    r"\b(?:anew|whoever|nobody|somebody|anybody)\b": "again, callers, users; or the passive",
    r"\bat most so many\b": "maximum number of",
    r"\b(?:put right|at hand|goes on)\b": "corrected, available, continues",
    r"\bthe way (?:there|back)\b": "forward pass, backward pass",
    r"\b(?:frames?|nats|rows?|ones?|steps?|seconds?|values?|microseconds|products?) an? "
    r"(?:frame|second|phase|tool|video|step)\b": "per",
    r"\brecognizers? (?:says?|said|speaks?|watch(?:es)?)\b": "predicts, predicted, observes",
    r"\bwhat (?:it|they|the recognizers?|recognizers|a recognizer|one) (?:says?|said)\b": "output, prediction",
    r"\bevidence\b": "emission log-likelihood",
    r"\b(?:dear|dearer|beside)\b": "expensive; next to, alongside",
}


#: Earlier names that are still accepted: one word in quotes, an argument, or the value of an option.
QUOTED = re.compile(r"\"[^\" ]*\"|`[^` ]*`|'[^' ]*'|\b\w+=|--\w+ \w+|\\\(\w+=")


def files() -> list[Path]:
    found = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES]
    found += [ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "mkdocs.yml")]
    return sorted(p for p in found if p.is_file() and p != Path(__file__))


@pytest.mark.parametrize("pattern", BANNED)
def test_vocabulary(pattern):
    search = re.compile(pattern, re.IGNORECASE)
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if search.search(QUOTED.sub("", line))
    ]
    assert not hits, f"write {BANNED[pattern]!r} instead:\n" + "\n".join(hits[:40])
