"""Calls of a converted function: its params, and its key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import DtypeMismatchError, InputError, MissingParamError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _converted():
    w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
    count = tf.Variable(1, trainable=False, name="count")

    @tf.function
    def model(x):
        count.assign_add(1)
        return tf.matmul(x, w) / tf.reduce_mean(w)

    return tf2jax.convert(model, tf.TensorSpec([None, 3], tf.float32))


W = np.arange(6).reshape(3, 2)


@pytest.mark.default_cases("<lambda>-given4-float32")
@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (W.astype(np.float32), np.float32),
        (W.astype(np.float64), np.float32),
        (jnp.asarray(W, jnp.bfloat16), np.float32),  # JAX's promotion, as for arguments of other dtypes
        (jnp.asarray(W, jnp.float16), np.float32),
        (W.astype(np.int32), np.float32),
        (tf.constant(W), np.float32),
        (tf.Variable(tf.cast(W, tf.float32)), np.float32),
    ],
)
@pytest.mark.parametrize("form", [lambda fn: fn, jax.jit])
def test_params_of_other_dtypes(given, dtype, form):
    jax_fn, params = _converted()
    given = np.asarray(given) if form is jax.jit and tf.is_tensor(given) else given
    results, updated = form(jax_fn)({**params, "w": given}, X)
    assert results.dtype == dtype
    np.testing.assert_allclose(results, X @ W / np.mean(W), rtol=1e-2)
    assert updated["count"] == 2


@pytest.mark.full
def test_strict_dtypes_hold_for_params():
    with tf2jax.override_config("strict_dtype_check", True):
        jax_fn, params = _converted()
    with pytest.raises(DtypeMismatchError, match=r"param 'w' has dtype bfloat16.*float32"):
        jax_fn({**params, "w": jnp.asarray(W, jnp.bfloat16)}, X)


@pytest.mark.default_cases(
    "value1-InputError-param 'w' is not an array, but a list", "value3-DtypeMismatchError-param 'w' has dtype key"
)
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (None, InputError, "param 'w' is not an array, but a NoneType"),
        (W.tolist(), InputError, "param 'w' is not an array, but a list"),
        ("w", InputError, "param 'w' is not an array, but a str"),
        (jax.random.split(jax.random.key(0), (3, 2)), DtypeMismatchError, "param 'w' has dtype key"),
        (np.zeros((3, 2), jax.dtypes.float0), DtypeMismatchError, "param 'w' has dtype"),
        (jax.ShapeDtypeStruct((3, 2), np.float32), MissingParamError, "'w' is read before it has a value"),
    ],
)
def test_invalid_params_raise(value, error, message):
    jax_fn, params = _converted()
    with pytest.raises(error, match=message):
        jax_fn({**params, "w": value}, X)


@pytest.mark.full
@pytest.mark.parametrize("rng", [3, np.uint32([0, 1, 2]), np.int32([0, 1]), "key", jax.random.split(jax.random.key(0))])
def test_invalid_keys_raise(rng):
    jax_fn, params = _converted()
    with pytest.raises(InputError, match="rng is"):
        jax_fn(params, X, rng=rng)
