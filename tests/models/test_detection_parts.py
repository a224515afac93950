"""Parts of detectors against plain loops: boxes, anchors, matching, suppression, RoIAlign, average precision."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import numpy as np
import pytest

for package in ("flax", "optax", "yaml"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import jax
import jax.numpy as jnp

from models.detection.anchors import BACKGROUND, UNDECIDED, anchor_grid, match, sample
from models.detection.boxes import clip, decode, encode, iou
from models.detection.localize import map_boxes
from models.detection.nms import suppress
from models.detection.roi_align import roi_align
from models.detection.scores import box_precision, pointing
from models.settings import Augment
from models.training.augment import augment, augment_boxes


def random_boxes(rng, *shape, low=-0.2, high=1.2, least=0.02):
    """Draw boxes (*shape, 4), some of which extend outside the image."""
    corner = rng.uniform(low, high - least, (*shape, 2))
    return np.concatenate([corner, rng.uniform(corner + least, high)], -1).astype(np.float32)


def overlap(a, b):
    """Compute the intersection over union of two boxes with scalar arithmetic."""
    width = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0)
    height = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
    common = width * height
    total = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return common / total if total > 0 else 0.0


def test_overlap():
    rng = np.random.default_rng(0)
    boxes, others = random_boxes(rng, 12), random_boxes(rng, 9)
    others[0], others[1] = boxes[0], 0.3  # the same box; an empty one
    want = [[overlap(a.tolist(), b.tolist()) for b in others] for a in boxes]
    np.testing.assert_allclose(iou(boxes, others), want, atol=1e-6)
    assert iou(boxes, others)[0, 0] == 1 and not iou(others[1:2], others[1:2]).any()


def test_box_coding():
    rng = np.random.default_rng(1)
    boxes, anchors = random_boxes(rng, 50), random_boxes(rng, 50)
    codes = np.asarray(encode(boxes, anchors))
    for box, anchor, code in zip(boxes.astype(float), anchors.astype(float), codes, strict=True):
        for axis in (0, 1):
            base, side = anchor[axis + 2] - anchor[axis], box[axis + 2] - box[axis]
            shift = ((box[axis] + box[axis + 2]) - (anchor[axis] + anchor[axis + 2])) / 2
            np.testing.assert_allclose(
                code[[axis, axis + 2]], [shift / base, np.log(side / base)], rtol=2e-4, atol=1e-5
            )
    np.testing.assert_allclose(decode(codes, anchors), boxes, atol=1e-5)
    assert np.isfinite(decode(jnp.full((1, 4), 1e4), anchors[:1])).all()
    outside = jnp.array([[-0.5, 0.25, 1.5, 0.5], [1.2, 0.0, 1.4, 0.5]])
    np.testing.assert_array_equal(clip(outside), [[0, 0.25, 1, 0.5], [1, 0, 1, 0.5]])


def test_anchors():
    # A map of 2 by 3 cells of 16 pixels, over an image of 30 by 48.
    grid = anchor_grid((2, 3), 16, (30, 48), (0.5, 1.0), (0.5, 2.0))
    want = []
    for row in range(2):
        for column in range(3):
            for size in (0.5, 1.0):
                for ratio in (0.5, 2.0):
                    side = size * 30
                    width, height = side * ratio**0.5, side / ratio**0.5
                    y, x = 16 * row + 8, 16 * column + 8
                    want.append(
                        [(x - width / 2) / 48, (y - height / 2) / 30, (x + width / 2) / 48, (y + height / 2) / 30]
                    )
    np.testing.assert_allclose(grid, want, atol=1e-6)


def match_by_hand(overlap, real, low, high, force):
    answer = []
    for row in overlap:
        best, value = -1, -1.0
        for j, iou_of in enumerate(row):
            if real[j] and iou_of > value:
                best, value = j, iou_of
        takes = value >= high
        if force:
            for j, iou_of in enumerate(row):
                takes |= bool(real[j] and iou_of > 0 and iou_of == overlap[:, j].max())
        answer.append(best if takes else BACKGROUND if value < low else UNDECIDED)
    return answer


@pytest.mark.parametrize("force", [True, False])
def test_matching(force):
    rng = np.random.default_rng(2)
    for boxes in (0, 1, 2, 5):
        # Coarse values give ties.
        overlaps = (rng.integers(0, 11, (40, 6)) / 10).astype(np.float32)
        overlaps[:, 1] *= 0.3  # no candidate overlaps this box enough
        real = np.arange(6) < boxes
        got = np.asarray(match(jnp.asarray(overlaps), jnp.asarray(real), 0.3, 0.7, force=force))
        assert got.tolist() == match_by_hand(overlaps, real, np.float32(0.3), np.float32(0.7), force)
        if boxes == 0:
            assert (got == BACKGROUND).all()
        if force and boxes > 1:
            assert (got >= 0).any()


def test_samples_have_a_fixed_size():
    matches = jnp.array([2, 0, UNDECIDED, BACKGROUND, 1, BACKGROUND, UNDECIDED, BACKGROUND, 0, BACKGROUND], jnp.int32)
    keys = jax.random.split(jax.random.key(0), 200)
    rows, used = map(np.asarray, jax.vmap(lambda key: sample(key, matches, 6, 2))(keys))
    values = np.asarray(matches)[rows]
    assert used.all() and (np.sort(rows)[:, 1:] != np.sort(rows)[:, :-1]).all()
    assert ((values >= 0).sum(1) == 2).all() and ((values == BACKGROUND).sum(1) == 4).all()
    # All eligible candidates of one kind are drawn equally often.
    counts = np.bincount(rows.reshape(-1), minlength=10) / 200
    np.testing.assert_allclose(counts[[0, 1, 4, 8]], 0.5, atol=0.15)
    np.testing.assert_array_equal(counts[[3, 5, 7, 9]], 1)
    # Too few candidates: the rest is padding.
    rows, used = sample(jax.random.key(1), matches, 9, 3)
    assert int(used.sum()) == 7 and (np.asarray(matches)[np.asarray(rows)[np.asarray(used)]] != UNDECIDED).all()
    rows, used = sample(jax.random.key(1), jnp.full(9, UNDECIDED), 4, 2)
    assert not used.any()


def suppress_by_hand(boxes, scores, threshold, count, classes, real):
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        rivals = [j for j in kept if classes[i] == classes[j]]
        if real[i] and all(overlap(boxes[i].tolist(), boxes[j].tolist()) <= threshold for j in rivals):
            kept.append(i)
    return kept[:count]


@pytest.mark.parametrize("threshold", [0.3, 0.7])
def test_suppression_is_the_greedy_rule(threshold):
    rng = np.random.default_rng(3)
    run = jax.jit(
        lambda boxes, scores, classes, real: suppress(boxes, scores, threshold, 12, classes=classes, real=real)
    )
    for number in range(20):
        boxes = random_boxes(rng, 30, low=0, high=1, least=0.3)
        scores = rng.integers(0, 8, 30).astype(np.float32)  # with ties
        classes = rng.integers(0, 1 + number % 3, 30)
        real = rng.random(30) < 0.8
        rows, kept = map(np.asarray, run(boxes, scores, classes, real))
        assert rows[kept].tolist() == suppress_by_hand(boxes, scores, threshold, 12, classes, real)
        assert (np.sort(~kept) == ~kept).all()


def test_suppression_of_a_chain_and_of_padding():
    # Each box overlaps only its neighbors: every second one is kept, which takes many iterations to find.
    start = np.arange(40) * 0.02
    chain = np.stack([start, np.zeros(40), start + 0.05, np.ones(40)], 1).astype(np.float32)
    scores = -np.arange(40.0)
    rows, kept = map(np.asarray, suppress(chain, scores, 0.3, 40))
    assert rows[kept].tolist() == list(range(0, 40, 2)) and kept.sum() == 20
    rows, kept = suppress(chain, scores, 0.3, 50, real=jnp.zeros(40, bool))
    assert rows.shape == (50,) and not kept.any()
    # A box with score NaN is not kept and suppresses no other box.
    rows, kept = suppress(np.tile(chain[:1], (3, 1)), np.array([0.5, np.nan, 0.6], np.float32), 0.3, 3)
    assert rows[kept].tolist() == [2]
    assert not suppress(chain, np.full(40, np.nan, np.float32), 0.3, 5)[1].any()
    # Only the best candidates are considered.
    rows, kept = map(np.asarray, suppress(chain, scores, 0.3, 8, candidates=4))
    assert rows[kept].tolist() == [0, 2]


def align_by_hand(features, box, bins, scale, samples):
    """Compute RoIAlign as defined in the paper: the mean of bilinear samples in every bin."""
    height, width, channels = features.shape
    x0, y0, x1, y1 = (box[i] * scale[1 - i % 2] - 0.5 for i in range(4))
    out = np.zeros((bins, bins, channels))
    for i in range(bins):
        for j in range(bins):
            for a in range(samples):
                for b in range(samples):
                    y = y0 + (i + (a + 0.5) / samples) * (y1 - y0) / bins
                    x = x0 + (j + (b + 0.5) / samples) * (x1 - x0) / bins
                    if not (-1 <= y <= height and -1 <= x <= width):
                        continue
                    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                    top, left = min(int(y), height - 2), min(int(x), width - 2)
                    for dy in (0, 1):
                        for dx in (0, 1):
                            weight = (1 - abs(y - top - dy)) * (1 - abs(x - left - dx))
                            out[i, j] += weight * features[top + dy, left + dx] / samples**2
    return out


@pytest.mark.parametrize(("bins", "samples"), [(3, 2), (7, 1)])
def test_roi_align(bins, samples):
    rng = np.random.default_rng(4)
    features = rng.normal(size=(5, 8, 3)).astype(np.float32)
    boxes = random_boxes(rng, 12, low=-0.4, high=1.4)
    boxes[0], boxes[1] = [0, 0, 1, 1], [0.5, 0.25, 0.5, 0.25]  # the whole image; an empty box
    # The image ends inside the last cells: 75 by 120 pixels at stride 16.
    scale = (75 / 16, 120 / 16)
    got = roi_align(features, boxes, bins, scale, samples=samples, exact=True)
    want = [align_by_hand(features, box.astype(float), bins, scale, samples) for box in boxes]
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_boxes_are_augmented_like_their_image():
    rng = np.random.default_rng(5)
    config = Augment(scale=0.3, aspect=1.5, brightness=0, contrast=0, saturation=0, hue=0)
    size, count = (60, 80), 24
    images = np.zeros((count, 120, 160, 3), np.float32)
    boxes = np.zeros((count, 2, 4), np.float32)
    for image, box in zip(images, boxes, strict=True):
        left, top = rng.integers(0, 100), rng.integers(0, 60)
        right, bottom = left + rng.integers(20, 60), top + rng.integers(20, 60)
        image[top:bottom, left:right] = 1
        box[0] = np.array([left, top, right, bottom]) / [160, 120, 160, 120]
    real = np.tile([True, False], (count, 1))
    key = jax.random.key(6)
    run = jax.jit(lambda *batch: (augment_boxes(*batch, key, config), augment(images, key, config, size)))
    (moved, left), images = jax.tree.map(np.asarray, run(boxes, real))
    bright = images[..., 0] > 0.5
    assert not left[:, 1].any() and 0 < left[:, 0].sum() < count
    assert not moved[~left].any()
    for seen, box, there in zip(bright, moved[:, 0], left[:, 0], strict=True):
        if there:
            y, x = np.nonzero(seen)
            edges = [x.min() / 80, y.min() / 60, (x.max() + 1) / 80, (y.max() + 1) / 60]
            np.testing.assert_allclose(box, edges, atol=0.02)
        else:
            assert seen.mean() < 0.25


def precision_by_hand(true_boxes, true_tools, boxes, scores, tools, tool):
    """Compute average precision as the VOC development kit does, one threshold at a time."""
    total = (true_tools == tool).sum()
    shown = [(-scores[f, d], f, d) for f, d in zip(*np.nonzero(tools == tool), strict=True)]
    found, points = set(), []
    for rank, (_, frame, place) in enumerate(sorted(shown, key=lambda x: x[0]), 1):
        rivals = [m for m in range(true_tools.shape[1]) if true_tools[frame, m] == tool]
        shares = [overlap(boxes[frame, place].tolist(), true_boxes[frame, m].tolist()) for m in rivals]
        if shares and max(shares) >= 0.5:
            found.add((frame, rivals[int(np.argmax(shares))]))
        points.append((len(found) / total, len(found) / rank))
    area, reached = 0.0, 0.0
    for recall, _ in points:
        area += (recall - reached) * max(p for r, p in points if r >= recall)
        reached = recall
    return area, np.mean([max([p for r, p in points if r >= 0.1 * k - 1e-9], default=0) for k in range(11)])


def test_box_precision():
    rng = np.random.default_rng(7)
    true_boxes, true_tools = random_boxes(rng, 30, 3, low=0, high=1, least=0.3), rng.integers(-1, 3, (30, 3))
    # Detections are the true boxes with noise, each twice, and some with the wrong tool.
    boxes = np.concatenate([true_boxes, true_boxes], 1) + rng.normal(0, 0.06, (30, 6, 4)).astype(np.float32)
    tools = np.where(
        rng.random((30, 6)) < 0.8, np.concatenate([true_tools, true_tools], 1), rng.integers(0, 3, (30, 6))
    )
    scores = rng.random((30, 6))
    got = box_precision(true_boxes, true_tools, boxes, scores, tools, 4)
    for tool in range(3):
        area, eleven = precision_by_hand(true_boxes, true_tools, boxes, scores, tools, tool)
        np.testing.assert_allclose([got.all_points[tool], got.eleven_points[tool]], [area, eleven], atol=1e-9)
        assert 0.1 < got.all_points[tool] < 0.95
    assert np.isnan(got.all_points[3]) and got.boxes[3] == 0
    np.testing.assert_allclose(got.mean, got.all_points[:3].mean())
    perfect = box_precision(true_boxes, true_tools, true_boxes, np.ones((30, 3)), true_tools, 3)
    assert perfect.mean == 1 and (perfect.eleven_points == 1).all() and (perfect.recall == 1).all()
    nothing = box_precision(true_boxes, true_tools, true_boxes, np.ones((30, 3)), np.full((30, 3), -1), 3)
    assert nothing.mean == 0 and (nothing.recall == 0).all()
    assert np.isnan(box_precision(true_boxes, np.full((30, 3), -1), boxes, scores, tools, 3).mean)


def test_maps_become_boxes():
    maps = np.full((6, 8, 2), -9.0)
    maps[1:3, 2:5, 0] = 2.0
    maps[4:, 6:, 0] = 1.0  # a second instrument of the same kind, at the border
    maps[0, 0, 0] = -0.5  # too weak compared with the others
    boxes, scores, tools = map_boxes(maps, count=4, min_score=0.1)
    np.testing.assert_allclose(boxes[:2], [[2 / 8, 1 / 6, 5 / 8, 3 / 6], [6 / 8, 4 / 6, 1, 1]])
    np.testing.assert_allclose(scores[:2], 1 / (1 + np.exp([-2.0, -1.0])), rtol=1e-6)
    assert tools.tolist() == [0, 0, -1, -1] and not scores[2:].any()
    for extreme, there in ((np.nan, 0), (-1e4, 0), (1e4, 2)):
        boxes_of, scores_of, tools_of = map_boxes(np.full((2, 3, 2), extreme), count=3)
        assert (tools_of >= 0).sum() == there and np.isfinite(boxes_of).all() and (scores_of[:there] == 1).all()
    fraction = pointing(maps[None], boxes[None], np.array([[0, 1, -1, -1]]))
    np.testing.assert_array_equal(fraction, [1, 0])
