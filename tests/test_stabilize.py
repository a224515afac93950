"""`hmmjax.stabilize` in Python: settings, names, and learning from arrays with held-out videos."""

import dataclasses
import importlib
import pkgutil
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from files import track

import hmmjax
from hmmjax import metrics
from hmmjax import stabilize as job
from hmmjax.emissions import Tempered

PACKAGES = [
    "hmmjax",
    *(m.name for m in pkgutil.walk_packages(hmmjax.__path__, "hmmjax.") if m.ispkg),
]


def test_settings_are_built_from_keywords():
    settings = job.Settings(emissions="probability", folds=3)
    assert job.settings.with_overrides(settings, {"folds": None}) == dataclasses.replace(settings, folds=None)
    assert job.settings.with_overrides(None, {}) == job.Settings()
    with pytest.warns(DeprecationWarning, match="Use max_iterations= instead"):
        assert job.settings.with_overrides(None, {"iterations": 3}).max_iterations == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.folds = 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "folds=1 leaves nothing to learn from"),
        ({"threshold": 1.5}, r"threshold=1\.5 is not a probability"),
        ({"max_iterations": -1}, "max_iterations=-1 is negative"),
        ({"step": 0}, "step=0 is not a number of frames"),
        ({"metric": "accuracy", "emissions": "confusion"}, "so that nothing is compared"),
        ({"metric": "accuracy", "learn": "count"}, "so that nothing is compared"),
        ({"metric": "accuracy", "calibrated": False}, "so that nothing is compared"),
        ({"metric": "accuracy", "stages": True}, "so that nothing is compared"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        job.Settings(**options)


def test_settings_of_the_wrong_type_or_given_twice_are_refused(unchecked):
    with pytest.raises(TypeError, match=r"folds=2\.5 is not an integer"):
        job.Settings(folds=2.5)
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="max_iterations= is given twice"):
        job.settings.with_overrides(None, {"iterations": 3, "max_iterations": 4})
    with pytest.raises(ValueError, match="emissions='confuson' is unknown; choose 'confusion'"):
        job.Settings(emissions="confuson")


def test_unknown_settings_are_refused_by_every_function():
    with pytest.raises(TypeError, match=r"no setting 'fold'. Did you mean 'folds'\?"):
        job.stabilize([], fold=3)
    for function in (job.prepare_inputs, job.rank_families, job.prepare_ranking):
        with pytest.raises(TypeError, match="Settings are emissions, folds"):
            function([], [], quality=11)


#: `hmmjax.io.read` and its like are functions first; their modules are internal.
FUNCTIONS_FIRST = {"hmmjax.io": {"join", "read", "write"}}


@pytest.mark.parametrize("name", PACKAGES)
def test_no_function_hides_a_module_of_the_same_name(name):
    """`import package.module as m` yields whatever the package's attribute is, so it must be the module."""
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__):
        if module.name in FUNCTIONS_FIRST.get(name, ()):
            continue
        found = vars(package).get(module.name)
        assert found is None or isinstance(found, types.ModuleType), f"{name}.{module.name} is {found!r}"


def test_old_names_still_work():
    with pytest.warns(DeprecationWarning, match="compare_systems"):
        assert job.compare is job.compare_systems
    with pytest.raises(AttributeError, match="no attribute 'contrast'"):
        _ = job.contrast


