"""Lookup tables against TensorFlow's, by calls of op functions.

The loader makes a `Table`, no op does.
"""

import jax
import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import OpError
from tf2jax_lite.ops.containers import lookup_table

CASES = []
TESTED_OTHERWISE = {"LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"}


def tf_table(keys, values, default):
    initializer = tf.lookup.KeyValueTensorInitializer(keys, values)
    return tf.lookup.StaticHashTable(initializer, default)


def strings(*items):
    return np.array([i.encode() for i in items], object)


NUMERIC = [
    (np.array(k, t), np.array([10, 20, 30], v), np.array(-1, v), np.array(q, t))
    for t, v in (("int64", "float32"), ("int32", "int32"), ("int64", "int64"), ("int64", "float64"))
    for k, q in (([7, -2, 3], [[3, 3], [7, 8]]), ([1, 2, 3], []), ([5, 4, 9], 4), ([5, 4, 9], [-100, 100]))
    if (t, v) != ("int32", "float32")
]


@pytest.mark.default_cases("keys9-values9-default9-query9")
@pytest.mark.parametrize("keys, values, default, query", NUMERIC)
def test_numeric(keys, values, default, query):
    expected = tf_table(keys, values, default).lookup(tf.constant(query)).numpy()
    with jax.enable_x64(True):
        own = lookup_table.table_of(keys, values)
        static = lookup_table.lookup_table_find_v2(own, query, default)
        traced = jax.jit(lambda q: lookup_table.lookup_table_find_v2(own, q, default))(query)
        everything = jax.jit(lookup_table.lookup_table_find_v2)(own, query, default)
        batched = jax.vmap(lambda q: lookup_table.lookup_table_find_v2(own, q, default))(np.stack([query, query]))[1]
    assert isinstance(static, np.ndarray)
    for actual in (static, traced, everything, batched):
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype
    assert int(lookup_table.lookup_table_size_v2(own)) == 3
    exported = lookup_table.lookup_table_export_v2(own)
    np.testing.assert_array_equal(exported[0], np.sort(keys))
    np.testing.assert_array_equal(exported[1], values[np.argsort(keys)])


@pytest.mark.full
def test_vector_values():
    keys, values, default = np.int64([3, 1]), np.float32([[1, 2], [3, 4]]), np.float32([-1, -2])
    theirs = tf.lookup.experimental.DenseHashTable(tf.int64, tf.float32, default, -1, -2)
    theirs.insert(keys, values)
    query = np.int64([1, 5, 3])
    with jax.enable_x64(True):
        own = lookup_table.table_of(keys, values)
        for actual in (
            lookup_table.lookup_table_find_v2(own, query, default),
            jax.jit(lookup_table.lookup_table_find_v2)(own, query, default),
        ):
            np.testing.assert_array_equal(actual, theirs.lookup(tf.constant(query)))


def test_string_keys():
    keys, values = strings("b", "a", "c"), np.float32([1, 2, 3])
    query = strings("a", "z", "c").reshape(3, 1)
    expected = tf_table(tf.constant(keys), values, -1.0).lookup(tf.constant(query)).numpy()
    own = lookup_table.table_of(keys, values)
    actual = jax.jit(lambda x: lookup_table.lookup_table_find_v2(own, query, x))(np.float32(-1))
    np.testing.assert_array_equal(actual, expected)
    assert jax.tree.leaves(own)[0] is own.values
    again = jax.tree.unflatten(jax.tree.structure(own), jax.tree.leaves(own))
    assert again.keys.tolist() == [b"a", b"b", b"c"]
    assert jax.tree.structure(own) == jax.tree.structure(lookup_table.table_of(keys, values * 2))
    assert hash(jax.tree.structure(own)) == hash(jax.tree.structure(lookup_table.table_of(keys, values * 2)))


def test_string_values():
    own = lookup_table.table_of(np.int64([1, 2]), strings("one", "two"))
    found = lookup_table.lookup_table_find_v2(own, np.int64([2, 3]), np.array(b"?", object))
    assert found.tolist() == [b"two", b"?"]
    with pytest.raises(OpError, match="known while tracing"):
        jax.jit(lambda q: lookup_table.lookup_table_find_v2(own, q, np.array(b"?", object)))(np.int64([2]))


def test_empty():
    own = lookup_table.table_of(np.zeros(0, np.int32), np.zeros(0, np.float32))
    query = np.int32([1, 2])
    for run in (lookup_table.lookup_table_find_v2, jax.jit(lookup_table.lookup_table_find_v2)):
        np.testing.assert_array_equal(run(own, query, np.float32(5)), [5, 5])
    assert int(lookup_table.lookup_table_size_v2(own)) == 0


def test_table_of_repeated_keys_has_the_last_value():
    own = lookup_table.table_of(np.int64([3, 1, 3]), np.float32([1, 2, 3]))
    assert own.keys.tolist() == [1, 3] and own.values.tolist() == [2, 3]
    with pytest.raises(OpError, match="keys of shape"):
        lookup_table.table_of(np.int64([1]), np.float32([1, 2]))
    with pytest.raises(OpError, match="expected a lookup table"):
        lookup_table.lookup_table_size_v2(None)
