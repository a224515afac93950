"""Save and load models: any family, no pickles, clear errors."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hmmjax
from hmmjax import io
from hmmjax._core.validation import check_params
from hmmjax.io import model_file


def example(emissions="probability"):
    return hmmjax.init_params(7, 3, emissions=emissions)


@pytest.mark.parametrize("emissions", ["confusion", "probability"])
@pytest.mark.parametrize("tracks", ["both", "phases", "tools"])
def test_round_trip(tmp_path, emissions, tracks):
    params = hmmjax.init_params(0 if tracks == "tools" else 4, 0 if tracks == "phases" else 3, emissions=emissions)
    io.save_params(tmp_path / "m.npz", params, fps=1.0, metadata={"videos": ["video41"]})
    model = io.load_params(tmp_path / "m.npz")
    assert jax.tree.structure(model.params) == jax.tree.structure(params)
    for a, b in zip(jax.tree.leaves(model.params), jax.tree.leaves(params), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)
    assert (model.fps, model.metadata, model.phase_names) == (1.0, {"videos": ["video41"]}, None)


def test_nested_families_and_missing_ones(tmp_path):
    params = example()
    tempered = hmmjax.emissions.Tempered(params.phases.emission, jnp.array(0.5))
    params = hmmjax.Params(
        hmmjax.PhaseChain(params.phases.initial, params.phases.transition, tempered),
        hmmjax.ToolChains(params.tools.initial, params.tools.transition, None),
    )
    io.save_params(tmp_path / "m.npz", params)
    again = io.load_params(tmp_path / "m.npz").params
    assert again.tools.emission is None
    assert type(again.phases.emission.family).__name__ == "PhaseDirichlet" and again.phases.emission.power == 0.5


def test_a_loaded_model_infers_the_same(tmp_path):
    params = example("confusion")
    obs = hmmjax.Observations(jnp.array([0, 0, 3, 0]), None)
    io.save_params(tmp_path / "m.npz", params, phase_names=io.CHOLEC80_PHASES, tool_names=("a", "b", "c"))
    model = io.load_params(tmp_path / "m.npz")
    assert model.phase_names == io.CHOLEC80_PHASES
    np.testing.assert_array_equal(hmmjax.posterior(model.params, obs).phases, hmmjax.posterior(params, obs).phases)


def test_names_must_fit(tmp_path):
    with pytest.raises(ValueError, match="7 tool names were given for 3 tools"):
        io.save_params(tmp_path / "m.npz", example(), tool_names=io.CHOLEC80_TOOLS)


def test_foreign_classes_are_not_saved(tmp_path):
    @hmmjax.pytree
    class PhaseConfusion:
        matrix: object

    chain = hmmjax.PhaseChain(np.ones(1), np.ones((1, 1)), PhaseConfusion(np.ones((1, 1))))
    with pytest.raises(TypeError, match="cannot be saved"):
        io.save_params(tmp_path / "m.npz", hmmjax.Params(chain))
    assert not (tmp_path / "m.npz").exists()


def test_a_model_file_in_place_of_parameters(tmp_path, unchecked):
    model = io.ModelFile(hmmjax.init_params(2, 0, emissions="confusion"))
    with pytest.raises(TypeError, match=r"ModelFile.*pass its attribute `params`"):
        io.save_params(tmp_path / "m.npz", model)
    with pytest.raises(TypeError, match=r"got ModelFile. Pass its attribute `params`"):
        check_params(model)


def edit(path, change):
    with np.load(path) as data:
        arrays = dict(data)
    header = json.loads(str(arrays["header"]))
    change(header, arrays)
    arrays["header"] = np.array(json.dumps(header))
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda h, a: h.update(version=2), "saved by a newer hmmjax.*format 2.*upgrade"),
        (lambda h, a: h.update(version=0), "version 0 is invalid"),
        (lambda h, a: h.update(version="1"), "version '1' is invalid"),
        (lambda h, a: h.update(format="other"), "'other' file, not a model"),
        (lambda h, a: h["params"].update({"class": "os.system"}), "unknown class 'os.system'.*this version has"),
        (lambda h, a: h["params"]["fields"].update(color={"value": 1}), "do not fit together"),
        (lambda h, a: h["params"]["fields"]["phases"].pop("class"), "do not fit together"),
        (lambda h, a: a.pop("params.phases.initial"), "params.phases.initial of the model is missing"),
        (lambda h, a: h.pop("fps"), "do not fit together"),
    ],
)
def test_bad_headers(tmp_path, change, cause):
    path = tmp_path / "m.npz"
    io.save_params(path, example())
    edit(path, change)
    with pytest.raises(io.FormatError, match=cause):
        io.load_params(path)


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"value": 3}},
        {"fps": "x"},
        {"metadata": [1]},
        {"phase_names": ["only one"]},
        {"phase_names": "ab"},
    ],
)
def test_model_files_whose_contents_make_no_sense(tmp_path, change):
    path = tmp_path / "model.npz"
    io.save_params(path, hmmjax.init_params(2, emissions="confusion"), phase_names=("a", "b"), fps=1.0)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["header"] = np.array(json.dumps(json.loads(str(arrays["header"])) | change))
    np.savez(path, **arrays)
    with pytest.raises(io.FormatError, match=r"model\.npz"):
        io.load_params(path)


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">f8"])
def test_files_of_other_machines_and_precisions_load(tmp_path, dtype):
    path = tmp_path / "m.npz"
    io.save_params(path, example())
    edit(path, lambda h, arrays: arrays.update({k: v.astype(dtype) for k, v in arrays.items() if v.dtype.kind == "f"}))
    params, obs = io.load_params(path).params, hmmjax.Observations(tools=np.full((4, 3), 0.7, np.float32))
    assert all(np.asarray(x).dtype.isnative for x in jax.tree.leaves(params))
    np.testing.assert_allclose(hmmjax.posterior(params, obs).tools, hmmjax.posterior(example(), obs).tools, atol=1e-6)


OLD = sorted((Path(__file__).parent / "fixtures").glob("model_v*.npz"))


def test_there_is_a_file_of_every_version():
    assert [int(p.stem.removeprefix("model_v")) for p in OLD] == list(range(1, model_file.VERSION + 1))


@pytest.mark.parametrize("path", OLD, ids=lambda p: p.stem)
def test_files_of_every_version_load(path):
    """Each file was written by the version of hmmjax that introduced the format, and is never regenerated."""
    model = io.load_params(path)
    assert (model.phase_names, model.tool_names, model.fps) == (("Alpha", "Beta", "Gamma"), ("Knife", "Fork"), 1.0)
    assert model.metadata == {"videos": ["video01"], "method": "for tests"}
    phases, tools = model.params.phases, model.params.tools
    np.testing.assert_allclose(phases.transition, [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]], rtol=1e-6)
    assert [type(f).__name__ for f in phases.emission.families] == ["PhaseConfusion", "Tempered"]
    assert type(tools.emission).__name__ == "ToolBeta" and tools.transition.matrix.shape == (2, 3, 2, 2)
    obs = hmmjax.Observations((np.array([0, 1]), np.full((2, 3), 1 / 3, np.float32)), np.full((2, 2), 0.5, np.float32))
    assert np.isfinite(hmmjax.log_likelihood(model.params, obs))


def test_bad_files(tmp_path):
    path = tmp_path / "m.npz"
    io.save_params(path, example())
    (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:-300])
    np.savez(tmp_path / "other.npz", phases_1=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", header=np.array({"a": 1}, dtype=object))
    np.savez(tmp_path / "garbled.npz", header=np.array("{"))
    for name, cause in (
        ("none.npz", "the model file does not exist"),
        ("cut.npz", "damaged or truncated"),
        ("other.npz", "not an hmmjax model"),
        ("pickled.npz", "not an hmmjax model"),
        ("garbled.npz", "header of the model file is damaged"),
    ):
        with pytest.raises(io.FormatError, match=cause):
            io.load_params(tmp_path / name)


def test_models_are_not_overwritten(tmp_path):
    io.save_params(tmp_path / "m.npz", example())
    with pytest.raises(FileExistsError):
        io.save_params(tmp_path / "m.npz", example())
    io.save_params(tmp_path / "m.npz", example(), force=True)