def examples(count=4, frames=60):
    """Two phases whose recognizer errs in runs of frames."""
    rng = np.random.default_rng(0)
    phases = np.broadcast_to((np.arange(frames) >= frames // 2).astype(np.int32), (count, frames)).copy()
    wrong = np.repeat(rng.random((count, frames // 5)) < 0.2, 5, axis=1)
    outputs = np.where(wrong, 1 - phases, phases).astype(np.int32)
    mask = np.ones((count, frames), bool)
    return job.Examples(hmmjax.Observations(outputs), hmmjax.Labels(phases), mask)


@pytest.mark.parametrize("max_iterations", [None, 2])
def test_powers_of_held_out_videos_are_given_to_the_model_of_all_videos(max_iterations):
    """By hand: tables from all videos, powers from the held-out ones seen through tables from the rest."""
    videos, held_out = examples(), np.array([1, 3])
    options = {"num_phases": 2, "num_tools": 0, "max_iterations": max_iterations}
    found = job.learn_model(videos, held_out=held_out, calibration={"folds": 0}, calibrated=True, **options)
    tables = job.learn_model(videos, **options).params
    rest, part = job.learn_model(videos.take([0, 2]), **options).params, videos.take(held_out)
    power = hmmjax.calibrate(rest, part.obs, part.mask, part.labels, folds=0).params.phases.emission.power
    assert isinstance(found.params.phases.emission, Tempered) and (found.fit is None) == (max_iterations is None)
    np.testing.assert_array_equal(found.params.phases.emission.power, power)
    np.testing.assert_array_equal(found.params.phases.emission.family.matrix, tables.phases.emission.matrix)
    assert "calibrated (on held-out videos): each frame is weighted by" in found.method


def test_posteriors_are_numpy_probabilities():
    videos = examples(2)
    params = job.learn_model(videos, num_phases=2, num_tools=0).params
    for online, infer in ((False, hmmjax.posterior), (True, hmmjax.filter)):
        found, likelihood = job.numpy_posterior(params, videos.obs, videos.mask, online=online)
        expected = infer(params, videos.obs, videos.mask)
        assert isinstance(found.phases, np.ndarray) and found.tools is None and found.phases.max() <= 1
        np.testing.assert_allclose(found.phases, expected.phases, atol=1e-6)
        np.testing.assert_array_equal(likelihood, expected.log_likelihood)


def test_tools_are_ranked_by_log_odds():
    """Float32 ties the three surest frames; their log-odds rank the false one last."""
    truth, odds = [np.array([[1], [0], [1], [0]])], [np.float32([[30], [20], [25], [-3]])]
    tied = [np.float32(1 / (1 + np.exp(-odds[0])))]
    systems = [job.System("tied", None, tied), job.System("ranked", None, tied, odds)]
    rows = {row.figure: row.metrics for row in job.compare_systems(systems, None, truth)}
    assert rows["tool mAP"]["ranked"].value == 1 > rows["tool mAP"]["tied"].value
    assert rows["tool F1, macro"]["ranked"].value == rows["tool F1, macro"]["tied"].value


def test_empty_videos_teach_what_videos_left_out_do():
    """A model of some videos, and the same with the other videos in the batch as empty ones, by counting and by EM."""
    videos = examples()
    for max_iterations in (None, 1):
        options = {"num_phases": 2, "num_tools": 0, "max_iterations": max_iterations, "calibrated": True}
        few, empty = (job.learn_model(x, **options) for x in (videos.take([0, 2]), videos.only([0, 2])))
        assert few.method == empty.method
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), few.params, empty.params)


def test_one_shape_serves_all_folds():
    """Of every program of inference only one is compiled, whatever the folds and their sizes."""
    from hmmjax import inference
    from hmmjax.stabilize import folds

    model = job.learn_model(examples(), num_phases=2, num_tools=0).params
    plan = [folds.Part(model, positions, i) for i, positions in enumerate(([0, 1], [2]))]
    before = inference._posterior.compiled._cache_size()
    found = job.posteriors.infer_plan(plan, examples(), "abcd", model, lambda *_: None)
    assert inference._posterior.compiled._cache_size() <= before + 1 and found.folds[:3] == (0, 0, 1)
    expected = hmmjax.posterior(model, examples().obs).phases[:3]
    np.testing.assert_allclose(found.smoothed.phases[:3], expected, atol=1e-6)


# Single labeled frames.


@pytest.mark.parametrize("emissions", ["confusion", "probability"])
def test_a_few_labeled_frames_suffice_to_improve_tools(emissions, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    few_labels = importlib.import_module("few_labels")
    recognizer, gains = few_labels.TOOLS["errors of 30 s, many false alarms"], []
    for seed in range(2):
        outputs, truth, known, mask = few_labels.few_frames(recognizer, seed)
        obs = hmmjax.Observations(tools=outputs)
        obs = obs.discretize() if emissions == "confusion" else obs
        learned = job.learn_from_single_frames(
            job.Examples(obs, hmmjax.Labels(tools=known), mask), num_tools=7, emissions=emissions
        )
        found, _ = job.numpy_posterior(learned.params, hmmjax.Observations(tools=obs.tools[6:]), mask[6:])
        test = [t[m] for t, m in zip(truth[6:], mask[6:], strict=True)]
        ap, f1 = [], []
        for ranks, values in ((outputs[6:], outputs[6:]), (found.tool_log_odds, found.tools)):
            ap.append(metrics.average_precision(test, [x[m] for x, m in zip(ranks, mask[6:], strict=True)]).value)
            f1.append(metrics.tool_f1(test, [x[m] for x, m in zip(values, mask[6:], strict=True)]).value)
        gains.append((ap[1] - ap[0], f1[1] - f1[0]))
        assert f"{(known >= 0).sum()} labels" in learned.method
    gains = np.array(gains)
    assert (gains > -0.02).all() and (gains.mean(0) > 0).all(), gains


def test_single_frames_need_labels_and_a_family_with_an_anchor():
    examples = job.Examples(
        hmmjax.Observations(tools=np.zeros((1, 9, 2), int)),
        hmmjax.Labels(tools=np.full((1, 9, 2), -1)),
        np.ones((1, 9), bool),
    )
    with pytest.raises(ValueError, match="some labels of tools"):
        job.learn_from_single_frames(examples, num_tools=2)
    absent = hmmjax.Labels(tools=np.zeros((1, 9, 2), int))
    only = dataclasses.replace(examples, labels=absent, mask=np.zeros((1, 9), bool))
    with pytest.raises(ValueError, match="in frames that the mask keeps"):
        job.learn_from_single_frames(only, num_tools=2)
    with pytest.raises(ValueError, match="takes no anchor"):
        job.learn_from_single_frames(examples, num_tools=2, emissions="scaled")


def test_training_videos_are_refused_of_every_recognizer_and_told_by_evaluate():
    """A model is not learned from videos that any of the recognizers was trained on; scores of them say so."""
    own = [track("phases", np.arange(20) // 10, video=f"video0{n}") for n in (1, 2)]
    other = [dataclasses.replace(own[0], part="Training"), dataclasses.replace(own[1], part="test")]
    for inputs in ({"predictions": other}, {"predictions": own, "fuse": [other]}):
        with pytest.raises(hmmjax.io.FormatError, match=r"trained on 1 of the annotated videos \(video01\)"):
            job.prepare_inputs(annotations=own, **inputs)
    job.prepare_inputs(own, own, fuse=[other], training_videos=True)
    _, notices = job.evaluate_predictions(other, own)
    assert any("trained on 1 of the 2 scored videos (video01)" in notice for notice in notices)
    assert not any("trained on" in notice for notice in job.evaluate_predictions(own, own)[1])


def test_a_member_without_a_track_observes_nothing_of_it():
    """Members of an ensemble that was chosen for phases may have no tools; the report infers with one of them."""
    obs = hmmjax.Observations(np.zeros((1, 9), int), np.full((1, 9, 2), 0.5))
    params = hmmjax.init_params(2, 0, emissions="confusion")
    found = job.prepare.observations_for(obs, params, 0.5)
    assert found.tools is None and found.phases is not None
    assert hmmjax.posterior(params, found).phases.shape == (1, 9, 2)
