"""The main job as plain functions: what `hmmjax stabilize` and `hmmjax evaluate` compute, to the last digit.

Example::

    predictions = hmmjax.io.read("predictions/", phase_names="cholec80")
    annotations = hmmjax.io.read_annotations("annotations/", phase_names="cholec80")
    result = hmmjax.stabilize.stabilize(predictions, annotations)
    hmmjax.stabilize.write_results(result, "out", like=predictions)
"""

from hmmjax.stabilize.evaluate import evaluate
from hmmjax.stabilize.folds import ENOUGH_VIDEOS, outlook
from hmmjax.stabilize.fuse import originals
from hmmjax.stabilize.learn import PRIORS, Examples, Learned, learn
from hmmjax.stabilize.pipeline import Stabilized, stabilize
from hmmjax.stabilize.prepare import Prepared, prepare
from hmmjax.stabilize.rank import Families, Question, ask_families, rank_families
from hmmjax.stabilize.results import read_results
from hmmjax.stabilize.table import Row, System, compare, plain
from hmmjax.stabilize.write import as_json, records, write_results

__all__ = [
    "ENOUGH_VIDEOS",
    "PRIORS",
    "Examples",
    "Families",
    "Learned",
    "Prepared",
    "Question",
    "Row",
    "Stabilized",
    "System",
    "as_json",
    "ask_families",
    "compare",
    "evaluate",
    "learn",
    "originals",
    "outlook",
    "plain",
    "prepare",
    "rank_families",
    "read_results",
    "records",
    "stabilize",
    "write_results",
]
