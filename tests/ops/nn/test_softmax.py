"""Softmax along any axis: few, many trailing values, reduction in rows."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.test_util import check_grads

from tf2jax_lite.ops.nn import softmax

SHAPES = [
    ((4, 5), 0),
    ((4, 5), 1),
    ((2, 7, 3), 1),
    ((2, 7, 9), 1),
    ((2, 7, 3, 3), 1),
    ((5, 3, 1), 1),
    ((3, 20000), 0),
    ((2, 19, 16400), 1),
    ((1, 20000), 0),
    ((0, 20000), 0),
    ((3, 0), 0),
    ((0, 3, 9), 1),
    ((4,), 0),
]
PAIRS = [(softmax.softmax_along, jax.nn.softmax), (softmax.log_softmax_along, jax.nn.log_softmax)]
ALONG = [
    *((*shape, np.float32) for shape in SHAPES),
    *((*SHAPES[i], dtype) for i in (2, 3, 6) for dtype in (np.float64, np.float16, ml_dtypes.bfloat16)),
]


@pytest.mark.default_cases("(0, 20000)-0-float32-log_softmax")
@pytest.mark.parametrize("own, jaxs", PAIRS, ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("shape, axis, dtype", ALONG, ids=lambda v: v.__name__ if isinstance(v, type) else str(v))
def test_values_and_gradients(own, jaxs, shape, axis, dtype):
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype is np.float64):
        x, weights = (jnp.asarray(rng.normal(size=shape) * 3, dtype) for _ in range(2))
        tolerance: Any = {"rtol": 200 * float(jnp.finfo(dtype).eps), "atol": 40 * float(jnp.finfo(dtype).eps)}

        def loss(fn, x):
            return jnp.sum(fn(x, axis=axis) * weights, dtype=np.float32)

        for made in (
            lambda fn: lambda x: fn(x, axis=axis),
            lambda fn: lambda x: jax.vmap(lambda x: fn(x, axis=axis))(jnp.stack([x, -x])),
            lambda fn: jax.grad(lambda x: loss(fn, x)),
            lambda fn: lambda x: jax.jvp(lambda x: fn(x, axis=axis), [x], [weights])[1],
        ):
            actual, expected = jax.jit(made(own))(x), jax.jit(made(jaxs))(x)
            assert actual.dtype == expected.dtype
            np.testing.assert_allclose(np.float64(actual), np.float64(expected), **tolerance)


@pytest.mark.full
@pytest.mark.parametrize("own, jaxs", PAIRS, ids=["softmax", "log_softmax"])
def test_infinities_and_nans(own, jaxs):
    x = np.random.default_rng(0).normal(size=(5, 20000)).astype(np.float32)
    x[1, 0], x[2, 1], x[3, 2], x[:, 3] = np.nan, np.inf, -np.inf, -np.inf
    for columns in (20000, 10, 3):
        actual, expected = (jax.jit(lambda x, fn=fn: fn(x, axis=0))(x[:, :columns]) for fn in (own, jaxs))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_second_derivatives():
    x = np.random.default_rng(0).normal(size=(3, 16400))
    with jax.enable_x64(True):
        check_grads(lambda x: softmax.softmax_along(x, axis=0), (x,), order=2)
