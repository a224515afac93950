"""The main job as plain functions: what `hmmjax stabilize` and `hmmjax evaluate` compute, to the last digit.

Example::

    predictions = hmmjax.io.read("predictions/", phase_names="cholec80")
    annotations = hmmjax.io.read_annotations("annotations/", phase_names="cholec80")
    result = hmmjax.stabilize.stabilize(predictions, annotations)
    hmmjax.stabilize.write_results(result, "out", like=predictions)
"""

from hmmjax.stabilize.compare import evaluate
from hmmjax.stabilize.families import Families, rank_families
from hmmjax.stabilize.fuse import originals
from hmmjax.stabilize.learn import PRIORS, Examples, Learned, learn
from hmmjax.stabilize.results import read_results
from hmmjax.stabilize.run import Stabilized, stabilize
from hmmjax.stabilize.table import Row, System, compare
from hmmjax.stabilize.write import as_json, records, write_results

__all__ = [
    "PRIORS",
    "Examples",
    "Families",
    "Learned",
    "Row",
    "Stabilized",
    "System",
    "as_json",
    "compare",
    "evaluate",
    "learn",
    "originals",
    "rank_families",
    "read_results",
    "records",
    "stabilize",
    "write_results",
]
