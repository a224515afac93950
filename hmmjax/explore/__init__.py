"""Exploratory analysis from annotation files alone: what is there before any recognizer has looked.

Example::

    found = hmmjax.explore.explore(hmmjax.io.read_annotations("annotations/", phase_names="cholec80"))
    hmmjax.explore.write_exploration(found, "explore/")
"""

from hmmjax.explore.count import Exploration, explore
from hmmjax.explore.write import write_exploration

__all__ = ["Exploration", "explore", "write_exploration"]
