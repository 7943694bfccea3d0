"""Tables captured by a tf.function, in branches, loops and under jit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import UnsupportedError

X = np.array([0.5, -1.0], np.float32)


def static(keys, values, default):
    initializer = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, tf.int64), tf.constant(values))
    return tf.lookup.StaticHashTable(initializer, default)


def mutable():
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -3.0)
    table.insert(tf.constant([2, 0], tf.int64), tf.constant([7.0, 8.0]))
    return table


def dense():
    table = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, -4.0, -10, -11)
    table.insert(tf.constant([1, 5], tf.int64), tf.constant([1.5, 2.5]))
    return table


# Of different sizes and dtypes; one resource is a variable.
TABLES = static([0, 1, 2], [5.0, 6.0, 7.0], -1.0), static([0, 3], [50, 60], -2), mutable(), dense()
SCALE = tf.Variable(2.0, name="scale")


def branches(i, x):
    """One table or another."""
    key = tf.cast(i, tf.int64)
    return (
        tf.switch_case(
            i,
            [lambda: TABLES[0].lookup(key), lambda: tf.cast(TABLES[1].lookup(key), tf.float32)],
            default=lambda: TABLES[2].lookup(key) + TABLES[3].lookup(key),
        )
        * x
    )


def loop(i, x):
    for k in tf.range(i):
        key = tf.cast(k, tf.int64)[None]
        x = x * TABLES[0].lookup(key) + tf.cast(TABLES[1].lookup(key), tf.float32) * SCALE
    return x + tf.cast(TABLES[3].size(), tf.float32)


def _made(keys, values, default=-1.0):
    return static(keys, values, default).lookup


class Layer(tf.Module):
    table = None

    @tf.function
    def __call__(self, i):
        if self.table is None:
            self.table = static([5, 7], [0.5, 0.75], -1.0)
        return self.table.lookup(i)


KEYS = tf.constant([5, 7], tf.int64)


def _of_vocabulary(i):
    initializer = tf.lookup.KeyValueTensorInitializer(KEYS, tf.range(2, dtype=tf.int64))
    return tf.cast(tf.lookup.StaticVocabularyTable(initializer, 3).lookup(i), tf.float32)


def _in_a_branch(i):
    return tf.cond(tf.size(i) > 2, lambda: _made([5], [0.5])(i), lambda: _made([7], [4.0])(i))


MADE_WHILE_TRACED = {
    "constants": lambda: lambda i: _made([5, 7], [0.5, 0.75])(i),
    "captured": lambda: (
        lambda i: tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(KEYS, tf.constant([0.5, 0.75])), -1.0
        ).lookup(i)
    ),
    "vocabulary": lambda: _of_vocabulary,
    "by the first call": Layer,
    "in a call": lambda: lambda i: Layer()(i) + tf.function(lambda i: _made([9], [2.0])(i))(i),
    "in a branch": lambda: _in_a_branch,
}


@pytest.mark.default_cases("False-constants", "False-by the first call")
@pytest.mark.parametrize("name", MADE_WHILE_TRACED)
@pytest.mark.parametrize("called_first", [False, True])
def test_table_made_while_the_function_is_traced(name, called_first):
    fn = MADE_WHILE_TRACED[name]()
    function = fn if isinstance(fn, tf.Module) else tf.function(fn, autograph=False)
    i = np.array([5, 7, 9], np.int64)
    expected = function(tf.constant(i)).numpy() if called_first else None
    jax_fn, params = tf2jax.convert(function, tf.TensorSpec([3], tf.int64))
    found = jax.jit(jax_fn)(params, i)[0]
    np.testing.assert_array_equal(found, function(tf.constant(i)).numpy() if expected is None else expected)


def test_table_filled_with_unknown_contents_is_not_supported():
    @tf.function
    def function(keys):
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 2), -1).lookup(keys)

    with pytest.raises(UnsupportedError, match="captures the resource"):
        tf2jax.convert(function, tf.TensorSpec([3], tf.int64))


@pytest.mark.default_cases("branches")
@pytest.mark.parametrize("fn", [branches, loop])
def test_lookup(fn):
    function = tf.function(fn)
    jax_fn, params = tf2jax.convert(function, tf.TensorSpec([], tf.int32), tf.TensorSpec([2]))
    compiled = jax.jit(jax_fn)
    for i in (0, 1, 2, 5):
        np.testing.assert_allclose(
            compiled(params, np.int32(i), X)[0], function(tf.constant(i), X), rtol=1e-6, err_msg=str(i)
        )


@pytest.mark.full
def test_captured_table_with_insertions_raises():
    """The conversion holds a table's contents: it cannot change them."""

    def fn(x):
        TABLES[2].insert(tf.constant([9], tf.int64), x[:1])
        return TABLES[2].lookup(tf.constant([9], tf.int64))

    with pytest.raises(UnsupportedError, match="not a variable"):
        tf2jax.convert(tf.function(fn), tf.TensorSpec([2]))


@pytest.mark.full
def test_captured_table_of_strings_raises():
    keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1.0]))
    table = tf.lookup.StaticHashTable(keys, -1.0)
    with pytest.raises(UnsupportedError, match="split_host"):
        tf2jax.convert(tf.function(lambda x: table.lookup(tf.strings.as_string(x))), tf.TensorSpec([2]))
