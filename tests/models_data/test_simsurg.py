"""Simulated surgeries: determinism, speed, labels that match the images, and reading back the written files."""

import dataclasses
import time

import numpy as np
import pytest

from hmmjax.simulate import TOOLS, simulate_surgeries
from models.data.simsurg import Renderer, boxes, make_scene, simulated_frames
from models.data.simsurg.render import cloud


@pytest.fixture(scope="module")
def scene():
    (surgery,) = simulate_surgeries(1, seed=4, minutes=10.0)
    return make_scene(surgery, seed=2)


def with_tools(scene, tools):
    """Return a scene of the same surgery in which these instruments are always present and visible."""
    surgery = dataclasses.replace(scene.surgery, tools=np.tile(tools, (len(scene), 1)))
    clear = make_scene(surgery, seed=2)
    return dataclasses.replace(clear, hidden=np.zeros_like(clear.hidden), blur=0 * clear.blur, smoke=0 * clear.smoke)


def one_tool(scene, tool):
    return with_tools(scene, np.eye(len(TOOLS), dtype=int)[tool])


def test_deterministic_by_seed(scene):
    same = make_scene(scene.surgery, seed=2)
    other = make_scene(scene.surgery, seed=3)
    picture = Renderer(scene, 48, 48).frame(100)
    np.testing.assert_array_equal(picture, Renderer(same, 48, 48).frame(100))
    assert (picture != Renderer(other, 48, 48).frame(100)).mean() > 0.5


def test_a_frame_does_not_depend_on_the_frames_drawn_before(scene):
    renderer = Renderer(scene, 32, 32)
    first = renderer.frame(50)
    renderer.frame(7)
    np.testing.assert_array_equal(renderer.frame(50), first)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (96, 160), (480, 854), (9, 8)])
def test_any_size(scene, height, width):
    fitted = make_scene(scene.surgery, seed=2, aspect=width / height)
    picture = Renderer(fitted, height, width).frame(30.4)
    assert picture.shape == (height, width, 3) and picture.dtype == np.uint8
    assert picture.std() > 10


def test_sizes_show_the_same_scene(scene):
    small, large = Renderer(scene, 48, 48).frame(60), Renderer(scene, 192, 192).frame(60)
    shrunk = large.reshape(48, 4, 48, 4, 3).mean((1, 3))
    assert np.corrcoef(small.ravel(), shrunk.ravel())[0, 1] > 0.9


def test_sizes_that_do_not_match_are_rejected(scene):
    with pytest.raises(ValueError, match="aspect=160/96"):
        Renderer(scene, 96, 160)
    with pytest.raises(ValueError, match="too small"):
        Renderer(scene, 4, 4)


def test_speed(scene):
    renderer = Renderer(scene, 64, 64)
    renderer.frame(0)
    best = 0.0
    for start in range(3):
        begin = time.process_time()
        for second in range(start * 100, start * 100 + 100):
            renderer.frame(second)
        best = max(best, 100 / (time.process_time() - begin))
    assert best > 500, f"{best:.0f} frames per second"


@pytest.mark.parametrize("tool", range(len(TOOLS)))
def test_boxes_hold_the_tips(scene, tool):
    """Drawing the tip of an instrument changes the image only inside its box."""
    shown = one_tool(scene, tool)
    covered = dataclasses.replace(shown, hidden=np.ones_like(scene.hidden))
    for second in (0, 40, 90, 200):
        tip = (Renderer(shown, 128, 128).frame(second) != Renderer(covered, 128, 128).frame(second)).any(-1)
        found, box = boxes(shown, second)
        assert found.tolist() == [tool]
        xmin, ymin, xmax, ymax = box[0] * 128
        rows, columns = np.nonzero(tip)
        assert len(rows) > 15
        assert xmin - 2 <= columns.min() and columns.max() <= xmax + 1
        assert ymin - 2 <= rows.min() and rows.max() <= ymax + 1


