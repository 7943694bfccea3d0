"""64-bit integers without x64: static calls are exact, narrowing warns."""

import warnings

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

DAY = 86_400_000
T = np.array([1_700_000_000_123, -5, 7, 3_000_000_000, -9_999_999_999_999, 12], np.int64)
INT64 = tf.TensorSpec([None], tf.int64)


def converted(fn, *specs):
    return tf2jax.convert(tf.function(fn, autograph=False), *(specs or (INT64,)))


@pytest.mark.parametrize(
    "fn, node",
    [
        (lambda t: t // DAY, rf"'floordiv' \(FloorDiv\) divides argument 't' \(int64\) by {DAY}"),
        (lambda t: tf.reshape(t, [-1, 1]) % DAY, rf"\(FloorMod\) divides argument 't' \(int64\) by {DAY}"),
        (lambda t: (t - 5) / DAY, r"\(Cast\) casts argument 't' \(int64\)"),
        (lambda t: tf.bitwise.right_shift(t, 20), r"shifts argument 't' \(int64\) by 20"),
        (lambda t: tf.cond(t[0] > 0, lambda: t // DAY, lambda: t), r"divides argument 't'"),
        (tf.function(lambda t: tf.function(lambda v: v // DAY)(t)), r"divides argument 't'"),
    ],
)
def test_convert_divided_int64_argument_warns(fn, node):
    with pytest.warns(UserWarning, match=node) as caught:
        converted(fn)
    assert 'jax.config.update("jax_enable_x64", True)' in str(caught[0].message)


@pytest.mark.parametrize(
    "fn, constant",
    [
        (lambda i: tf.cast(i, tf.int64) * 3 + 12345678901, r"'add' \(AddV2\) reads constant 12345678901 \('add/y'\)"),
        (lambda i: tf.cast(i, tf.uint64) < 2**63, r"\(Less\) reads constant 9223372036854775808"),
        (tf.function(lambda i: tf.function(lambda v: tf.cast(v, tf.int64) - 2**40)(i)), "constant 1099511627776"),
    ],
)
def test_convert_constant_beyond_32_bits_warns(fn, constant):
    with pytest.warns(UserWarning, match=constant):
        converted(fn, tf.TensorSpec([None], tf.int32))


def test_convert_variable_beyond_32_bits_warns():
    variable = tf.Variable([2**40], dtype=tf.int64, name="offsets")
    with pytest.warns(UserWarning, match="variable 'offsets:?0?' holds 1099511627776"):
        converted(lambda i: i + variable)


def test_convert_indices_labels_and_shapes_do_not_warn():
    def fn(ids, x):
        rows = tf.gather(x, ids) + tf.cast(ids, tf.float32)[:, None] + tf.one_hot(ids, 2)
        seed = tf.random.stateless_uniform([2], tf.constant([2**40, 1], tf.int64))
        half = tf.shape(x, out_type=tf.int64)[0] // 2
        return rows * seed, tf.clip_by_value(ids, 0, 100) // 7 + half, tf.cast(tf.cast(ids, tf.int32), tf.int64) // 7

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted(fn, INT64, tf.TensorSpec([None, 2], tf.float32))


def test_convert_in_64_bit_mode_does_not_warn_and_jit_is_exact():
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        fn, params = converted(lambda t: t // DAY + 2**40)
        np.testing.assert_array_equal(jax.jit(fn)(params, T)[0], T // DAY + 2**40)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*64-bit mode is off")
@pytest.mark.parametrize(
    "fn",
    [
        lambda t: tf.truncatediv(t, DAY),
        lambda t: tf.bitwise.bitwise_or(t, 1) // DAY,
        lambda t: tf.bitwise.left_shift(t, 2) // DAY,
        lambda t: tf.sort(t) // DAY,
        lambda t: tf.math.segment_sum(t, [0, 0, 1, 1, 2, 2]) // DAY,
        lambda t: tf.dynamic_partition(t, [0, 1, 0, 1, 0, 1], 2)[0] // DAY,
    ],
)
def test_call_with_integers_beyond_32_bits_matches_tensorflow(fn):
    jax_fn, params = converted(fn)
    np.testing.assert_array_equal(jax_fn(params, T)[0], fn(tf.constant(T)))


@pytest.mark.filterwarnings("ignore:.*64-bit mode is off")
def test_call_with_many_integers_beyond_32_bits_matches_tensorflow():
    many = np.arange(100, dtype=np.int64) * 10**12
    jax_fn, params = converted(lambda t: t // DAY)
    np.testing.assert_array_equal(jax_fn(params, many)[0], many // DAY)


@pytest.mark.full
def test_call_narrowing_an_argument_warns():
    fn, params = converted(lambda x, t: tf.where(x > 0, t, 0), tf.TensorSpec([6], tf.float32), INT64)
    with pytest.warns(UserWarning, match=r"SelectV2\) narrows -9999999999999 to 32 bits"):
        fn(params, np.ones(6, np.float32), T)


def test_call_narrowing_a_result_warns():
    fn, params = converted(lambda t: t + 1)
    with pytest.warns(UserWarning, match="a result of .* narrows"):
        fn(params, T)


def test_table_with_keys_beyond_32_bits_finds_the_others_under_jit():
    keys = np.array([1, 2**32 + 5, 3, -(2**40), 9], np.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(keys, np.arange(5, dtype=np.int64))
    table = tf.lookup.StaticHashTable(initializer, -1)
    with pytest.warns(UserWarning, match="table .* holds"):
        fn, params = converted(lambda q: table.lookup(q))
    query = np.array([9, 5, 3, 1, 0], np.int64)
    np.testing.assert_array_equal(jax.jit(fn)(params, query)[0], table.lookup(tf.constant(query)))
