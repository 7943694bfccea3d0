"""Sparse bincount against TensorFlow: eagerly, and under jit with reduced results."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

DENSE, SPARSE, RAGGED = (f"{kind}CountSparseOutput" for kind in ("Dense", "Sparse", "Ragged"))
VALUES = np.array([[1, 1, 7, 0], [3, 1, 3, 3], [2, 2, 2, 2]])
WEIGHTS = np.random.default_rng(0).normal(size=VALUES.shape)
SIX = WEIGHTS.reshape(-1)[:6]
NONE, PLAIN = np.zeros(0, np.float32), {"binary_output": False}
INDICES = np.array([[0, 0], [0, 2], [1, 1], [1, 3], [1, 4], [3, 0]])
OWN, SHAPE = np.array([5, 0, 2, 5, 2, 9]), np.array([4, 5])
SPLITS = np.array([0, 2, 2, 5, 6])
SETTINGS = (
    {},
    {"minlength": 20},
    {"maxlength": 3},
    {"minlength": 20, "maxlength": 6, "binary_output": True},
    {"maxlength": 0},
    {"minlength": 0},
)

CASES = [
    *(case(DENSE, VALUES, WEIGHTS, **{**PLAIN, **s}).using(jit=False) for s in SETTINGS),
    *(
        case(DENSE, VALUES.astype(t), np.zeros(0, w), **PLAIN).using(jit=False)
        for t in ("int32", "int64")
        for w in ("int32", "int64", "float32", "float64")
    ),
    case(DENSE, VALUES[0], NONE, **PLAIN).using(jit=False, name="vector"),
    case(DENSE, VALUES[0, :0], NONE, **PLAIN).using(jit=False, name="empty"),
    case(DENSE, VALUES[:, :0], NONE, **PLAIN).using(jit=False, name="empty-rows"),
    *(case(SPARSE, INDICES, OWN, SHAPE, SIX, **{**PLAIN, **s}).using(jit=False) for s in SETTINGS),
    case(SPARSE, INDICES[:, :1], OWN, SHAPE[:1], NONE, **PLAIN).using(jit=False, name="vector"),
    case(SPARSE, np.insert(INDICES, 1, 0, 1), OWN, np.array([4, 1, 5]), NONE, **PLAIN).using(jit=False, name="deep"),
    case(SPARSE, INDICES[:0], OWN[:0], SHAPE, NONE, **PLAIN).using(jit=False, name="empty"),
    *(case(RAGGED, SPLITS, OWN, SIX, **{**PLAIN, **s}).using(jit=False) for s in SETTINGS),
    case(RAGGED, SPLITS[:1].repeat(3), OWN[:0], NONE, **PLAIN).using(jit=False, name="empty"),
    case(DENSE, VALUES - 1, NONE, **PLAIN).using(error="negative", baked=("values",), name="negative"),
    case(DENSE, VALUES, WEIGHTS[0], **PLAIN).using(error="weights of shape (4,)", name="weights"),
    case(DENSE, VALUES[None], NONE, **PLAIN).using(error="rank 3", name="rank"),
    case(DENSE, VALUES[:0], NONE, **PLAIN).using(error="at least one row", name="no-rows"),
    case(SPARSE, INDICES, OWN, SHAPE - 1, NONE, **PLAIN).using(
        error="out of bounds", baked=("indices", "dense_shape"), name="bounds"
    ),
    case(SPARSE, INDICES[:0], OWN[:0], SHAPE * 0, NONE, **PLAIN).using(
        error="no rows", baked=("dense_shape",), name="no-rows"
    ),
    case(RAGGED, SPLITS + 1, OWN, NONE, **PLAIN).using(error="begin with 0", baked=("splits",), name="splits"),
    case(RAGGED, SPLITS[:1], OWN[:0], NONE, **PLAIN).using(error="make no rows", name="one-split"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["dense", "sparse", "ragged"])
def test_under_jit(kind):
    """Reduced results need no bound; weights have gradients."""

    def fn(values, weights):
        if kind == "dense":
            result = tf.sparse.bincount(values, weights=weights, axis=-1)
        elif kind == "sparse":
            own = tf.sparse.from_dense(values)
            result = tf.sparse.bincount(own, weights=own.with_values(tf.gather_nd(weights, own.indices)), axis=-1)
        else:
            splits = tf.constant([0, 2, 2, 7, 12], tf.int64)
            rows = [tf.RaggedTensor.from_row_splits(tf.reshape(v, [-1]), splits) for v in (values, weights)]
            result = tf.sparse.bincount(rows[0], weights=rows[1], axis=-1)
        place = tf.cast(result.indices[:, 0] * 10 + result.indices[:, 1], tf.float64)
        return tf.reduce_sum(result.values**2 * (place + 1)), tf.reduce_max(result.values), result.dense_shape

    rng = np.random.default_rng(0)
    values, weights = rng.integers(kind != "sparse", 6, (5, 3, 4)), rng.uniform(0.5, 1, (5, 3, 4))
    jax_fn = tf2jax.convert_functional(tf.function(fn), *(tf.TensorSpec([3, 4], v.dtype) for v in (values, weights)))
    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(jax_fn))(values, weights)
        grad = jax.jit(jax.grad(lambda w: jax_fn(values[0], w)[0]))(weights[0])
        step = 1e-6 * np.eye(12)[5].reshape(3, 4)
        change = (fn(values[0], weights[0] + step)[0] - fn(values[0], weights[0] - step)[0]) / 2e-6
    for i in range(5):
        for actual, expected in zip(found, fn(values[i], weights[i]), strict=True):
            np.testing.assert_allclose(actual[i], expected, rtol=1e-12)
    np.testing.assert_allclose(grad[1, 1], change, rtol=1e-6)


def test_with_a_bound():
    def fn(values):
        result = tf.sparse.bincount(values, axis=-1)
        return result.indices, result.values, result.dense_shape

    with tf2jax.override_config("dynamic_shape_bound", 4):
        jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([4], tf.int32))
    indices, values, shape = jax.jit(jax_fn)(np.int32([3, 1, 3, 1]))
    np.testing.assert_array_equal(indices, [[1], [3], [-1], [-1]])
    np.testing.assert_array_equal(values, [2, 2, 0, 0])
    np.testing.assert_array_equal(shape, [4])
