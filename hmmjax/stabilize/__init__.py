"""Stabilize prediction files and score them: the functions behind `hmmjax stabilize`, `evaluate` and `compare`.

Example::

    predictions = hmmjax.io.read("predictions/", phase_names="cholec80")
    annotations = hmmjax.io.read_annotations("annotations/", phase_names="cholec80")
    result = hmmjax.stabilize.stabilize(predictions, annotations)
    hmmjax.stabilize.write_results(result, "out", like=predictions)
"""

from hmmjax._core.deprecation import renamed
from hmmjax.stabilize.arrays import stabilize_arrays
from hmmjax.stabilize.draw import plot_result
from hmmjax.stabilize.evaluate import evaluate_predictions
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.folds import ENOUGH_VIDEOS, preview_folds
from hmmjax.stabilize.fuse import originals
from hmmjax.stabilize.learn import Learned, learn_model
from hmmjax.stabilize.pipeline import Stabilized, stabilize
from hmmjax.stabilize.posteriors import numpy_posterior
from hmmjax.stabilize.prepare import Prepared, prepare_inputs
from hmmjax.stabilize.rank import FamilyRanking, RankingInputs, prepare_ranking, rank_families
from hmmjax.stabilize.results import read_results
from hmmjax.stabilize.settings import PRIORS, Settings
from hmmjax.stabilize.sparse import learn_from_single_frames
from hmmjax.stabilize.split import Split, find_split
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import Row, compare_systems, finite_or_none
from hmmjax.stabilize.write import as_json, records, result_tracks, write_results, write_stabilized

__all__ = [
    "ENOUGH_VIDEOS",
    "PRIORS",
    "Examples",
    "FamilyRanking",
    "Learned",
    "Prepared",
    "RankingInputs",
    "Row",
    "Settings",
    "Split",
    "Stabilized",
    "System",
    "as_json",
    "compare_systems",
    "evaluate_predictions",
    "find_split",
    "finite_or_none",
    "learn_from_single_frames",
    "learn_model",
    "numpy_posterior",
    "originals",
    "plot_result",
    "prepare_inputs",
    "prepare_ranking",
    "preview_folds",
    "rank_families",
    "read_results",
    "records",
    "result_tracks",
    "stabilize",
    "stabilize_arrays",
    "write_results",
    "write_stabilized",
]

__getattr__ = renamed(
    __name__,
    {
        "Families": "FamilyRanking",
        "Question": "RankingInputs",
        "ask_families": "prepare_ranking",
        "compare": "compare_systems",
        "plain": "finite_or_none",
    },
)
