"""Binding of arguments: names the converter uses, and other kinds of numbers."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import DtypeMismatchError, InputError, Tf2JaxError

A, B = np.float32([1, 2]), np.float32([3, 5])
SPEC = tf.TensorSpec([2], tf.float32)


def _weighted(first, second):
    return first - 2 * second


def _params_first(params, x):
    return _weighted(params, x)


def _params_last(x, *, params):
    return _weighted(params, x)


def _rng(x, rng):
    return _weighted(rng, x)


def _rng_in_kwargs(x, **kwargs):
    return _weighted(kwargs["rng"], x)


@pytest.mark.full
@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (_params_first, ("params", "x"), ()),
        (_params_first, (), ("params", "x")),
        (_params_last, ("x",), ("params",)),
        (_rng, ("x", "rng"), ()),
        (_rng, ("x",), ("rng",)),
        (_rng_in_kwargs, ("x",), ("rng",)),
    ],
)
def test_arguments_with_the_names_of_params_and_rng(fn, args, kwargs):
    # `params` in front and `rng` behind are the converted function's own arguments.
    data = {"x": B, "params": A, "rng": A}
    jax_fn, params = tf2jax.convert(tf.function(fn), *[SPEC for _ in args], **dict.fromkeys(kwargs, SPEC))
    given, named = [data[name] for name in args], {name: data[name] for name in kwargs}
    np.testing.assert_array_equal(jax_fn(params, *given, **named)[0], _weighted(A, B))
    functional = tf2jax.convert_functional(tf.function(fn), *[SPEC for _ in args], **dict.fromkeys(kwargs, SPEC))
    np.testing.assert_array_equal(functional(*given, **named), _weighted(A, B))
    assert next(iter(inspect.signature(jax_fn).parameters)).startswith("params")


def test_an_argument_called_self():
    jax_fn, params = tf2jax.convert(tf.function(lambda x, self: _weighted(self, x)), SPEC, SPEC)
    np.testing.assert_array_equal(jax_fn(params, x=B, self=A)[0], _weighted(A, B))


@pytest.mark.full
def test_a_key_beside_an_argument_called_rng():
    @tf.function
    def noisy(x, rng):
        return x + rng + 0 * tf.random.normal([2])

    jax_fn = tf2jax.convert_functional(noisy, SPEC, SPEC)
    key = jax.random.key(0)
    np.testing.assert_allclose(jax_fn(A, B, rng=key), A + B)
    np.testing.assert_allclose(jax_fn(A, B, rng=jax.random.key_data(key)), A + B)


@pytest.mark.parametrize("call", [lambda fn, params: fn(params=params, x=A), lambda fn, params: fn(params, x=A)])
def test_params_by_name(call):
    jax_fn, params = tf2jax.convert(tf.function(lambda x: x * 2), SPEC)
    np.testing.assert_array_equal(call(jax_fn, params)[0], A * 2)


def test_params_that_are_not_given():
    jax_fn, _ = tf2jax.convert(tf.function(lambda x: x * 2), SPEC)
    with pytest.raises(InputError, match="the first argument is params"):
        jax_fn()


I1, I2, TRUTH = np.int32([1, 2, 3]), np.int32([2, 2, 2]), np.bool_([True, False, True])


@pytest.mark.default_cases("<lambda>-<lambda>-dtype8-args8")
@pytest.mark.parametrize(
    ("fn", "dtype", "args"),
    [
        (lambda a, b: a / b, tf.float32, (I1, I2)),
        (lambda a, b: tf.round(a / b), tf.float32, (I1, I2)),
        (lambda a, b: tf.math.reduce_std(a) + tf.sqrt(b), tf.float32, (I1, I2)),
        (lambda a, b: a**-b, tf.float32, (I1, I2)),
        (lambda a, b: a + b, tf.float32, (TRUTH, TRUTH)),
        (lambda a, b: a + b, tf.int32, (TRUTH, TRUTH)),
        (lambda a, b: tf.reduce_sum(a) * b, tf.int32, (TRUTH, TRUTH)),
        (lambda a, b: a / b, tf.complex64, (I1, np.float32(I2))),
        (lambda a, b: tf.cast(a, tf.int32) + tf.cast(tf.logical_not(b), tf.int32), tf.bool, (I1 - 1, I1 - 2)),
        (lambda a, b: tf.logical_and(a, b), tf.bool, (np.float32(I1) - 1, I1 - 2)),
    ],
)
@pytest.mark.parametrize("form", [lambda fn: fn, jax.jit])
def test_numbers_of_a_narrower_kind_are_taken_as_the_tensor_holds_them(fn, dtype, args, form):
    # Quotients of integers are integers in JAX, sums of booleans are booleans.
    jax_fn = form(tf2jax.convert_functional(tf.function(fn), *[tf.TensorSpec([3], dtype)] * 2))
    expected = fn(*[tf.cast(a, dtype) for a in args])
    actual = jax_fn(*args)
    assert actual.dtype == expected.dtype.as_numpy_dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (tf.int32, 3, np.int32(6)),
        (tf.int32, 3.0, np.int32(6)),
        (tf.int32, 3.5, np.float32(7)),  # as an array of floats: half a unit is not dropped
        (tf.int32, True, np.int32(2)),
        (tf.float32, 1.5, np.float32(3)),
        (tf.float32, np.float64(0.1), np.float32(0.1) * 2),
        (tf.float32, 2j, np.complex64(4j)),
    ],
)
def test_python_scalars(dtype, value, expected):
    actual = tf2jax.convert_functional(tf.function(lambda x: x * 2), tf.TensorSpec([], dtype))(value)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (tf.int32, [1, 2], np.int32([2, 4])),
        (tf.int32, (1.0, True), np.int32([2, 2])),
        (tf.int32, [1, 2.5], np.float32([2, 5])),
        (tf.float32, [[1, 2], [3.5, 4]], np.float32([[2, 4], [7, 8]])),
        (tf.float32, [np.float32([1, 2]), [3, 4]], np.float32([[2, 4], [6, 8]])),
        (tf.float32, [jnp.ones(2), np.zeros(2, np.float32)], np.float32([[2, 2], [0, 0]])),
        (tf.float32, [], np.zeros(0, np.float32)),
    ],
)
def test_lists_are_tensors(dtype, value, expected):
    # As for a tf.function with an input_signature.
    jax_fn = tf2jax.convert_functional(tf.function(lambda x: x * 2), tf.TensorSpec(None, dtype))
    actual = jax_fn(value)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    if dtype == tf.float32:  # of traced values, too
        np.testing.assert_array_equal(jax.jit(jax_fn)(value), expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (tf.uint8, [1, 300]),
        (tf.float32, [[1, 2], [3]]),
        (tf.float32, [1.0, None]),
        (tf.float32, ["a"]),
        (tf.float32, {"a": 1.0}),
        (tf.uint8, 300),
        (tf.uint8, -1),
        (tf.int32, 2**40),
        (tf.int32, float("inf")),
        (tf.float32, 10**400),
        (tf.float32, "1.5"),
        (tf.float32, b"1.5"),
        (tf.float32, np.datetime64("2020-01-01")),
        (tf.float32, np.void(b"abc")),
        (tf.float32, np.zeros((), [("a", "f4")])),
        (tf.float32, np.ma.masked_array(1.0, mask=True)),
        (tf.float32, object()),
        (tf.float32, jax.ShapeDtypeStruct((), np.float32)),
        (tf.float32, jax.random.key(0)),
    ],
)
def test_values_that_a_tensor_cannot_hold_raise(dtype, value):
    jax_fn = tf2jax.convert_functional(tf.function(lambda x: x * 2), tf.TensorSpec([], dtype))
    with pytest.raises(Tf2JaxError, match="argument x"):
        jax_fn(value)


def test_strict_dtypes_hold_for_python_scalars():
    with tf2jax.override_config("strict_dtype_check", True):
        jax_fn = tf2jax.convert_functional(tf.function(lambda x: x * 2), tf.TensorSpec([], tf.int32))
    assert jax_fn(3) == 6
    with pytest.raises(DtypeMismatchError, match="argument x"):
        jax_fn(3.5)
    with pytest.raises(DtypeMismatchError, match="argument x"):
        jax_fn(jnp.asarray(True))


@pytest.mark.parametrize("jit", [False, True])
def test_call_errors_contain_tf2jax_phrases(jit):
    """Callers of tf2jax match these words."""
    variable = tf.Variable([1.0, 2.0], name="w")
    fn, params = tf2jax.convert(lambda x, flag: variable * x if flag else x, SPEC, True)

    with pytest.raises(ValueError, match=r"Some parameters are missing, \['w'\]\."):
        fn({}, A, True)
    static = jax.jit(fn, static_argnums=2) if jit else fn
    with pytest.raises(ValueError, match=r"incompatible input shape \(3,\) of argument x"):
        static(params, np.zeros(3, np.float32), True)
    with pytest.raises(ValueError, match="Found unexpected literal value, bool False, for argument flag"):
        static(params, A, False)
    if jit:
        with pytest.raises(ValueError, match=r"Found unexpected tracer, for argument flag.*static_argnums"):
            jax.jit(fn)(params, A, True)


def test_dtype_error_contains_tf2jax_phrase():
    with tf2jax.override_config("strict_dtype_check", True):
        fn = tf2jax.convert_functional(lambda x: x, SPEC)
    with pytest.raises(ValueError, match="incompatible input dtype int32 of argument x"):
        fn(np.zeros(2, np.int32))
