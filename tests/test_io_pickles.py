"""Pickles and files of torch are read as plain data; anything else is refused by name, and nothing is executed."""

import collections
import fractions
import io as pickle_io
import pickle
import struct
import sys
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from files import fails

from hmmjax import io
from hmmjax.io.unpickle import read_pickle

SCORES = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
PHASES, TOOLS = np.array([0, 1, 1]), np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]])
NAMES = {"phase_names": ("Alpha", "Beta"), "tool_names": ("Knife", "Fork", "Spoon")}


def dump(path, content, protocol=4):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back_as_it_was(tmp_path, protocol):
    content = {
        "a": [1, 2.5, "text", None, True],
        3: np.arange(6, dtype=">i2").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.float32(1.5),
        "names": np.array(["Hook", "Clipper"]),
        "ordered": collections.OrderedDict(x=np.zeros(0)),
        "bytes": b"raw",
    }
    found = read_pickle(str(dump(tmp_path / "a.pkl", content, protocol)))
    assert list(found) == list(content) and found["a"] == content["a"] and found["bytes"] == b"raw"
    for key in (3, "fortran", "names"):
        assert found[key].dtype == content[key].dtype
        np.testing.assert_array_equal(found[key], content[key])
    assert found["scalar"] == 1.5 and found["ordered"]["x"].shape == (0,)


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (fractions.Fraction(1, 3), "fractions.Fraction"),
        ({"x": [collections.Counter("ab")]}, "collections.Counter"),
        (np.ma.masked_array([1, 2], [0, 1]), "numpy.*ma"),
        (np.array([{1: 2}], object), "Python objects|dtype"),
        (np.array(["2020-01-01"], "M8[D]"), "dtype 'M8'"),
        ({1, 2}, "set"),
    ],
)
def test_other_objects_are_refused_by_name(tmp_path, content, named):
    error = fails(named, dump(tmp_path / "video01.pkl", content), track="phases")
    assert "np.savez" in error.fix and str(tmp_path) in str(error)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_array_alone(tmp_path, protocol):
    np.testing.assert_array_equal(read_pickle(str(dump(tmp_path / "video41.pkl", SCORES, protocol))), SCORES)


def test_nothing_is_executed(tmp_path):
    for i, content in enumerate(([Trap(str(tmp_path / "sprung"))], {"video01": Trap(str(tmp_path / "sprung"))})):
        for protocol in (0, 2, 4):
            fails(r"io\.open", dump(tmp_path / f"video{i}.pkl", content, protocol))
    # Names that the reader allows lead to its own objects, not to NumPy's.
    hand = b"cnumpy\nndarray\n(I1\ntR."
    (tmp_path / "c.pkl").write_bytes(hand)
    fails("malformed", tmp_path / "c.pkl")
    assert not (tmp_path / "sprung").exists()


def test_damaged_pickles_are_format_errors(tmp_path):
    good = pickle.dumps({"video01": SCORES, "video02": {"phase_gt": PHASES}})
    rng = np.random.default_rng(0)
    for _ in range(300):
        bad = bytearray(good[: rng.integers(1, len(good) + 1)])
        for place in rng.integers(0, len(bad), rng.integers(1, 4)):
            bad[place] = rng.integers(0, 256)
        (tmp_path / "a.pkl").write_bytes(bytes(bad))
        try:
            io.read(tmp_path / "a.pkl", track="phases")
        except io.FormatError as error:
            assert "a.pkl" in str(error)


def test_tecno(tmp_path):
    """Features, scores and labels of one video; the name tells the rate."""
    logits = np.log(SCORES)
    dump(tmp_path / "video_41_1.0fps.pkl", [np.zeros((3, 4)), logits, PHASES])
    dump(tmp_path / "video_42_5.0fps.pkl", [np.zeros((3, 4)).tolist(), logits.tolist(), PHASES.tolist()])
    first, second = io.read(tmp_path, kind="logits")
    assert (first.video, second.video) == ("video41", "video42")
    assert first.frames.tolist() == [0, 25, 50] and second.frames.tolist() == [0, 5, 10]
    np.testing.assert_allclose(first.values, SCORES)
    assert [t.values.tolist() for t in io.read_annotations(tmp_path)] == [PHASES.tolist()] * 2
    assert "kind='logits'" in fails("not a probability", tmp_path).fix
    fails("not a whole number of frames apart", dump(tmp_path / "v_3_0.7fps.pkl", [np.zeros((3, 4)), logits, PHASES]))
    # Results are NPZ files: pickles are not written.
    (written,) = io.write([first], tmp_path / "out", like=[first])
    assert written.name == "video_41_1.0fps.npz"
    np.testing.assert_allclose(io.read(written, kind="logits")[0].values, SCORES, rtol=1e-6)


