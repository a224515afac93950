"""Test sequence models of several seeds that train as one program."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import json

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import tiny  # noqa: F401 (registers a small backbone)

from models.data.cache import read_cache
from models.experiment.__main__ import main
from models.experiment.lane_runs import Run
from models.experiment.lanes import train_lanes
from models.experiment.plan import group, read_plan
from models.settings import read_config

pytestmark = pytest.mark.thorough

PLAN = """
seeds: [0, 1]
data: {{simsurg: {{whole: 2, single: 1, val: 1, test: 2}}, minutes: 1, size: [16, 16]}}
emissions: [confusion]
{rates}
train: {{dtype: float32, size: [16, 16], batch: 16, eval_batch: 64, epochs: 1, backbone: micro, eval_every: 2}}
temporal: {{batch: 1, epochs: 4, optimizer: {{learning_rate: 0.01, warmup_epochs: 1}}}}
systems:
  EndoNet: {{system: endonet}}
  EndoNet_L: {{system: endonet_l, frozen: EndoNet, temporal_options: {{width: 4}}, loss: {{balance: true}}}}
  Second: {{system: toolnet, seeds: [1], weights: EndoNet}}
out: {out}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same experiment with lanes and without."""
    folder = tmp_path_factory.mktemp("lanes")
    plans = []
    for name, rates in (("alone", ""), ("lanes", "rates: [1]")):
        path = folder / f"{name}.yaml"
        path.write_text(PLAN.format(rates=rates, out=folder / name))
        plans.append(read_plan(path))
    main([str(folder / "alone.yaml"), "--stage", "predict"])
    # Both read the same backbones.
    for seed in (0, 1):
        for part in ("data", "S_C/view", "S_C/EndoNet"):
            (folder / f"lanes/seed{seed}" / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / f"lanes/seed{seed}" / part).symlink_to(folder / f"alone/seed{seed}" / part)
    main([str(folder / "lanes.yaml"), "--stage", "predict", "--systems", "EndoNet_L"])
    return plans


def test_a_lane_trains_like_a_run_of_its_own(trained):
    """Two seeds, with videos of other lengths: the same updates, and the same choice in validation."""
    for alone, together in zip(*(plan.cells() for plan in trained), strict=True):
        if alone.name != "EndoNet_L":
            continue
        with np.load(alone.folder / "predictions.npz") as one, np.load(together.folder / "predictions.npz") as other:
            assert one.files == other.files
            for name in one.files:
                if one[name].dtype.kind == "f":
                    np.testing.assert_allclose(one[name], other[name], atol=2e-3)
                else:
                    np.testing.assert_array_equal(one[name], other[name])
        about = [json.loads((cell.folder / "predicted.json").read_text()) for cell in (alone, together)]
        assert about[0]["cost"] == about[1]["cost"] and about[1]["choice"]["rate"] == 1


def test_validation_chooses_learning_rate_and_updates(trained):
    cell = next(cell for cell in trained[1].cells() if cell.name == "EndoNet_L")
    view = read_cache(cell.folder.parent / "view")
    config = read_config(None, [*cell.settings, "frozen=x", "seed=0"])
    features = np.random.default_rng(0).normal(size=(len(view), 5)).astype(np.float32)
    (chosen,) = train_lanes([Run(config, view.table, features)], [0.1, 1.0])
    scores = {rate: dict(map(tuple, history)) for rate, history in chosen.history.items()}
    assert [list(x) for x in scores.values()] == [[4, 8], [4, 8]]
    assert scores[f"{chosen.rate:g}"][chosen.updates] == max(max(x.values()) for x in scores.values()) == chosen.score
    assert set(chosen.predicted) == set(view.table.videos[np.isin(view.table.parts, ["val", "test"])])
    # Without time for a second validation, the first decides.
    (chosen,) = train_lanes([Run(config, view.table, features)], [1.0], seconds=1e-9)
    assert chosen.updates == 4 and [len(x) for x in chosen.history.values()] == [1]


def test_what_lanes_cannot_train(trained):
    cell = next(cell for cell in trained[1].cells() if cell.name == "EndoNet_L")
    table = read_cache(cell.folder.parent / "view").table
    features = np.zeros((len(table), 5), np.float32)
    clips = read_config(None, ["system=endonet_l", "clip=4"])
    with pytest.raises(ValueError, match="clip=4 cannot be combined with rates"):
        train_lanes([Run(clips, table, features)], [1.0])
    config = read_config(None, ["system=endonet_l", "frozen=x"])
    first = table.videos == table.videos[table.rows("test")][0]
    fewer = dataclasses.replace(table, parts=np.where(first, "", table.parts))
    with pytest.raises(ValueError, match="1 and 2 videos in test"):
        train_lanes([Run(config, table, features), Run(config, fewer, features)], [1.0])


def test_a_network_that_diverges_is_not_chosen(trained):
    cell = next(cell for cell in trained[1].cells() if cell.name == "EndoNet_L")
    table = read_cache(cell.folder.parent / "view").table
    config = read_config(None, [*cell.settings, "frozen=x", "seed=3", "epochs=2"])
    features = np.full((len(table), 5), np.nan, np.float32)
    with pytest.raises(ValueError, match="seed 3 has no network with a finite validation score"):
        train_lanes([Run(config, table, features)], [1.0])


def test_cells_of_all_seeds_train_together(trained):
    alone, together = trained
    assert [len(cells) for cells in group(alone, alone.cells())] == [1] * 5
    sizes = {cells[0].name: len(cells) for cells in group(together, together.cells())}
    assert sizes == {"EndoNet": 1, "EndoNet_L": 2, "Second": 1}


def test_a_system_begins_with_the_backbone_of_another(trained):
    cell = next(cell for cell in trained[0].cells() if cell.name == "Second")
    assert cell.seed == 1 and cell.needs == ("EndoNet",) and (cell.folder / "backbone.safetensors").exists()
    seconds = [
        json.loads((cell.folder.parent / name / "predicted.json").read_text())["train_seconds"]
        for name in ("EndoNet", "Second")
    ]
    assert seconds[1] > seconds[0]