def test_instruments_look_different(scene):
    """Images that differ only in the instrument are different."""
    second = 120
    scenes = [one_tool(scene, tool) for tool in range(len(TOOLS))]
    scenes.append(with_tools(scene, np.zeros(len(TOOLS), int)))
    pictures = [Renderer(each, 64, 64).frame(second).astype(float) for each in scenes]
    for a in range(len(pictures)):
        for b in range(a):
            assert (np.abs(pictures[a] - pictures[b]).max(-1) > 20).sum() > 20, (a, b)


def test_no_instrument_no_box(scene):
    empty = with_tools(scene, np.zeros(len(TOOLS), int))
    found, box = boxes(empty, 3)
    assert found.shape == (0,) and box.shape == (0, 4)


def test_pictures_follow_time_smoothly(scene):
    renderer = Renderer(scene, 64, 64)
    near = np.abs(renderer.frame(200.04).astype(float) - renderer.frame(200.0)).mean()
    far = np.abs(renderer.frame(280.0).astype(float) - renderer.frame(200.0)).mean()
    assert near < 0.35 * far


def test_cloud_is_uniform_and_periodic():
    texture = cloud(np.random.default_rng(0), 96, (4, 9), (1.0, 0.5))
    assert texture.min() == 0 and texture.max() == 1 and abs((texture > 0.9).mean() - 0.1) < 0.01
    seam = np.abs(texture[0] - texture[-1]).mean()
    assert seam < 2 * np.abs(np.diff(texture, axis=0)).mean()


def test_source_reads_frames_at_random(tmp_path):
    from models.data.cache import write_cache

    source = simulated_frames({"train": 2, "test": 1}, seed=3, minutes=0.5, size=(24, 32))
    table = source.table
    assert len(source) == len(table) and set(table.parts) == {"train", "test"} and len(set(table.videos)) == 3
    for row in (0, len(source.surgeries[0]) - 1, len(source.surgeries[0]), len(source) - 1):
        second = table.frames[row] // 25
        video = [s.name for s in source.surgeries].index(table.videos[row])
        scene = make_scene(source.surgeries[video], 3000 + video, 32 / 24)
        np.testing.assert_array_equal(source[row], Renderer(scene, 24, 32).frame(second))
        assert table.phases[row] == source.surgeries[video].phases[second]
    with pytest.raises(IndexError):
        source[len(source)]
    cache = write_cache(source, tmp_path / "cache", workers=1)
    np.testing.assert_array_equal(cache[7], source[7])
    assert (cache.table.rows("test") == table.rows("test")).all()


def test_a_copy_is_never_written_over_unasked(tmp_path):
    from models.data.simsurg import write_cholec80

    pytest.importorskip("av")
    options = dict(minutes=0.1, size=(32, 32))
    write_cholec80(tmp_path, 1, 1, **options)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    assert len(before) == 5
    for path in before:
        (tmp_path / "kept").mkdir(exist_ok=True)
        path.rename(tmp_path / "kept" / path.name)
    for path in before:  # any one of the files is enough
        (tmp_path / "kept" / path.name).rename(path)
        with pytest.raises(FileExistsError, match=path.name):
            write_cholec80(tmp_path, 2, 2, **options)
        path.rename(tmp_path / "kept" / path.name)
    for path in before:
        (tmp_path / "kept" / path.name).rename(path)
    write_cholec80(tmp_path, 1, 2, first=2, **options)
    assert all(path.read_bytes() == data for path, data in before.items())
    write_cholec80(tmp_path, 1, 2, force=True, **options)
    assert any(path.read_bytes() != data for path, data in before.items())


@pytest.mark.parametrize("wrong", [dict(border=16), dict(border=-2), dict(moving_fps=4)])
def test_invalid_settings_write_nothing(tmp_path, wrong):
    from models.data.simsurg import write_cholec80

    with pytest.raises(ValueError, match=next(iter(wrong)).replace("_", "[_ ]")):
        write_cholec80(tmp_path, 1, size=(32, 48), **wrong)
    assert not list(tmp_path.iterdir())