def test_arrays_and_rows_per_video(tmp_path):
    (found,) = io.read(dump(tmp_path / "a.pkl", {"video41": SCORES}), track="phases")
    assert found.video == "video41" and not found.is_labels
    found = io.read(dump(tmp_path / "b.pkl", {7: {"phase_gt_sec": PHASES, "tool_gt_sec": TOOLS}}), **NAMES)
    assert [(t.track, t.video) for t in found] == [("phases", "video07"), ("tools", "video07")]
    np.testing.assert_array_equal(found[1].values, TOOLS)
    rows = [
        {"unique_id": 9, "frame_id": 25 * i, "phase_gt": int(p), "phase_name": "x", "tool_gt": t, "fps": 1}
        for i, (p, t) in enumerate(zip(PHASES, (*TOOLS[:2].tolist(), None), strict=True))
    ]
    phases, tools = io.read_annotations(dump(tmp_path / "c.pkl", {"video05": rows}), **NAMES)
    assert phases.frames.tolist() == [0, 25, 50] and phases.values.tolist() == PHASES.tolist()
    assert tools.values.tolist() == [[1, 0, 0], [0, 1, 0], [-1, -1, -1]]
    fails("a list of 2", dump(tmp_path / "d.pkl", [SCORES, SCORES[:2]]))
    fails("a dictionary with the keys epoch", dump(tmp_path / "e.pkl", {"epoch": 3}))


@pytest.mark.parametrize("name", ["tiny.pth", "tiny_legacy.pth"])
def test_files_of_torch(name):
    """As torch writes them today and wrote them before version 1.6, with the same tensors."""
    found = read_pickle(str(Path(__file__).parent / "models" / name))
    found = found.get("state_dict", found)
    assert found["conv.weight"].shape == (2, 3, 2, 2) and found["conv.weight"].dtype == np.float32
    assert found["half"].dtype == np.float32 and found["count"].dtype == np.int64
    other = read_pickle(str(Path(__file__).parent / "models" / "tiny.pth"))
    other = other.get("state_dict", other)
    for key, value in found.items():
        np.testing.assert_array_equal(value, other[key])


def test_tensors_inside_of_pickles(tmp_path, monkeypatch):
    """A tensor pickles its storage as torch's earlier format, in bytes; written here without torch."""
    torch, utils, storage = (types.ModuleType(name) for name in ("torch", "torch._utils", "torch.storage"))
    for module, names in ((torch, ["DoubleStorage"]), (utils, ["_rebuild_tensor_v2"]), (storage, ["_load_from_bytes"])):
        for name in names:
            setattr(module, name, type(name, (), {"__module__": module.__name__}))
        monkeypatch.setitem(sys.modules, module.__name__, module)

    class Pickler(pickle.Pickler):
        def persistent_id(self, x):
            return ("storage", torch.DoubleStorage, "0", "cpu", 6, None) if isinstance(x, float) else None

    stream = pickle_io.BytesIO()
    for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(part, stream, 2)
    Pickler(stream, 2).dump(0.0)  # stands for the storage
    pickle.dump(["0"], stream, 2)
    stream.write(struct.pack("<q", 6) + SCORES.tobytes())

    class Tensor:
        def __init__(self, offset, shape, strides):
            self.view = offset, shape, strides

        def __reduce__(self):
            return utils._rebuild_tensor_v2, (Storage(), *self.view, False, collections.OrderedDict())

    class Storage:
        def __reduce__(self):
            return storage._load_from_bytes, (stream.getvalue(),)

    dump(tmp_path / "a.pkl", {"video41": Tensor(0, (3, 2), (2, 1)), "video42": Tensor(1, (3,), (2,))}, 2)
    first, second = read_pickle(str(tmp_path / "a.pkl")).values()
    np.testing.assert_array_equal(first, SCORES)
    np.testing.assert_array_equal(second, SCORES[:, 1])
    fails("outside its storage", dump(tmp_path / "b.pkl", {"video41": Tensor(1, (3, 2), (2, 1))}, 2))
    fails("outside its storage", dump(tmp_path / "b.pkl", {"video41": Tensor(0, (10**9, 10**9), (0, 0))}, 2))


def test_tensors_of_an_installed_torch(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = {"video41": torch.tensor(SCORES), "video42": torch.tensor(SCORES).T.contiguous().T[1:]}
    torch.save(tensors, tmp_path / "new.pt")
    torch.save(tensors, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    dump(tmp_path / "inside.pkl", tensors)
    for name in ("new.pt", "old.pth", "inside.pkl"):
        found = io.read(tmp_path / name, track="phases")
        np.testing.assert_array_equal(found[0].values, SCORES)
        np.testing.assert_array_equal(found[1].values, SCORES[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(torch.nn.Linear(2, 1), tmp_path / "network.pt")
    fails(r"torch\.nn\.modules\.linear\.Linear", tmp_path / "network.pt")
    with zipfile.ZipFile(tmp_path / "cut.pt", "w") as archive:
        archive.writestr("cut/data.pkl", zipfile.ZipFile(tmp_path / "new.pt").read("new/data.pkl"))
    fails("data/0 is missing", tmp_path / "cut.pt")


def doubled(value, times):
    """Return lists of lists that share their contents: a few bytes that stand for 2**times values."""
    for _ in range(times):
        value = [value, value]
    return value


def test_shared_contents_do_not_multiply(tmp_path):
    """Objects that a pickle refers to many times are converted once, and refused if they stand for too many values."""
    path = dump(tmp_path / "a.pkl", doubled([1], 45))
    assert path.stat().st_size < 400
    with pytest.raises(ValueError, match=r"stands for more than .* values, too many for its size"):
        read_pickle(str(path))
    row = [0, 1, 0]
    assert read_pickle(str(dump(path, {"a": [row] * 1000, "b": doubled([2], 3)}))) == {
        "a": [row] * 1000,
        "b": doubled([2], 3),
    }
