"""Test caches of collections: their size is forecast, what is written survives errors, nothing is decoded twice."""

import os
import shutil
from collections import namedtuple

import numpy as np
import pytest

pytest.importorskip("av", reason="videos need PyAV (the vision extra)")

from hmmjax.io import FormatError
from models.data import partial_cache
from models.data.cache import read_cache, write_collection
from models.data.cholec80 import cholec80
from models.data.collections import Collection

SIZE = (12, 16)


@pytest.fixture
def copy(layout, tmp_path):
    """A copy of the simulated videos in which one is cut off."""
    root = tmp_path / "c80"
    shutil.copytree(layout[0], root)
    path = root / "videos" / "video02.mp4"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return root, path, whole


def test_a_cache_continues_with_the_videos_that_are_missing(layout, copy, tmp_path, monkeypatch, capsys):
    root, path, whole = copy
    want = write_collection(cholec80(layout[0]), tmp_path / "want", SIZE)
    assert "take" in (shown := capsys.readouterr().err) and "GB are free" in shown
    with pytest.raises(FormatError, match=r"1 of 3 videos could not be read; the others are kept\. video02: "):
        write_collection(cholec80(root), tmp_path / "cache", SIZE, workers=2)
    with pytest.raises(FormatError, match="no finished cache"):
        read_cache(tmp_path / "cache")
    path.write_bytes(whole)
    decoded, pictures = [], Collection.pictures

    def counted(self, video, *args, **options):
        decoded.append(video)
        return pictures(self, video, *args, **options)

    monkeypatch.setattr(Collection, "pictures", counted)
    cache = write_collection(cholec80(root), tmp_path / "cache", SIZE)
    assert decoded == ["video02"]
    np.testing.assert_array_equal(cache.images, want.images)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["images.npy", "table.npz"]
    # Other settings are another cache: nothing of it is reused.
    decoded.clear()
    write_collection(cholec80(root), tmp_path / "cache", (8, 8))
    assert decoded == ["video01", "video02", "video03"]


def test_a_cache_larger_than_the_disk_is_refused_before_it_is_written(layout, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(partial_cache.shutil, "disk_usage", lambda path: usage(10**6, 0, 10**4))
    with pytest.raises(FormatError, match=r"frames of 12x16 take .* GB; 1e-05 GB are free.*--size"):
        write_collection(cholec80(layout[0]), tmp_path / "cache", SIZE)
    assert not list((tmp_path / "cache").iterdir())


def truncate(path):
    os.truncate(path, path.stat().st_size - 100)


@pytest.mark.parametrize("damage", [truncate, lambda path: path.write_bytes(b"no images"), os.remove])
def test_damaged_partial_images_are_written_again(layout, copy, tmp_path, damage):
    """Truncated images do not become black frames, and a file of something else is no bare error of NumPy."""
    root, path, whole = copy
    want = write_collection(cholec80(layout[0]), tmp_path / "want", SIZE)
    with pytest.raises(FormatError, match="video02"):
        write_collection(cholec80(root), tmp_path / "cache", SIZE)
    damage(tmp_path / "cache" / "partial_images.npy")
    path.write_bytes(whole)
    np.testing.assert_array_equal(write_collection(cholec80(root), tmp_path / "cache", SIZE).images, want.images)


def test_images_that_were_published_without_their_table_are_not_decoded_again(layout, tmp_path, monkeypatch):
    want = write_collection(cholec80(layout[0]), tmp_path / "want", SIZE)
    replace = os.replace

    def killed(source, target):
        replace(source, target)
        if str(target).endswith("images.npy"):
            raise KeyboardInterrupt

    monkeypatch.setattr(partial_cache.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_collection(cholec80(layout[0]), tmp_path / "cache", SIZE)
    monkeypatch.undo()
    monkeypatch.setattr(Collection, "pictures", None)
    cache = write_collection(cholec80(layout[0]), tmp_path / "cache", SIZE)
    np.testing.assert_array_equal(cache.images, want.images)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["images.npy", "table.npz"]
