"""Explore annotations before training a recognizer: counts, tables, plots and a page.

Example::

    found = hmmjax.explore.explore(hmmjax.io.read_annotations("annotations/", phase_names="cholec80"))
    hmmjax.explore.write_exploration(found, "explore/")
"""

from hmmjax.explore.count import Exploration, explore
from hmmjax.explore.write import write_exploration

__all__ = ["Exploration", "explore", "write_exploration"]
