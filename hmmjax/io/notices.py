"""Shorten lists of notices: those of many videos often differ in numbers only."""

import re
from collections.abc import Iterable

#: From this many notices that differ in numbers only, the first one stands for all.
MANY = 3


def merge_alike(lines: Iterable[str]) -> list[str]:
    """Keep one notice of each group that differs in numbers only, with the size of the group.

    Args:
        lines: notices, possibly repeated.

    Returns:
        Notices in the order of their first occurrence, each once; groups of fewer than `MANY` are kept whole.
    """
    groups: dict[str, list[str]] = {}
    for line in dict.fromkeys(lines):
        groups.setdefault(re.sub(r"\d+", "#", line), []).append(line)
    merged = []
    for own in groups.values():
        if len(own) < MANY:
            merged += own
        else:
            merged.append(f"{own[0]} (and {len(own) - 1} more notes that differ in numbers only)")
    return merged
