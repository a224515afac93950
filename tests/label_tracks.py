"""Tracks of labels for tests of metrics: written by hand, and drawn."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

QUICK = settings(deadline=None, max_examples=40, derandomize=True)


def labels(*runs):
    """Convert (phase, frames) pairs to an array of labels."""
    return np.concatenate([np.full(n, p) for p, n in runs])


@st.composite
def label_pairs(draw, num_phases=4):
    n = draw(st.integers(1, 40))
    track = st.lists(st.integers(0, num_phases - 1), min_size=n, max_size=n).map(np.array)
    return draw(track), draw(track)
