"""Layers of Flax compute the same as the statements that they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tf2jax_lite.export.codegen.idioms import helpers
from tf2jax_lite.export.codegen.nnx.layers import _TEMPLATES

DTYPES = ["float32", "bfloat16", "float16"]
RNGS = nnx.Rngs(0)
CONV = ({}, {"strides": (2, 1), "padding": "VALID"}, {"padding": ((1, 0), (2, 3)), "dilation": (1, 2)}, {"groups": 2})
KEYWORDS = {"dilation": "kernel_dilation", "groups": "feature_group_count"}


def drawn(shape, dtype="float32"):
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), dtype)


def conv_words(words):
    return {KEYWORDS.get(word, word): value for word, value in words.items()}


def depthwise(layer, x, k):
    layer.kernel = nnx.Param(k.reshape(layer.kernel.shape))
    return layer(x)


def with_variables(**names):
    """Return a call of a layer with arrays as its variables, in order."""

    def call(layer, x, *arrays):
        for name, array in zip(names, arrays, strict=True):
            setattr(layer, name, names[name](array))
        return layer(x)

    return call


def lstm(layer, x, h, c, kernel, recurrent, bias):
    layer.dense_i.kernel, layer.dense_h.kernel = nnx.Param(kernel), nnx.Param(recurrent)
    layer.dense_h.bias = nnx.Param(bias)
    (cell, hidden), _ = layer((c, h), x)
    return hidden, cell


def attention(layer, x, *kernels):
    for name, kernel in zip(("query", "key", "value", "out"), kernels, strict=True):
        getattr(layer, name).kernel = nnx.Param(kernel)
    return layer(x)


def attended(x, q, k, v, o):
    projected = (jnp.einsum("bte,ehd->bthd", x, kernel) for kernel in (q, k, v))
    return jnp.einsum("bthd,hde->bte", helpers._attention(*projected), o)


KERNEL = with_variables(kernel=nnx.Param)
BIASED = with_variables(kernel=nnx.Param, bias=nnx.Param)
NORM = with_variables(scale=nnx.Param, bias=nnx.Param)
FROZEN_NORM = with_variables(scale=nnx.Param, bias=nnx.Param, mean=nnx.BatchStat, var=nnx.BatchStat)

# Function of the source, then the replaced computation, a layer, how it is called, and shapes of the arguments.
CASES = {
    "linear": ("@", lambda x, k, b: x @ k + b, lambda: nnx.Linear(4, 5, rngs=RNGS), BIASED, [(2, 3, 4), (4, 5), (5,)]),
    "einsum": (
        "jnp.einsum",
        lambda x, k: jnp.einsum("abc,dbe->acde", x, k),
        lambda: nnx.Einsum("abc,dbe->acde", (6, 3, 5), None, rngs=RNGS),
        KERNEL,
        [(2, 3, 4), (6, 3, 5)],
    ),
    "heads": (
        "jnp.einsum",
        lambda x, k, b: jnp.einsum("abc,cde->abde", x, k) + b,
        lambda: nnx.LinearGeneral(4, (2, 3), rngs=RNGS),
        BIASED,
        [(2, 3, 4), (4, 2, 3), (2, 3)],
    ),
    "joined heads": (
        "jnp.einsum",
        lambda x, k: jnp.einsum("abde,dec->abc", x, k),
        lambda: nnx.LinearGeneral((2, 3), 4, axis=(-2, -1), use_bias=False, rngs=RNGS),
        KERNEL,
        [(2, 5, 2, 3), (2, 3, 4)],
    ),
    **{
        f"conv {words}": (
            "_conv",
            lambda x, k, words=words: helpers._conv(x, k, **words),
            lambda words=words: nnx.Conv(4, 6, (3, 2), use_bias=False, **conv_words(words), rngs=RNGS),
            KERNEL,
            [(2, 7, 8, 4), (3, 2, 4 // words.get("groups", 1), 6)],
        )
        for words in CONV
    },
    "conv of sequences": (
        "_conv1d",
        lambda x, k: helpers._conv1d(x, k, strides=2, padding="VALID"),
        lambda: nnx.Conv(4, 6, (3,), strides=2, padding="VALID", use_bias=False, rngs=RNGS),
        KERNEL,
        [(2, 7, 4), (3, 4, 6)],
    ),
    "depthwise": (
        "_depthwise_conv",
        lambda x, k: helpers._depthwise_conv(x, k, strides=(2, 2)),
        lambda: nnx.Conv(4, 8, (3, 3), strides=(2, 2), feature_group_count=4, use_bias=False, rngs=RNGS),
        depthwise,
        [(2, 7, 8, 4), (3, 3, 4, 2)],
    ),
    "transposed": (
        "_conv_transpose",
        lambda x, k: helpers._conv_transpose(x, k, (2, 2), ((1, 2), (1, 2))),
        lambda: nnx.ConvTranspose(
            4, 5, (3, 3), strides=(2, 2), padding=((1, 2), (1, 2)), transpose_kernel=True, use_bias=False, rngs=RNGS
        ),
        KERNEL,
        [(2, 5, 6, 4), (3, 3, 5, 4)],
    ),
    "layer norm": (
        "_normalize_rows",
        lambda x, g, b: helpers._normalize_rows(x, g, b, 1e-3),
        lambda: nnx.LayerNorm(4, epsilon=1e-3, use_fast_variance=False, rngs=RNGS),
        NORM,
        [(2, 3, 4), (4,), (4,)],
    ),
    "batch norm of moving statistics": (
        "_moving_batch_norm",
        lambda x, g, b, m, v: helpers._normalize(x, m, jnp.square(v), g, b, 1e-3),
        lambda: nnx.BatchNorm(4, use_running_average=True, epsilon=1e-3, rngs=RNGS),
        lambda layer, x, g, b, m, v: FROZEN_NORM(layer, x, g, b, m, jnp.square(v)),
        [(2, 3, 4), (4,), (4,), (4,), (4,)],
    ),
    "batch norm": (
        "_batch_norm",
        lambda x, g, b: helpers._batch_norm(
            x, {"gamma": g, "beta": b, "moving_mean": jnp.zeros(4), "moving_variance": jnp.ones(4)}, train=True
        ),
        lambda: nnx.BatchNorm(4, epsilon=1e-3, use_fast_variance=False, rngs=RNGS),
        lambda layer, x, g, b: FROZEN_NORM(layer, x, g, b, jnp.zeros(4), jnp.ones(4)),
        [(6, 3, 4), (4,), (4,)],
    ),
    "lstm": (
        "_lstm_cell",
        lambda x, h, c, *given: helpers._lstm_cell(
            x, h, c, dict(zip(("kernel", "recurrent_kernel", "bias"), given, strict=True))
        ),
        lambda: nnx.OptimizedLSTMCell(3, 2, rngs=RNGS),
        lstm,
        [(4, 3), (4, 2), (4, 2), (3, 8), (2, 8), (8,)],
    ),
    "attention": (
        "_attention",
        attended,
        lambda: nnx.MultiHeadAttention(2, 4, qkv_features=6, use_bias=False, decode=False, rngs=RNGS),
        attention,
        [(2, 5, 4), (4, 2, 3), (4, 2, 3), (4, 2, 3), (2, 3, 4)],
    ),
}
SAME_BITS = [name for name, case in CASES.items() if case[0] in ("@", "jnp.einsum", "_conv", "_conv1d")]


def compared(name, dtype):
    """Return values and gradients of the computation, and of the layer."""
    _, function, make, call, shapes = CASES[name]
    args = [drawn(shape, dtype) for shape in shapes]
    layer = make()
    graph, state = nnx.split(layer)

    def both(function):
        value, pull = jax.vjp(function, *args)
        return jax.tree.leaves((value, pull(jax.tree.map(jnp.ones_like, value))))

    return both(function), both(lambda *arrays: call(nnx.merge(graph, state), *arrays))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    for expected, actual in zip(*compared(name, "float32"), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SAME_BITS)
def test_contractions_are_equal_in_bits(name, dtype):
    if name.startswith("conv") and dtype == "float16":
        pytest.skip("JAX has no such convolution on CPUs")
    for expected, actual in zip(*compared(name, dtype), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(actual, np.float32), np.asarray(expected, np.float32))


def test_embeddings_are_taken():
    table, ids = drawn((7, 3)), jnp.asarray([[0, 6], [3, 3]])
    layer = nnx.Embed(7, 3, rngs=RNGS)
    layer.embedding = nnx.Param(table)
    np.testing.assert_array_equal(layer(ids), jnp.take(table, ids, axis=0, mode="fill", fill_value=0))


@pytest.mark.full
def test_dropout_has_the_same_distribution():
    x = jnp.ones((400, 50))
    for dropped in (nnx.Dropout(0.3, rngs=RNGS)(x), helpers._dropout(x, jax.random.key(0), 0, 0.3)):
        np.testing.assert_allclose(np.unique(dropped), [0, 1 / 0.7], rtol=1e-6)
        np.testing.assert_allclose(np.mean(np.asarray(dropped) == 0), 0.3, atol=0.02)


def test_all_templates_are_compared():
    normalizations = {"_normalize", "_moving_batch_norm", "_batch_norm"}
    assert {case[0] for case in CASES.values()} | normalizations >= _TEMPLATES.keys() - {"_dropout", "jnp.take"}
