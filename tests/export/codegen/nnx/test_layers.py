"""Layers of Flax compute the same bits as the statements that they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tf2jax_lite.export.codegen.idioms import helpers
from tf2jax_lite.export.codegen.nnx.layers import BASES

DTYPES = ["float32", "bfloat16", "float16"]
CONVOLUTIONS = {
    "same": {},
    "strides": {"strides": (2, 1), "padding": "VALID"},
    "pads": {"padding": ((1, 0), (2, 3)), "dilation": (1, 2)},
    "groups": {"groups": 2},
}
KEYWORDS = {"dilation": "kernel_dilation", "groups": "feature_group_count"}


def drawn(shape, dtype):
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), dtype)


def check(layer, function, x, kernel, bias):
    """Compare a layer, given its arrays, with a function, and their derivatives."""

    def both(call):
        value, pull = jax.vjp(call, x, kernel, bias)
        return value, pull(jnp.ones_like(value))

    graph, state = nnx.split(layer)

    def merged(x, kernel, bias):
        layer = nnx.merge(graph, state)
        layer.kernel, layer.bias = nnx.Param(kernel), nnx.data(None) if bias is None else nnx.Param(bias)
        return layer(x)

    for expected, actual in zip(jax.tree.leaves(both(function)), jax.tree.leaves(both(merged)), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(actual, np.float32), np.asarray(expected, np.float32))


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear(has_bias, dtype):
    x, kernel, bias = drawn((2, 3, 4), dtype), drawn((4, 5), dtype), drawn((5,), dtype) if has_bias else None
    layer = nnx.Linear(4, 5, use_bias=has_bias, rngs=nnx.Rngs(0))
    check(layer, lambda x, k, b: x @ k + b if has_bias else x @ k, x, kernel, bias)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_einsum(has_bias, dtype):
    x, kernel, bias = drawn((2, 3, 4), dtype), drawn((4, 5, 6), dtype), drawn((5, 6), dtype) if has_bias else None
    layer = nnx.Einsum("abc,cde->abde", (4, 5, 6), (5, 6) if has_bias else None, rngs=nnx.Rngs(0))
    check(
        layer,
        lambda x, k, b: jnp.einsum("abc,cde->abde", x, k) + (b if has_bias else jnp.zeros((), x.dtype)),
        x,
        kernel,
        bias,
    )


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_conv(case, dtype):
    options = CONVOLUTIONS[case]
    groups = options.get("groups", 1)
    x, kernel, bias = drawn((2, 7, 8, 4), dtype), drawn((3, 2, 4 // groups, 6), dtype), drawn((6,), dtype)
    words = {KEYWORDS.get(word, word): value for word, value in options.items()}
    layer = nnx.Conv(4, 6, (3, 2), **words, rngs=nnx.Rngs(0))
    check(layer, lambda x, k, b: helpers._conv(x, k, **options) + b, x, kernel, bias)


@pytest.mark.full
def test_all_bases_are_compared():
    assert set(BASES.values()) == {"nnx.Linear", "nnx.Einsum", "nnx.Conv"}
