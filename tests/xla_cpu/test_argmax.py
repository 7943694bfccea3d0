"""The CPU lowering rule of argmax and argmin against JAX's own primitives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.xla_cpu import argmax, cost_model
from tf2jax_lite.xla_cpu.transform import call

from .test_rules import normal


@pytest.fixture
def short(monkeypatch):
    """Let short axes take the rule, and drop programs of other limits."""
    monkeypatch.setattr(cost_model, "ARG_MIN_LAST_AXIS", 1)
    jax.clear_caches()


def arg_reduce(fn, x, axis):
    return call(fn, x, axis=axis, index_dtype=np.dtype(np.int32))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int8, np.uint32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("fn", [lax.argmax, lax.argmin])
def test_arg_reduce(short, fn, axis, dtype):
    """Of equal values the first; in batches, too."""
    with jax.enable_x64(dtype == np.float64):
        x = jnp.asarray(
            np.round(normal(4, 5, 6) * 2).clip(-3 if jnp.issubdtype(dtype, jnp.signedinteger) else 0)
        ).astype(dtype)
        expected = fn(x, axis, np.int32)
        found = jax.jit(lambda x: arg_reduce(fn, x, axis))(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)
        batches = jnp.stack([x, x[::-1]], 1)
        actual = jax.jit(jax.vmap(lambda x: arg_reduce(fn, x, axis), in_axes=1))(batches)
        np.testing.assert_array_equal(actual, jnp.stack([expected, fn(x[::-1], axis, np.int32)]))


@pytest.mark.parametrize("fn", [lax.argmax, lax.argmin])
def test_nan(short, fn):
    """The first NaN counts as the extreme."""
    x = normal(4, 6)
    x[0, 3], x[1, 2:5], x[2], x[3, 0] = np.nan, np.nan, np.nan, np.inf
    np.testing.assert_array_equal(jax.jit(lambda x: arg_reduce(fn, x, 1))(x), fn(jnp.asarray(x), 1, np.int32))


@pytest.mark.full
@pytest.mark.parametrize("exact", [1, 1 << 24])
def test_arg_reduce_of_many(short, monkeypatch, exact):
    """Where float32 is not exact, indices are integers."""
    monkeypatch.setattr(argmax, "_EXACT", exact)
    x = jnp.asarray(normal(3, 40))
    np.testing.assert_array_equal(jax.jit(lambda x: arg_reduce(lax.argmax, x, 1))(x), lax.argmax(x, 1, np.int32))
