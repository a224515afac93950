"""Files that are damaged or absurd: an error that names the file, never another kind, never a wrapped number."""

import json

import numpy as np
import pytest

import hmmjax
from hmmjax import io
from hmmjax.io import FormatError


def _npy(path, shape):
    header = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64)


@pytest.mark.parametrize("shape", [(2**40, 7), (2**63, 7)])
def test_headers_that_promise_too_much(tmp_path, shape):
    _npy(tmp_path / "video01.npy", shape)
    with pytest.raises(FormatError, match=r"video01\.npy"):
        io.read([tmp_path / "video01.npy"], track="phases")


def test_any_damaged_byte_is_a_format_error_or_still_reads(tmp_path):
    good = tmp_path / "good.npz"
    np.savez(good, phases_01=np.arange(20) % 7, tools_01=np.zeros((20, 7), int))
    data, rng = good.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        bad = bytearray(data)
        for at in rng.integers(0, len(bad), 3):
            bad[at] = rng.integers(256)
        path = tmp_path / "bad.npz"
        path.write_bytes(bad)
        try:
            io.read([path], phase_names="cholec80")
        except FormatError as error:
            refused += "bad.npz" in str(error)
    assert refused > 100


@pytest.mark.parametrize("labels", [np.array([0, 2**40 + 1]), np.array([0.0, 3e12]), np.array([0, 10**9])])
def test_labels_beyond_reason_are_refused_not_wrapped(tmp_path, labels):
    np.savez(tmp_path / "p.npz", phases_01=labels)
    with pytest.raises(FormatError, match="out of range"):
        io.read([tmp_path / "p.npz"])


@pytest.mark.parametrize("fps", ["fast", np.ones(3), 0.0, np.inf, -1.0])
def test_rates_that_are_none(tmp_path, fps):
    np.savez(tmp_path / "p.npz", phases_01=np.arange(4), fps=fps)
    with pytest.raises(FormatError, match="fps"):
        io.read([tmp_path / "p.npz"])


@pytest.mark.parametrize("names", [np.array([b"\xff\xfe"]), np.array(["a", "A"])])
def test_names_that_are_none(tmp_path, names):
    np.savez(tmp_path / "p.npz", phases_01=np.zeros(4, int), phase_names=names)
    with pytest.raises(FormatError, match="phase_names"):
        io.read([tmp_path / "p.npz"])


def test_frame_numbers_beyond_reason(tmp_path):
    path = tmp_path / "video01-phase.txt"
    path.write_text("0\t0\n99999999999999999999999\t1\n")
    with pytest.raises(FormatError, match=r"99999999999999999999999.*"):
        io.read([path])
    path.write_text("0\t0\n25\t0\n25000000000000\t1\n")
    with pytest.raises(FormatError, match="video01"):
        io.to_batch(io.join(io.read([path])))


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
    with pytest.raises(FormatError, match=r"model\.npz"):
        io.load_params(path)
