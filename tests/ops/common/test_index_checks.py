"""Indices that TensorFlow refuses are checkify checks, if configured."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import checkify

import tf2jax_lite as tf2jax

X = np.arange(12, dtype=np.float32).reshape(4, 3)
V = tf.Variable(X, name="V")
TWO = np.ones((2, 3), np.float32)


def _written(write):
    V.assign(X)
    write()
    return tf.identity(V)


def _raw(name, **more):
    return lambda i: getattr(tf.raw_ops, name)(data=X, segment_ids=i, **more)


# For each op: a function of indices, indices in range, and indices that TensorFlow refuses.
CHECKS = {
    "gather": (lambda i: tf.gather(X, i), [0, 3], [[0, 4], [-1, 0]]),
    "gather columns": (lambda i: tf.gather(X, i, axis=-1), [0, 2], [[3, 0]]),
    "gather of batches": (lambda i: tf.gather(X[:2], i, axis=1, batch_dims=1), [[0], [2]], [[[0], [3]]]),
    "embedding": (lambda i: tf.nn.embedding_lookup(V, i), [[0, 3]], [[[4, 0]], [[0, -1]]]),
    "gather_nd": (lambda i: tf.gather_nd(X, i), [[3, 2]], [[[4, 0]], [[0, 3]], [[0, -1]]]),
    "gather_nd of a variable": (lambda i: V.gather_nd(i), [[3, 2]], [[[4, 0]]]),
    "scatter_nd": (lambda i: tf.scatter_nd(i, TWO, [4, 3]), [[0], [3]], [[[0], [4]], [[-1], [0]]]),
    "tensor_scatter": (lambda i: tf.tensor_scatter_nd_add(X, i, TWO), [[0], [3]], [[[0], [4]]]),
    "scatter_update": (lambda i: _written(lambda: V.scatter_update(tf.IndexedSlices(TWO, i))), [0, 3], [[0, 4]]),
    "scatter_add": (lambda i: _written(lambda: V.scatter_add(tf.IndexedSlices(TWO, i))), [0, 3], [[-1, 0]]),
    "scatter_nd_update": (lambda i: _written(lambda: V.scatter_nd_update(i, TWO)), [[0], [3]], [[[0], [4]]]),
    "segment_sum": (lambda i: tf.reduce_sum(_raw("SegmentSum")(i)), [0, 0, 1, 1], [[0, 1, 0, 1], [-1, 0, 0, 1]]),
    "segment_mean": (lambda i: tf.reduce_sum(_raw("SegmentMean")(i)), [0, 0, 1, 1], [[0, 1, 0, 1]]),
    "unsorted_segment_sum": (_raw("UnsortedSegmentSum", num_segments=2), [0, -1, 1, 1], [[0, 1, 2, 1]]),
    "unsorted_segment_max": (_raw("UnsortedSegmentMax", num_segments=2), [0, 0, 1, 1], [[0, 1, 2, 1]]),
    "sparse_segment_mean": (
        lambda i: tf.reduce_sum(tf.sparse.segment_mean(X, i, tf.constant([0, 0, 1]))),
        [0, 3, 2],
        [[0, 4, 1], [-1, 0, 0]],
    ),
    "sparse_segment_sum ids": (
        lambda i: tf.sparse.segment_sum(X, tf.constant([0, 1, 2]), i, num_segments=2),
        [0, 0, 1],
        [[0, 1, 0], [0, 1, 2]],
    ),
    "partition": (
        lambda i: tf.reduce_sum(tf.dynamic_partition(X[:, 0], i, 2)[0]),
        [0, 0, 1, 1],
        [[0, 1, 2, 1], [-1, 0, 1, 1]],
    ),
    "permutation": (lambda i: tf.math.invert_permutation(i), [1, 0, 2], [[1, 0, 3]]),
    "labels": (lambda i: tf.nn.sparse_softmax_cross_entropy_with_logits(i, X), [0, 1, 2, 0], [[0, 1, 3, 0]]),
    "lookup of sparse ids": (
        lambda i: tf.nn.embedding_lookup_sparse(X, tf.SparseTensor([[0, 0], [1, 0]], i, [2, 1]), None, combiner="sum"),
        [0, 3],
        [[0, 4]],
    ),
}
DEFAULT = ("gather", "embedding", "scatter_nd", "unsorted_segment_sum", "sparse_segment_mean", "labels")


def _results(fn, indices, on):
    dtype = np.int64 if fn is CHECKS["lookup of sparse ids"][0] else np.int32
    with tf2jax.override_config("enable_checkify_for_asserts", on):
        return tf2jax.convert(tf.function(fn, autograph=False), tf.TensorSpec(np.shape(indices), dtype)), dtype


@pytest.mark.default_cases(*DEFAULT)
@pytest.mark.parametrize("name", CHECKS)
def test_index_out_of_range_is_a_check(name):
    fn, good, refused = CHECKS[name]
    (own, params), dtype = _results(fn, good, True)
    checked = jax.jit(checkify.checkify(lambda i: own(params, i)[0]))
    error, found = checked(np.array(good, dtype))
    assert error.get() is None
    np.testing.assert_allclose(found, fn(tf.constant(good, dtype)).numpy(), rtol=1e-6)
    for indices in refused:
        with pytest.raises(tf.errors.InvalidArgumentError):
            fn(tf.constant(indices, dtype))
        error, _ = checked(np.array(indices, dtype))
        assert "node '" in error.get()
        assert ("is out of range" in error.get()) != ("not increasing" in error.get())


@pytest.mark.full
@pytest.mark.parametrize("name", CHECKS)
def test_there_is_no_check_by_default(name):
    fn, good, _ = CHECKS[name]
    (own, params), dtype = _results(fn, good, False)
    assert "check" not in str(jax.make_jaxpr(lambda i: own(params, i)[0])(np.array(good, dtype)))


def test_limit_beyond_the_range_of_narrow_indices():
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        own = tf2jax.convert_functional(
            tf.function(lambda i: tf.gather(tf.range(70000), i)), tf.TensorSpec([2], tf.int16)
        )
    error, _ = jax.jit(checkify.checkify(own))(np.int16([0, 32767]))
    assert error.get() is None


def test_checks_in_a_loop_and_in_gradients():
    def function(ids):
        return tf.while_loop(lambda i, s: s < 3.0, lambda i, s: (i + 1, s + tf.gather(V, ids[i])[1]), (0, 0.0))[1]

    with tf2jax.override_config("enable_checkify_for_asserts", True):
        own, params = tf2jax.convert(tf.function(function), tf.TensorSpec([3], tf.int32))
    checked = jax.jit(checkify.checkify(lambda i: own(params, i)[0]))
    assert checked(np.int32([0, 2, 1]))[0].get() is None
    assert "index 9 is out of range" in checked(np.int32([0, 9, 1]))[0].get()
    with tf2jax.override_config("enable_checkify_for_asserts", True):
        look, params = tf2jax.convert(
            tf.function(lambda i: tf.reduce_sum(tf.gather(V, i))), tf.TensorSpec([2], tf.int32)
        )
    gradient = jax.jit(checkify.checkify(jax.grad(lambda p, i: look(p, i)[0])))
    assert "index 9 is out of range" in gradient(params, np.int32([0, 9]))[0].get()
