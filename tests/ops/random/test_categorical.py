"""Multinomial samples: TensorFlow's bits for a seed, its distribution from a key."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

SEED = np.array([3, -5], np.int64)
INF, NAN = np.inf, np.nan
LOGITS = np.array([[1, 2, 3], [-INF, -INF, -INF], [NAN, 0, INF], [-5, 3, 2]])
CASES = [
    *(
        case("StatelessMultinomial", LOGITS.astype(t), np.int32(7), SEED, output_dtype=out).using(
            name=f"{t}-{out.name}", vmap=False
        )
        for t, out in (("float32", tf.int64), ("float64", tf.int32), ("float16", tf.int64), ("bfloat16", tf.int32))
    ),
    case("StatelessMultinomial", LOGITS, np.int32(4), np.array([1, 2], np.int32)).using(symbolic=("b, 3", "2")),
    case("StatelessMultinomial", np.zeros([0, 3]), np.int32(4), SEED).using(name="no rows", vmap=False),
    case("StatelessMultinomial", LOGITS, np.int32(0), SEED).using(name="no samples", vmap=False),
]
TESTED_OTHERWISE = {"Multinomial"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def draw(fn, seed=0, args=()):
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in args]
    return jax.jit(tf2jax.convert_functional(tf.function(fn), *specs))(*args, rng=jax.random.key(seed))


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_multinomial(x64):
    with jax.enable_x64(x64):
        logits = np.float32([[0.0, 1.0, -INF, 2.0], [3.0, NAN, 3.0, -1.0]])
        drawn = np.asarray(draw(lambda x: tf.random.categorical(x, 20_000, dtype=tf.int32), args=(logits,)))
        assert drawn.dtype == np.int32 and drawn.shape == (2, 20_000)
        for row, values in zip(logits, drawn, strict=True):
            weights = np.where(np.isfinite(row), np.exp(row), 0)
            np.testing.assert_allclose(np.bincount(values, minlength=4) / 20_000, weights / weights.sum(), atol=0.015)
        again = draw(lambda x: tf.random.categorical(x, 20_000, dtype=tf.int32), seed=1, args=(logits,))
        assert not np.array_equal(drawn, again)
