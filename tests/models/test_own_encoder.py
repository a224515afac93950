"""Features of an encoder that is not in models/ become a table: transformers on CPU with random weights."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "av", "safetensors"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from typer.testing import CliRunner

from hmmjax.cli import app
from models.data.feature_files import Layout, read_features
from models.data.simsurg import write_cholec80
from models.predict import main as predict_main
from models.train import main as train_main

SCRIPT = Path(__file__).parents[2] / "examples" / "transformers_features.py"
PARTS = ("train",) * 6 + ("val",) * 3 + ("test",) * 3
DINOV2 = {
    "model_type": "dinov2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 56,
}


def interpreter():
    """The Python of an environment with torch and transformers, which no extra of this project installs."""
    if named := os.environ.get("HMMJAX_TRANSFORMERS"):
        return named
    if not all(importlib.util.find_spec(package) for package in ("torch", "transformers")):
        pytest.skip("needs torch and transformers: set HMMJAX_TRANSFORMERS to the Python of an environment with both")
    return sys.executable


@pytest.mark.slow
def test_an_encoder_of_transformers_ends_in_a_table(tmp_path):
    root = tmp_path / "c80"
    surgeries = write_cholec80(root, len(PARTS), seed=3, minutes=0.5, size=(56, 84))
    videos = [f"video{n:02d}" for n in range(1, len(PARTS) + 1)]
    command = [interpreter(), SCRIPT, json.dumps(DINOV2), *(root / "videos" / f"{video}.mp4" for video in videos)]
    command += ["--out", tmp_path / "features", "--size", "56", "84", "--batch", "16"]

    def extract():
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert not done.returncode, done.stderr
        return done.stdout

    assert extract().count("32 channels") == len(PARTS)
    second = read_features(tmp_path / "features" / "video02.safetensors", Layout())
    # A video ends one frame after its last second.
    seconds = len(surgeries[1])
    assert second.frames[:seconds].tolist() == [25 * i for i in range(seconds)] and len(second.frames) <= seconds + 1
    assert second.values.dtype == np.float16 and second.fps == 25 and np.std(np.float32(second.values), 0).min() > 0
    # A second call writes only what is missing, and the same.
    (tmp_path / "features" / "video02.safetensors").unlink()
    assert extract().count(": exists") == len(PARTS) - 1
    again = read_features(tmp_path / "features" / "video02.safetensors", Layout())
    np.testing.assert_array_equal(again.values, second.values)

    rows = [
        f"  - {{id: {video}, phases: phase_annotations/{video}-phase.txt, tools: tool_annotations/{video}-tool.txt, "
        f"part: {part}}}"
        for video, part in zip(videos, PARTS, strict=True)
    ]
    manifest = root / "manifest.yaml"
    manifest.write_text("\n".join(["phases: cholec80", "tools: cholec80", "videos:", *rows, ""]))
    run, predictions = tmp_path / "run", tmp_path / "predictions.npz"
    settings = {
        "run": run,
        "system": "phasenet_a",
        "features": tmp_path / "features",
        "data.train": manifest,
        "data.val": manifest,
        "batch": 2,
        "epochs": 10,
        "tensorboard": "false",
        "temporal_options": "{width: 16, heads: 2, layers: 1}",
    }
    train_main(["--quiet", *(f"{key}={value}" for key, value in settings.items())])
    predict_main([str(run), str(tmp_path / "features"), "--out", str(predictions), "--quiet"])
    words = ["stabilize", predictions, "--learn-from", "val", "--apply-to", "test", "--phase-names", "cholec80"]
    words += ["--annotations", root, "--no-pictures", "--out", tmp_path / "results"]
    answer = CliRunner().invoke(app, [str(word) for word in words])
    assert answer.exit_code == 0, answer.output
    with open(tmp_path / "results" / "table.csv", newline="") as file:
        table = list(csv.DictReader(file))
    rows = {row["system"]: row for row in table if row["figure"] == "phase accuracy, pooled"}
    assert set(rows) == {"M", "M_H", "M_H online"}
    for row in rows.values():
        assert row["split"] == "learned from 3 videos (val), applied to 3 others (test)"
        # The frame after the last second has a phase as well.
        assert int(row["frames"]) == sum(len(surgery) + 1 for surgery in surgeries[-3:])
        assert 0 < float(row["value"]) < 1
