"""State dicts: errors list every mismatch, round trips are exact, and unpickling executes no code."""

import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flax", reason="needs the vision extra (flax)")

import jax
from flax import nnx

from models.backbones import build
from models.torchfile import read_torch
from models.weights import WeightsError, export_state, load_state, load_weights, read_state, save_state

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def network():
    return build("resnet18", classes=4, rngs=nnx.Rngs(0))


def test_errors_list_every_entry_and_leave_the_network_unchanged(network):
    state = export_state(network)
    before = jax.tree.leaves(nnx.state(network))
    del state["bn1.bias"], state["layer2.0.conv1.weight"]
    state["extra.weight"] = np.zeros(3, np.float32)
    state["fc.weight"] = np.zeros((1000, 512), np.float32)
    with pytest.raises(WeightsError) as caught:
        load_state(network, state)
    error = caught.value
    assert error.missing == ["bn1.bias", "layer2.0.conv1.weight"]
    assert error.unexpected == ["extra.weight"]
    assert error.misshaped == {"fc.weight": ((4, 512), (1000, 512))}
    for word in ("bn1.bias", "extra.weight", "fc.weight has shape (1000, 512), expected (4, 512)"):
        assert word in str(error)
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.leaves(nnx.state(network)))


def test_a_network_without_classes_ignores_the_classifier(network):
    headless = build("resnet18", rngs=nnx.Rngs(1))
    load_state(headless, export_state(network))
    np.testing.assert_array_equal(headless.conv1.kernel[...], network.conv1.kernel[...])
    with pytest.raises(WeightsError, match=r"missing.*fc\.bias"):
        load_state(network, export_state(headless))


def test_names_of_a_wrapped_network_and_any_floating_type(network):
    """The prefix "module." of DataParallel is removed, and weights of any floating-point type are accepted."""
    state = export_state(network)
    other = build("resnet18", classes=4, rngs=nnx.Rngs(1))
    load_state(other, {f"module.{name}": value.astype(np.float64) for name, value in state.items()})
    np.testing.assert_array_equal(other.conv1.kernel[...], network.conv1.kernel[...])
    with pytest.raises(WeightsError, match=r"unexpected \(1\): module.fc.bias"):
        load_state(other, {("module." if name == "fc.bias" else "") + name: value for name, value in state.items()})
    with pytest.raises(ValueError, match=r"conv1.weight \(int8\).*float32"):
        load_state(other, state | {"conv1.weight": np.ones((64, 3, 7, 7), np.int8)})
    np.testing.assert_array_equal(other.conv1.kernel[...], network.conv1.kernel[...])


