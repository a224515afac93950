"""Compare results on one device and on many. Run by test_sharding in separate processes."""

import sys

import jax
import numpy as np


def main(process: int, processes: int, port: int) -> None:
    """Join the other processes, then compare every result with that of one device."""
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, process)
    import hmmjax

    assert len(jax.devices()) == 8
    # In float64, because concentrations magnify the rounding of sums in another order.
    start = jax.tree.map(lambda x: np.asarray(x, np.float64), hmmjax.init_params(2, 1))
    _, obs, mask = hmmjax.sample(start, jax.random.key(0), [16, 7, 0, 12, 9])
    obs, mask = jax.tree.map(np.asarray, (obs, mask))
    labels = hmmjax.Labels(phases=np.where(np.arange(16) % 7 == 0, 1, -1) * np.ones((5, 1), np.int32))
    spread = hmmjax.shard(obs, mask, labels)
    assert all(len(leaf.sharding.device_set) == 8 for leaf in jax.tree.leaves(spread))
    options = {"max_iterations": 3, "tolerance": 0.0}
    many, one = (hmmjax.fit(start, o, m, known, **options) for o, m, known in (spread, (obs, mask, labels)))
    np.testing.assert_allclose(many.history, one.history, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), many.params, one.params)
    if processes == 1:
        for ask in (hmmjax.posterior, hmmjax.log_likelihood):
            answers = ask(one.params, *spread), ask(one.params, obs, mask, labels)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a[:5], b, rtol=1e-9, atol=1e-9), *answers)
        assert len(hmmjax.posterior(one.params, *spread).phases.sharding.device_set) == 8
    check_packing(start)
    print("same", process)


def check_packing(start) -> None:
    """Each device learns from its two videos in one row of 48 frames, instead of from two of 48."""
    import hmmjax
    from hmmjax._core import batch, lowering
    from hmmjax._core.batch import prepare

    batch.LEAST_SAVED = 1
    _, obs, mask = hmmjax.sample(start, jax.random.key(1), [40, 2, 5, 38] * 4)
    obs, mask = jax.tree.map(np.asarray, (obs, mask))
    spread = hmmjax.shard(obs, mask)[:2]
    packed = lowering.pack(prepare(start, *spread, None), "native")
    assert prepare(start, *spread, None).observed.shape == (16, 48) and packed.observed.shape == (8, 48)
    assert packed.lengths.shape == (16,) and len(packed.observed.sharding.device_set) == 8
    many, one = (hmmjax.fit(start, *data, max_iterations=2, tolerance=0.0) for data in (spread, (obs, mask)))
    np.testing.assert_allclose(many.history, one.history, rtol=1e-9)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), many.params, one.params)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
