"""Symbolic sizes have TensorFlow's dtypes, and compare when known."""

import jax
import jax.export
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import LoweringError

MASK = np.array([[1, 0, 1, 0, 1], [0, 1, 0, 0, 0]], bool)


def added(x, n):
    return tf.shape(x)[0] + n, tf.size(x) * n - tf.shape(x)[0]


def wide(x, n):
    return tf.shape(x, out_type=tf.int64) + 1, tf.cast(tf.shape(x)[0], tf.int64) * tf.cast(n, tf.int64)


def stacked(x, n):
    sizes = tf.stack([tf.shape(x)[0], n])
    return sizes, tf.stack([tf.shape(x)[0], 4])[0] // 2, tf.concat([tf.shape(x), [n]], 0), sizes[0] % 2


def returned(x, n):
    return tf.shape(x), tf.size(x), tf.size(x, out_type=tf.int64), tf.shape_n([x, x])[1], -tf.shape(x)[0]


def extremes(x, n):
    return tf.maximum(tf.shape(x)[0], n), tf.minimum(tf.shape(x)[0], 2), tf.reduce_prod(tf.shape(x))


def compared(x, n):
    rows = tf.shape(x)[0]
    return (
        tf.equal(rows, 3),
        tf.not_equal(tf.shape(x), [3, 2]),
        tf.equal(rows, n),
        rows > n,
        tf.equal(rows, 3) & (n > 0),
    )


def chosen(x, n):
    return tf.cond(tf.equal(tf.shape(x)[0], 3), lambda: tf.reduce_sum(x), lambda: tf.reduce_prod(x))


def chosen_sizes(x, n):
    return tf.where(tf.equal(tf.shape(x), 3), n, tf.shape(x))


def called(x, n):
    @tf.function
    def inner(sizes, n):
        return tf.equal(sizes[0], n), sizes * n

    return inner(tf.shape(x), n)


def looped(x, n):
    return tf.while_loop(lambda i, m: i < 3, lambda i, m: (i + 1, m * 2 + tf.shape(x)[0]), (0, tf.shape(x)[0]))


CASES = {
    f.__name__: f for f in (added, wide, stacked, returned, extremes, compared, chosen, chosen_sizes, called, looped)
}


def check(actual, expected, x64):
    for ours, theirs in zip(jax.tree.leaves(actual), tf.nest.flatten(expected), strict=True):
        with jax.enable_x64(x64):
            assert ours.dtype == jax.dtypes.canonicalize_dtype(theirs.dtype.as_numpy_dtype)
        np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.default_cases("compared-32 bits")
@pytest.mark.parametrize("x64", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("name", CASES)
def test_exported_once_for_all_sizes(name, x64):
    function = tf.function(CASES[name], autograph=False)
    with jax.enable_x64(x64):
        fn, _ = tf2jax.convert(function, tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([], tf.int32))
        (spec,) = jax.export.symbolic_args_specs((np.ones((3, 2), np.float32),), "b, _")
        exported = jax.export.export(jax.jit(lambda x, n: fn({}, x, n)[0]))(spec, jax.ShapeDtypeStruct((), np.int32))
        for rows in (1, 3, 4):
            x, n = np.arange(1, 2 * rows + 1, dtype=np.float32).reshape(rows, 2), np.int32(3)
            check(exported.call(x, n), function(x, n), x64)


def longest(mask, x):
    """Attend from some positions to all: rows padded to the longest."""
    counts = tf.cast(tf.math.count_nonzero(mask, axis=1), tf.int32)
    most = tf.reduce_max(counts)
    there = tf.where(tf.range(most) < counts[:, None])
    rows = tf.scatter_nd(there, tf.gather_nd(x, tf.where(mask)), shape=(2, most, 4))
    tf.debugging.assert_equal(tf.shape(rows), [2, most, 4])
    return tf.reduce_sum(rows * rows, [1, 2]), tf.equal(tf.shape(rows), [2, most, 4]), tf.shape(rows)[1] * 2 + counts


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True], ids=["32 bits", "64 bits"])
def test_data_dependent_sizes(x64):
    function = tf.function(longest)
    x = np.arange(40, dtype=np.float32).reshape(2, 5, 4) / 8
    with jax.enable_x64(x64):
        fn, _ = tf2jax.convert(function, tf.TensorSpec([2, 5], tf.bool), tf.TensorSpec([2, 5, 4], tf.float32))
        for mask in (MASK, ~MASK, np.eye(2, 5, dtype=bool)):
            check(jax.jit(fn)({}, mask, x)[0], function(mask, x), x64)


def squeezed(x):
    return tf.cond(tf.equal(tf.shape(x)[0], 1), lambda: tf.squeeze(x, 0), lambda: x[1])


def broadcast(x):
    return tf.broadcast_to(x, tf.where(tf.equal(tf.shape(x), 1), [4, 2], tf.shape(x)))


@pytest.mark.full
def test_what_holds_for_all_sizes_is_known():
    """No symbol is compared if the answer is known: branch shapes may differ."""

    def extended(x):
        rows = tf.shape(x)[0]
        same = tf.reduce_all(tf.equal(tf.shape(x), tf.shape(tf.exp(x))))
        longer = tf.not_equal(rows + 1, rows)
        return tf.cond(same & longer, lambda: tf.concat([x, x], 0), lambda: x)

    fn, _ = tf2jax.convert(tf.function(extended), tf.TensorSpec([None, 2], tf.float32))
    (spec,) = jax.export.symbolic_args_specs((np.ones((3, 2), np.float32),), "b, _")
    exported = jax.export.export(jax.jit(lambda x: fn({}, x)[0]))(spec)
    for rows in (1, 3):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(exported.call(x), np.concatenate([x, x]))


@pytest.mark.parametrize("function", [squeezed, broadcast])
def test_sizes_that_must_be_known_are_taken_to_differ(function, caplog):
    """JAX's convention; what it makes wrong is said."""
    function = tf.function(function, autograph=False)
    fn, _ = tf2jax.convert(function, tf.TensorSpec([None, 2], tf.float32))
    (spec,) = jax.export.symbolic_args_specs((np.ones((3, 2), np.float32),), "b, _")
    exported = jax.export.export(jax.jit(lambda x: fn({}, x)[0]))(spec)
    (record,) = (r for r in caplog.records if r.name == "tf2jax_lite")
    assert "node 'Equal'" in record.getMessage() and "assumed to differ" in record.getMessage()
    for rows in (2, 3):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        np.testing.assert_array_equal(exported.call(x), function(x))


@pytest.mark.full
def test_what_fails_either_way_is_refused():
    """The error is that of unequal sizes, without the comparison."""

    def fails(x, y):
        return tf.cond(tf.equal(tf.shape(x)[0], 1), lambda: x, lambda: x * 2) + tf.reshape(y, tf.cast(y[:1], tf.int32))

    fn, _ = tf2jax.convert(tf.function(fails), tf.TensorSpec([None], tf.float32), tf.TensorSpec([3], tf.float32))
    (spec,) = jax.export.symbolic_args_specs((np.ones(3, np.float32),), "b")
    with pytest.raises(LoweringError, match="Reshape"):
        jax.export.export(jax.jit(lambda x, y: fn({}, x, y)[0]))(spec, jax.ShapeDtypeStruct((3,), np.float32))
