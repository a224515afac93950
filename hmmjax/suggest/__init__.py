"""Choose frames to label next: a ranking, a page that shows the frames, and a file to fill in.

Example::

    suggestions = hmmjax.suggest.rank(raw, stabilized, known)
    hmmjax.suggest.write("to-label/", suggestions, picture=...)
    tracks = hmmjax.suggest.read_answers("to-label/answers.csv")  # partial labels, for hmmjax.io.to_batch
"""

from hmmjax.suggest.answers import read_answers, write_answers
from hmmjax.suggest.pictures import NAMINGS, Pictures, find_pictures
from hmmjax.suggest.ranking import REASONS, Suggestion, rank
from hmmjax.suggest.sheet import write, write_sheet

__all__ = [
    "NAMINGS",
    "REASONS",
    "Pictures",
    "Suggestion",
    "find_pictures",
    "rank",
    "read_answers",
    "write",
    "write_answers",
    "write_sheet",
]
