"""Emissions with memory already account for errors that last: they are calibrated only if asked for."""

import numpy as np
import pytest

from hmmjax import Labels, Observations
from hmmjax.cli.dry_runs import _emissions
from hmmjax.stabilize import Settings, preview_folds
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.folds import learn_from_all, plan_folds
from hmmjax.stabilize.prepare import BatchIndex, Prepared
from hmmjax.stabilize.settings import ignore_progress

VIDEOS, FRAMES = 12, 60


@pytest.fixture(scope="module")
def prepared():
    """Twelve annotated videos of three phases, with runs of wrong outputs."""
    rng = np.random.default_rng(5)
    truth = np.tile(np.repeat(np.arange(3), FRAMES // 3), (VIDEOS, 1)).astype(np.int32)
    wrong = np.repeat(rng.random((VIDEOS, FRAMES // 4)) < 0.15, 4, axis=1)
    obs = Observations(np.where(wrong, (truth + 1) % 3, truth).astype(np.int32))
    examples = Examples(obs, Labels(truth), np.ones(truth.shape, bool))
    ids = tuple(f"v{i:02d}" for i in range(VIDEOS))
    rows = (np.arange(FRAMES),) * VIDEOS
    index = BatchIndex(ids, rows, rows, FRAMES, 1.0, 1.0)
    return Prepared({}, {"phases": 3, "tools": 0}, [], [obs], examples, None, None, index, ())


@pytest.mark.parametrize(
    ("options", "calibrates"),
    [
        ({"emissions": "confusion"}, None),  # by the number of videos
        ({"emissions": "auto"}, None),
        ({"emissions": "autoregressive"}, False),
        ({"emissions": "autoregressive-logit-normal"}, False),
        ({"emissions": "autoregressive", "calibrated": True}, True),
        ({"emissions": "autoregressive", "learn": "calibrate"}, True),
        ({"emissions": "autoregressive", "learn": "count"}, False),
        ({"emissions": "confusion", "calibrated": False}, False),
    ],
)
def test_families_with_memory_are_calibrated_only_if_asked_for(prepared, options, calibrates):
    settings = Settings(**options)
    assert settings.calibrates is calibrates
    preview = preview_folds(prepared, settings)
    assert preview["left"] >= 8
    assert preview["calibrated"] == (calibrates is not False and options["emissions"] != "auto")
    spared = "not calibrated (these emissions already account for errors that last)" in _emissions(preview, settings)
    assert spared == (set(options) == {"emissions"} and options["emissions"].startswith("autoregressive"))


def test_a_notice_says_why_families_with_memory_are_not_calibrated(prepared):
    settings = Settings(emissions="autoregressive", folds=2)
    why = "autoregressive emissions already account for errors that last (--calibrate calibrates anyway)"
    _, _, held_out = plan_folds(prepared, settings, ignore_progress)
    for learned in (held_out, learn_from_all(prepared, settings, ignore_progress)):
        assert learned.calibration is None and learned.method.endswith(f"; not calibrated: {why}")
    never = plan_folds(prepared, Settings(emissions="autoregressive", calibrated=False, folds=2), ignore_progress)[2]
    assert "calibrate" not in never.method and never.calibration is None