def test_damaged_safetensors_name_the_file(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "net.safetensors"
    save_state(path, {"a": np.ones((2, 3), np.float32)})
    whole = path.read_bytes()
    eights = b'{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}'
    for content in (b"", whole[:20], whole[:-1], struct.pack("<Q", 2**60) + whole[8:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"net\.safetensors is not a readable"):
            read_state(path)
    path.write_bytes(struct.pack("<Q", len(eights)) + eights + bytes(2))
    with pytest.raises(ValueError, match=r"net\.safetensors is not a readable"):
        read_state(path)
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "nowhere.safetensors")


def test_safetensors_round_trip(network, tmp_path):
    pytest.importorskip("safetensors")
    save_state(tmp_path / "net.safetensors", export_state(network))
    other = build("resnet18", classes=4, rngs=nnx.Rngs(1))
    load_weights(other, tmp_path / "net.safetensors")
    again = export_state(other)
    for name, value in export_state(network).items():
        np.testing.assert_array_equal(again[name], value)
    assert again["bn1.num_batches_tracked"].dtype == np.int64


# Both files were written by torch 2.11: {"conv.weight": arange(24) as (2, 3, 2, 2), "half": bfloat16 [1.5, -2],
# "count": 7, "t": arange(6) as (2, 3) transposed, "param": Parameter of ones(2)}.
@pytest.mark.parametrize("file", ["tiny.pth", "tiny_legacy.pth"])
def test_files_of_torch(file):
    state = read_state(HERE / file)
    np.testing.assert_array_equal(state["conv.weight"], np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2))
    np.testing.assert_array_equal(state["half"].astype(np.float32), [1.5, -2])
    assert state["count"] == 7 and state["count"].dtype == np.int64
    np.testing.assert_array_equal(state["t"], np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(state["param"], [1, 1])


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def zipped(path, data, **members):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for name, content in members.items():
            archive.writestr(f"archive/data/{name}", content)
    return path


def test_unpickling_executes_no_code(tmp_path):
    victim = tmp_path / "touched"
    for data in (pickle.dumps(Evil(victim)), b"cos\nsystem\n(S'true'\ntR.", b"cbuiltins\neval\n(S'1'\ntR."):
        (tmp_path / "plain.pth").write_bytes(data)
        for path in (zipped(tmp_path / "evil.pth", data), tmp_path / "plain.pth"):
            with pytest.raises(ValueError, match="refused to load"):
                read_torch(path)
    assert not victim.exists()


def torch_pickle(offset, shape, strides, count=4):
    """Write, in the text of protocol 0, a state dict with one float32 tensor in the storage "0"."""

    def group(numbers):
        return "(" + "".join(f"I{n}\n" for n in numbers) + "t"

    storage = f"(S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI{count}\ntQ"
    arguments = f"({storage}I{offset}\n{group(shape)}{group(strides)}I00\n(dt"
    return f"(dS'w'\nctorch._utils\n_rebuild_tensor_v2\n{arguments}Rs.".encode()


def test_tensors_stay_inside_their_storage(tmp_path):
    data = np.arange(4, dtype="<f4").tobytes()
    good = read_torch(zipped(tmp_path / "good.pth", torch_pickle(1, (3,), (1,)), **{"0": data}))
    np.testing.assert_array_equal(good["w"], [1, 2, 3])
    for offset, shape, strides in ((2, (3,), (1,)), (0, (2, 2), (4, 1)), (-1, (2,), (1,)), (0, (9, 9), (0, 0))):
        path = zipped(tmp_path / "bad.pth", torch_pickle(offset, shape, strides), **{"0": data})
        with pytest.raises(ValueError, match="tensor"):
            read_torch(path)
    with pytest.raises(ValueError, match="bytes"):
        read_torch(zipped(tmp_path / "short.pth", torch_pickle(0, (4,), (1,)), **{"0": data[:-1]}))


STORED = struct.pack("<q", 4) + np.arange(4, dtype="<f4").tobytes()


def legacy(data, keys=("0",), numbers=STORED):
    """Wrap a pickle of tensors in the file format before PyTorch 1.6."""
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({}, 2)
    return head + data + pickle.dumps(list(keys), 2) + numbers


def test_damage_of_any_kind_names_the_file(tmp_path):
    """All exceptions of zipfile, zlib and pickle become a ValueError; declared lengths allocate no memory."""
    good, numbers = torch_pickle(0, (4,), (1,)), np.arange(4, dtype="<f4").tobytes()
    path = tmp_path / "net.pth"
    path.write_bytes(legacy(good))
    np.testing.assert_array_equal(read_torch(path)["w"], np.arange(4))
    damaged = [
        legacy(good, keys=()),  # a tensor without its values
        legacy(good, numbers=struct.pack("<q", 4) + numbers[:7]),
        legacy(good, numbers=struct.pack("<q", -4) + numbers),
        legacy(b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"."),  # a string of a terabyte
        legacy(b"\x80\x02}r" + struct.pack("<I", 2**32 - 1) + b"."),  # a memo of four billion entries
    ]
    pickles = [b"}}b.", b"Pabc\n.", b"I" + b"9" * 5000 + b"\n.", good.replace(b"QI0\n", b"QF0.5\n")]
    pickles.append(torch_pickle(0, (0, 10**30), (1, 1)))
    for data in pickles:
        damaged.append(zipped(tmp_path / "zip", data, **{"0": numbers}).read_bytes())
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", good)
        archive.writestr("archive/data/0", bytes(10**6))
    damaged.append((tmp_path / "zip").read_bytes())
    for offset, value in ((8, 1), (10, 99)):  # marked as encrypted, and with an unknown compression
        entry = bytearray(zipped(tmp_path / "zip", good, **{"0": numbers}).read_bytes())
        entry[entry.find(b"PK\x01\x02") + offset] |= value
        damaged.append(bytes(entry))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"net\.pth is not a torch file"):
            read_torch(path)


@pytest.mark.parametrize("file", ["tiny.pth", "tiny_legacy.pth"])
def test_truncated_and_changed_files_raise_only_value_errors(file, tmp_path):
    whole, path, rng = (HERE / file).read_bytes(), tmp_path / "net.pth", np.random.default_rng(0)
    contents = [whole[:n] for n in range(0, len(whole), 41)]
    for _ in range(200):
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] = rng.integers(256)
        contents.append(bytes(changed))
    refused = 0
    for content in contents:
        path.write_bytes(content)
        try:
            read_torch(path)
        except ValueError as error:
            refused += 1
            assert "net.pth" in str(error)
    assert refused > len(whole) // 41


def test_other_files_are_rejected(tmp_path):
    for name, content in (("a.pth", b""), ("b.pth", b"no pickle"), ("c.pth", pickle.dumps([1, 2]))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            read_state(tmp_path / name)
    with pytest.raises(ValueError, match="safetensors"):
        read_state(tmp_path / "weights.h5")


def test_shared_dictionaries_do_not_multiply(tmp_path):
    """A few bytes that stand for 2**40 entries are refused."""
    value = {}
    for _ in range(40):
        value = {"a": value, "b": value}
    zipped(tmp_path / "a.pth", pickle.dumps(value))
    with pytest.raises(ValueError, match="more than 1,000,000 entries"):
        read_torch(tmp_path / "a.pth")
