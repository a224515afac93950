"""Sources of frames, caches and loaders."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import numpy as np
import pytest

for package in ("flax", "PIL"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from tiny import boxed_frames, frames

from hmmjax.io import FormatError
from models.data.cache import load_images, main, open_source, read_cache, write_cache
from models.data.frames import FrameTable, ImageFiles, pack, read_packed, take
from models.data.loader import epoch_order, even_batches, prefetch, read_batches
from models.data.m2cai_source import m2cai16_locations


@pytest.fixture(scope="module")
def m2cai16(data_dir):
    folder = data_dir / "m2cai16-tool-locations"
    if not (folder / "JPEGImages").is_dir():
        pytest.skip(f"no m2cai16-tool-locations in {data_dir}")
    return folder


def test_m2cai16_is_read(m2cai16):
    source = m2cai16_locations(m2cai16, (60, 106))
    table = source.table
    assert {part: len(table.rows(part)) for part in ("train", "val")} == {"train": 1405, "val": 843}
    assert (table.tools.sum(1) >= 1).all()  # every frame has a box
    assert (table.frames % 25 == 0).all() and set(table.videos) == {f"video{n}" for n in range(67, 77)}
    assert set(table.phases) <= set(range(7))
    assert source[0].shape == (60, 106, 3) and source[0].std() > 10
    with pytest.raises(FormatError, match="the part 'test' has no frames"):
        table.rows("test")


def test_packed_and_cached_frames(m2cai16, tmp_path):
    source = m2cai16_locations(m2cai16, (60, 106))
    rows = np.arange(0, 2248, 225)
    packed = pack(source, rows, quality=95)
    packed.save(tmp_path / "packed.npz")
    again = open_source(str(tmp_path / "packed.npz"))
    np.testing.assert_array_equal(again.table.tools, source.table.tools[rows])
    difference = np.abs(again[3].astype(int) - source[int(rows[3])])
    assert difference.mean() < 3
    main([str(tmp_path / "packed.npz"), str(tmp_path / "cache"), "--size", "60", "106"])
    cache = open_source(str(tmp_path / "cache"), (60, 106))
    np.testing.assert_array_equal(cache.images, [again[i] for i in range(len(again))])
    np.testing.assert_array_equal(load_images(again).images, cache.images)
    with pytest.raises(FormatError, match="not \\(30, 53\\)"):
        open_source(str(tmp_path / "cache"), (30, 53))


def test_caches_preserve_the_table(tmp_path):
    source = frames()
    cache = write_cache(source, tmp_path / "cache")
    for name, value in source.table.arrays().items():
        np.testing.assert_array_equal(cache.table.arrays()[name], value)
    np.testing.assert_array_equal(cache.images, source.images)
    rows = source.table.rows("val")
    assert (take(source.table, rows).parts == "val").all()


def test_an_unfinished_cache_is_rejected(tmp_path):
    with pytest.raises(FormatError, match="no finished cache"):
        read_cache(tmp_path)


def test_a_cache_survives_what_is_written_over_it(tmp_path):
    """The old cache is kept until the new one is complete, also if it is itself the source."""
    cache = write_cache(frames(), tmp_path)
    before = np.array(cache.images)
    np.testing.assert_array_equal(write_cache(read_cache(tmp_path), tmp_path).images, before)

    class Broken:
        table = cache.table

        def __len__(self):
            return len(before)

        def __getitem__(self, index):
            if index == 5:
                raise FormatError("damaged")
            return before[index]

    with pytest.raises(FormatError, match="damaged"):
        write_cache(Broken(), tmp_path)
    np.testing.assert_array_equal(read_cache(tmp_path).images, before)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images.npy", "table.npz"]


def test_damaged_caches_and_packs_name_the_file(tmp_path):
    packed = pack(frames(), np.arange(4))
    packed.save(tmp_path / "packed.npz")
    cache = tmp_path / "cache"
    write_cache(frames(), cache)
    np.save(cache / "images.npy", np.zeros((3, 4, 4, 3), np.uint8))
    with pytest.raises(FormatError, match=r"cache: 3 images but labels of \d+ frames"):
        read_cache(cache)
    (cache / "images.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(FormatError, match="cache: damaged cache"):
        read_cache(cache)
    whole = (tmp_path / "packed.npz").read_bytes()
    (tmp_path / "packed.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"packed\.npz: not a readable file of packed images"):
        read_packed(tmp_path / "packed.npz")


def test_errors_of_the_command_are_one_line(tmp_path, capsys):
    for source in ("nowhere.npz", "nowhere", "nowhere.yaml"):
        with pytest.raises(SystemExit) as caught:
            main([str(tmp_path / source), str(tmp_path / "out"), "--size", "8", "8"])
        printed = capsys.readouterr().err
        assert caught.value.code == 2 and printed.startswith("error: ") and printed.count("\n") == 1


def test_videos_of_several_rates_are_cached_apart(tmp_path):
    from models.data.cache import write_collection
    from models.data.collections import Collection, Recording

    both = Collection("both", (Recording("a", fps=25), Recording("b", fps=30)), (), ())
    with pytest.raises(FormatError, match=r"2 frame rates \(25, 30 fps\).*a manifest and a cache"):
        write_collection(both, tmp_path / "cache", (8, 8))


def test_frames_of_several_sizes_need_one(tmp_path):
    from PIL import Image

    files = []
    for i, size in enumerate([(8, 6), (8, 7)]):
        files.append(tmp_path / f"{i}.png")
        Image.new("RGB", size).save(files[-1])
    table = take(frames().table, np.arange(2))
    with pytest.raises(FormatError, match="frame 1 has shape"):
        write_cache(ImageFiles(table, tuple(files)), tmp_path / "cache")
    assert write_cache(ImageFiles(table, tuple(files), (6, 8)), tmp_path / "cache").images.shape == (2, 6, 8, 3)


def test_orders():
    rows = np.arange(100, 121)
    first, again, next_ = (epoch_order(rows, 4, 0, epoch) for epoch in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (5, 4) and len(set(first.ravel())) == 20 and set(first.ravel()) <= set(rows)
    assert (first != next_).any() and (first != epoch_order(rows, 4, 1, 0)).any()
    assert epoch_order(rows[:3], 8, 0, 0).shape == (1, 8)
    even = even_batches(rows, 4)
    assert even.shape == (6, 4)
    np.testing.assert_array_equal(even.ravel()[:21], rows)


def test_grain_reads_the_same_batches():
    pytest.importorskip("grain", reason="needs the vision extra (grain)")
    source = frames()
    order = epoch_order(source.table.rows("train"), 8, 0, 0)
    alone, threads = (list(read_batches(source, order, workers=workers)) for workers in (0, 2))
    assert len(alone) == len(threads) == len(order)
    for a, b in zip(alone, threads, strict=True):
        for name in ("images", "phases", "tools"):
            np.testing.assert_array_equal(a[name], b[name])


def test_no_rows_are_rejected():
    with pytest.raises(ValueError, match="there are no frames to make batches of"):
        epoch_order(np.arange(0), 4, 0, 0)


def test_prefetch_yields_none():
    assert list(prefetch(range(4), lambda x: None if x == 1 else x)) == [0, None, 2, 3]


def test_prefetch_raises_errors():
    assert list(prefetch(range(5), lambda x: x + 1)) == [1, 2, 3, 4, 5]
    ahead = prefetch(range(5), lambda x: 1 // (3 - x))
    assert [next(ahead) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(ahead)
    endless = prefetch(iter(int, 1), lambda x: x)
    assert next(endless) == 0
    endless.close()


def test_packed_frames_need_no_folder(tmp_path):
    pack(frames(), quality=100).save(tmp_path / "packed.npz")
    assert len(read_packed(tmp_path / "packed.npz", (10, 14))) == 40
    assert read_packed(tmp_path / "packed.npz", (10, 14))[39].shape == (10, 14, 3)


COLUMNS = boxed_frames().table.arrays()


@pytest.mark.parametrize(
    "column, values",
    [
        *((name, x[:-1]) for name, x in COLUMNS.items() if x.ndim),
        *((name, np.float64(3)) for name in COLUMNS if name != "fps"),
        *(("fps", np.float64(x)) for x in (0, -1, np.nan)),
        ("tools", COLUMNS["tools"][:, 0]),
        ("phases", COLUMNS["phases"] + 1),
        ("phases", COLUMNS["phases"].astype(np.float32)),
        ("tools", COLUMNS["tools"] + 2),
        ("box_tools", COLUMNS["box_tools"] + 9),
        ("boxes", COLUMNS["boxes"] * np.nan),
        ("phase_weights", np.full(40, -1, np.float32)),
        ("videos", np.arange(40)),
        ("tool_names", np.array(["Lamp", "Lamp"])),
    ],
)
def test_invalid_columns(column, values):
    """Each invalid column is rejected by name when the table is read."""
    FrameTable.from_arrays(COLUMNS)
    # "frames" defines the number of frames, so the first column of another length is named.
    with pytest.raises(ValueError, match={"frames": "frames|videos"}.get(column, column.partition("_")[0])):
        FrameTable.from_arrays(COLUMNS | {column: values})


def test_damaged_columns_and_pictures_name_the_cache(tmp_path):
    write_cache(frames(), tmp_path / "cache")
    images = np.load(tmp_path / "cache" / "images.npy")
    for wrong in (images.astype(np.float32), images[..., 0], images[:, :0]):
        np.save(tmp_path / "cache" / "images.npy", wrong)
        with pytest.raises(FormatError, match=r"cache: the images are .* expected"):
            read_cache(tmp_path / "cache")
    np.savez(tmp_path / "cache" / "table.npz", **(frames().table.arrays() | {"parts": np.array(["val"])}))
    with pytest.raises(FormatError, match=r"cache: damaged cache \(parts has shape"):
        read_cache(tmp_path / "cache")


def test_the_earlier_spelling_of_unlabeled_is_read(tmp_path):
    """Caches and packs that name the part "unlabelled" are read, and the current spelling is written."""
    cache, current = tmp_path / "cache", write_cache(frames(), tmp_path / "cache").table.arrays()
    parts = np.where(current["parts"] == "val", "unlabelled", "train")
    np.savez(cache / "table.npz", **(current | {"parts": parts}))
    earlier = read_cache(cache)
    assert set(earlier.table.parts) == {"train", "unlabeled"}
    for part in ("unlabeled", "unlabelled"):
        np.testing.assert_array_equal(earlier.table.rows(part), np.flatnonzero(parts == "unlabelled"))
    packed = pack(earlier)
    packed.save(tmp_path / "packed.npz")
    for written in (write_cache(earlier, tmp_path / "copy"), read_packed(tmp_path / "packed.npz")):
        assert set(written.table.parts) == {"train", "unlabeled"}
    for file in (tmp_path / "copy" / "table.npz", tmp_path / "packed.npz"):
        with np.load(file) as arrays:
            assert set(arrays["parts"]) == {"train", "unlabeled"}
