"""Every file reader on damaged and random bytes: an error that names the file, or values within bounds.

250 cases for each of six layouts, 100 for models and cost tables each; HMMJAX_FUZZ=10 makes them ten times as many.
"""

import os

import numpy as np
import pytest

import hmmjax
from hmmjax import io, report
from hmmjax.io import FormatError

TIMES = int(os.environ.get("HMMJAX_FUZZ", "1"))
CASES = 250 * TIMES
HEAD = "Frame\tGrasper\tBipolar\tHook\tScissors\tClipper\tIrrigator\tSpecimenBag"
LAYOUTS = {
    "video01-phase.txt": "Frame\tPhase\n" + "".join(f"{25 * i}\tPreparation\n" for i in range(12)),
    "video02-phase.txt": "".join(f"{25 * i}\t{i % 7}\n" for i in range(12)),
    "video03-tool.txt": HEAD + "\n" + "".join(f"{25 * i}\t1\t0\t0\t1\t0\t0\t0\n" for i in range(12)),
    "video04.csv": "Frame,Grasper,Hook\n" + "".join(f"{i},0.{i % 10},0.5\n" for i in range(12)),
    "video05_image_test.csv": "".join(
        f"{25 * (i // 7)},{name},10,20,30,40,0.9\n"
        for i, name in enumerate(["Grasper", "Bipolar", "Hook", "Scissors", "Clipper", "Irrigator", "SpecimenBag"] * 3)
    ),
    "video06.csv": "imgpath;stepInt;stepStr;probas\n"
    + "".join(f"a/video06-{i}.jpg;2;Preparation;0.1,0.9\n" for i in range(6)),
}
#: Damage is made of separators, extreme numbers, other alphabets and the first bytes of other formats.
PIECES = [b"\t", b",", b";", b"\n", b"\r\n", b" ", b"-1", b"nan", b"1e999", b"9" * 40, b"\0", b"\xff\xfe", b"\x80\x04",
          b"\xc3\xa9", b"Frame", b"Phase", b"PK\x03\x04", b"\x93NUMPY", b"0x10", b"1_000", b"'", b'"', b""]  # fmt: skip


def damage(rng, data):
    """One to four random edits: overwrite, insert, delete, repeat, cut short."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(data) + 1))
        piece = PIECES[rng.integers(len(PIECES))]
        kind = rng.integers(5)
        if kind == 0:
            data[at : at + len(piece)] = piece
        elif kind == 1:
            data[at:at] = piece
        elif kind == 2:
            del data[at : at + int(rng.integers(1, 30))]
        elif kind == 3:
            data[at:at] = data[max(at - 40, 0) : at] * int(rng.integers(1, 4))
        else:
            del data[at:]
    return bytes(data)


def check(tracks):
    for t in tracks:
        assert len(t.frames) == len(t.values) and len(t.frames) > 0 and (np.diff(t.frames) > 0).all()
        # Missing values are never silent.
        missing = t.values == -1 if t.is_labels else np.isnan(t.values)
        assert not missing.any() or any("are missing" in notice for x in tracks for notice in x.notices)
        given = t.values[~missing]
        assert np.isfinite(given).all() and given.min() >= 0
        assert t.is_labels or given.max() <= 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_damaged_text(tmp_path, name):
    rng = np.random.default_rng(sum(name.encode()))
    path, refused = tmp_path / name, 0
    for _ in range(CASES):
        path.write_bytes(damage(rng, LAYOUTS[name].encode()))
        try:
            check(io.read([path], phase_names="cholec80", tool_names="cholec80"))
        except FormatError as error:
            refused += 1
            assert name in str(error)
    assert refused > CASES // 20


@pytest.mark.parametrize("kind", ["random", "ascii"])
def test_random_bytes(tmp_path, kind):
    rng = np.random.default_rng(7)
    for case in range(100 * TIMES):
        suffix = ("txt", "csv", "npz", "npy", "tsv")[case % 5]
        path = tmp_path / f"video01.{suffix}"
        size = int(rng.integers(0, 400))
        path.write_bytes(bytes(rng.integers(0, 256, size, np.uint8) if kind == "random" else rng.integers(9, 127, size)
                               .astype(np.uint8)))  # fmt: skip
        with pytest.raises(FormatError, match=path.name):
            check(io.read([path], track="phases"))
            raise FormatError("it could be read", file=path)


def test_damaged_models(tmp_path):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    io.save_params(good, hmmjax.init_params(3, 2, emissions="confusion"), fps=1.0)
    data, rng, refused = good.read_bytes(), np.random.default_rng(1), 0
    for _ in range(100 * TIMES):
        bad.write_bytes(damage(rng, data))
        try:
            assert io.load_params(bad).params.num_phases == 3
        except FormatError as error:
            refused += "bad.npz" in str(error)
    assert refused > 50 * TIMES


def test_damaged_costs(tmp_path):
    rng, path = np.random.default_rng(2), tmp_path / "costs.csv"
    for _ in range(100 * TIMES):
        path.write_bytes(damage(rng, b"name,cost,value\nS_C,10,0.7\nS_D,2,0.6\n"))
        try:
            assert all(np.isfinite([p["cost"], p["value"]]).all() for p in report.read_costs(path))
        except FormatError as error:
            assert "costs.csv" in str(error)


def test_pickles_execute_nothing(tmp_path):
    import pickle

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    for name in ("video01.pkl", "video01.npy", "video01.npz", "video01.txt"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(FormatError):
            io.read([tmp_path / name], track="phases")
    np.savez(tmp_path / "objects.npz", phases_01=np.array([Trap()], object))
    with pytest.raises(FormatError):
        io.read([tmp_path / "objects.npz"])
    assert not (tmp_path / "trapped").exists()
