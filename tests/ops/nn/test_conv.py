"""Convolutions; NCHW against transposed NHWC, the CPU kernels' layout."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.registry import lookup

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 7, 6, 4)).astype(np.float32)
FILTER = RNG.normal(size=(3, 2, 4, 6)).astype(np.float32)
GROUPED = RNG.normal(size=(3, 2, 2, 6)).astype(np.float32)
DEPTHWISE = RNG.normal(size=(3, 2, 4, 2)).astype(np.float32)
VOLUME = RNG.normal(size=(1, 4, 5, 4, 2)).astype(np.float32)
FILTER3D = RNG.normal(size=(2, 3, 2, 2, 3)).astype(np.float32)
LOOSE = {"rtol": 1e-4, "atol": 1e-4}

ATTRS = [
    {"strides": [1, 1, 1, 1], "padding": "SAME"},
    {"strides": [1, 2, 2, 1], "padding": "SAME"},
    {"strides": [1, 2, 1, 1], "padding": "VALID"},
    {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]},
    {"strides": [1, 1, 1, 1], "padding": "SAME", "dilations": [1, 2, 2, 1]},
]


def out_shape(op, image, kernel, attrs):
    return jax.eval_shape(lambda a, b: lookup(op).fn(a, b, **attrs), image, kernel).shape


def grads(op, input_op, filter_op, image, kernel, attrs_list):
    for attrs in attrs_list:
        g = RNG.normal(size=out_shape(op, image, kernel, attrs)).astype(np.float32)
        yield case(input_op, np.array(image.shape, np.int32), kernel, g, **attrs).using(**LOOSE)
        yield case(filter_op, image, np.array(kernel.shape, np.int32), g, **attrs).using(**LOOSE)


ATTRS3D = [
    {"strides": [1, 1, 1, 1, 1], "padding": "SAME"},
    {"strides": [1, 2, 1, 2, 1], "padding": "SAME"},
    {"strides": [1, 1, 1, 1, 1], "padding": "VALID"},
]
SQUARE = [{**f, "strides": [1, 2, 2, 1]} if f["strides"][1:3] == [2, 1] else f for f in ATTRS]

CASES = [
    *(case("Conv", IMAGE, FILTER, **f).using(name=str(i), **LOOSE) for i, f in enumerate(ATTRS)),
    case("Conv", IMAGE[None], FILTER, **ATTRS[1], batch_dims=2).using(name="batch", **LOOSE),
    case("Conv", VOLUME, FILTER3D, strides=[1, 1, 2, 1, 1], padding="SAME").using(name="3d", **LOOSE),
    case("Conv", (IMAGE * 9).astype(np.int32), (FILTER * 9).astype(np.int32), **ATTRS[0]).using(name="int"),
    case("Conv", IMAGE[0, 0], FILTER[0], strides=[1, 1, 1], padding="SAME").using(name="1d", error="spatial"),
    *(
        case("Conv2D", IMAGE.astype(d), FILTER.astype(d), **f).using(name=f"{np.dtype(d).name}-{i}", **LOOSE)
        for i, f in enumerate(ATTRS)
        for d in (np.float32, np.float64)
    ),
    case("Conv2D", IMAGE, GROUPED, **ATTRS[0]).using(name="grouped", **LOOSE),
    case("Conv2D", IMAGE, FILTER, **ATTRS[1]).using(name="symbolic", symbolic=("b, 7, 6, 4", "3, 2, 4, 6"), **LOOSE),
    case("Conv2D", IMAGE[:0], FILTER, **ATTRS[0]).using(name="empty"),
    # TensorFlow's CPU kernels have no dilation here.
    *grads("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", IMAGE, FILTER, ATTRS[:4]),
    *(case("Conv3D", VOLUME, FILTER3D, **f).using(name=str(i), **LOOSE) for i, f in enumerate(ATTRS3D)),
    *grads("Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", VOLUME, FILTER3D, ATTRS3D),
]


# TensorFlow has no kernel for these.
TESTED_OTHERWISE = {"Conv2DBackpropInputV2", "Conv2DBackpropFilterV2"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("attrs4")
@pytest.mark.parametrize("attrs", ATTRS)
def test_backprop_v2_uses_only_the_shape(attrs):
    """The V2 gradients get the tensor itself, of which only the shape is read."""
    cotangent = RNG.normal(size=out_shape("Conv2D", IMAGE, FILTER, attrs)).astype(np.float32)
    sizes = [np.array(x.shape, np.int32) for x in (IMAGE, FILTER)]
    for op, first, second in (
        ("Conv2DBackpropInput", (sizes[0], FILTER, cotangent), (np.full_like(IMAGE, np.nan), FILTER, cotangent)),
        ("Conv2DBackpropFilter", (IMAGE, sizes[1], cotangent), (IMAGE, np.full_like(FILTER, np.nan), cotangent)),
    ):
        expected = lookup(op).fn(*first, **attrs)
        np.testing.assert_array_equal(lookup(f"{op}V2").fn(*second, **attrs), expected)


@pytest.mark.default_cases("attrs2-2")
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("attrs", ATTRS)
def test_integer_input_gradient(attrs, groups):
    """JAX has no transpose of integer convolutions: the op computes its own."""
    image, kernel = np.zeros((2, 6, 7, 4), np.int32), np.arange(3 * 2 * (4 // groups) * 6) % 11 - 5
    kernel = kernel.reshape(3, 2, 4 // groups, 6).astype(np.int32)
    shape = out_shape("Conv2D", image, kernel, attrs)
    cotangent = np.arange(np.prod(shape)).astype(np.int32).reshape(shape) % 13
    sizes = np.array(image.shape, np.int32)
    found = jax.jit(lambda k, g: lookup("Conv2DBackpropInput").fn(sizes, k, g, **attrs))(kernel, cotangent)
    floats = lookup("Conv2DBackpropInput").fn(sizes, np.float32(kernel), np.float32(cotangent), **attrs)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, floats)
    if groups == 1 and "dilations" not in attrs:  # the others have no CPU kernel in TensorFlow
        np.testing.assert_array_equal(
            found, tf.raw_ops.Conv2DBackpropInput(input_sizes=sizes, filter=kernel, out_backprop=cotangent, **attrs)
        )


def _nchw(values):
    return [values[i] for i in ((0, 3, 1, 2) if len(values) == 4 else (0, 4, 1, 2, 3))]


@pytest.mark.full
@pytest.mark.parametrize(("op", "kernel"), [("Conv2D", FILTER), ("DepthwiseConv2dNative", DEPTHWISE)])
@pytest.mark.parametrize("attrs", SQUARE[:4])
def test_nchw(op, kernel, attrs):
    fn = lookup(op).fn
    expected = fn(IMAGE, kernel, **attrs)
    changed = {k: (_nchw(v) if k in ("strides", "dilations") else v) for k, v in attrs.items()}
    if "explicit_paddings" in attrs:
        pairs = np.array(attrs["explicit_paddings"]).reshape(4, 2)
        changed["explicit_paddings"] = np.array(_nchw(pairs)).reshape(-1).tolist()
    actual = fn(IMAGE.transpose(0, 3, 1, 2), kernel, data_format="NCHW", **changed)
    np.testing.assert_allclose(np.transpose(actual, (0, 2, 3, 1)), expected, rtol=1e-4, atol=1e-5)


def _convolution(x, w, kind, attrs):
    op = tf.raw_ops.Conv3D if kind == "3D" else tf.raw_ops.DepthwiseConv2dNative if kind == "depthwise" else None
    return (op or tf.raw_ops.Conv2D)(input=x, filter=w, **attrs)


_SYMBOLIC = [
    ("", (1, 1), {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ("", (3, 3), {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ("", (5, 2), {"strides": [1, 3, 3, 1], "padding": "SAME"}),
    ("", (3, 2), {"strides": [1, 1, 1, 1], "padding": "VALID"}),
    ("", (3, 2), {"strides": [1, 2, 2, 1], "padding": "VALID"}),
    ("", (2, 2), {"strides": [1, 3, 3, 1], "padding": "VALID"}),
    ("", (3, 3), {"strides": [1, 2, 2, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}),
    ("depthwise", (3, 3), {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    ("depthwise", (3, 3), {"strides": [1, 2, 2, 1], "padding": "VALID"}),
    ("3D", (2, 3, 2), {"strides": [1, 2, 2, 2, 1], "padding": "SAME"}),
]


@pytest.mark.full
@pytest.mark.parametrize(("kind", "window", "attrs"), _SYMBOLIC)
def test_symbolic_spatial_sizes(kind, window, attrs):
    """Exported once for all sizes: results, gradients in the graph, and those of JAX."""
    kernel = RNG.normal(size=(*window, 2, 3)).astype(np.float32)

    @tf.function
    def both(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = _convolution(x, w, kind, attrs)
            loss = tf.reduce_sum(tf.sin(y))
        return y, *tape.gradient(loss, [x, w])

    def forward(x, w):
        return _convolution(x, w, kind, attrs)

    rank = len(window)
    specs = tf.TensorSpec([None] * (rank + 1) + [2], tf.float32), tf.TensorSpec(kernel.shape, tf.float32)
    fn, _ = tf2jax.convert(both, *specs)
    plain, _ = tf2jax.convert(tf.function(forward), *specs)

    def all_of(x, w):
        gradients = jax.grad(lambda x, w: jnp.sum(jnp.sin(plain({}, x, w)[0])), (0, 1))(x, w)
        return fn({}, x, w)[0], gradients

    symbols = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, " + ", ".join("hwd"[:rank]) + ", 2"), np.float32)
    exported = jax.export.export(jax.jit(all_of))(symbols, kernel)
    for sizes in ((6, 7, 5), (9, 5, 8)):
        x = RNG.normal(size=(2, *sizes[:rank], 2)).astype(np.float32)
        expected = [v.numpy() for v in both(x, kernel)]
        (y, *gradients), taken = exported.call(x, kernel)
        for ours, theirs in zip((y, *gradients, *taken), (*expected, *expected[1:]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize(
    "shape, kernel, strides",
    [
        ((1, 20, 20, 22, 16), (3, 3, 3, 16, 16), 1),  # taps along the depth move the gradient
        ((2, 28, 20, 20, 16), (3, 3, 3, 16, 16), 2),
        ((8, 56, 56, 3), (3, 3, 3, 32), 1),  # a first layer
    ],
)
def test_large_filter_gradients(shape, kernel, strides):
    """Images are large enough for the rules of XLA:CPU for filter gradients."""
    x, w = (RNG.normal(size=s).astype(np.float32) for s in (shape, kernel))

    def run(x, w):
        return tf.nn.convolution(x, w, strides, "SAME")

    @tf.function
    def gradients(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            loss = tf.reduce_sum(tf.sin(run(*args)))
        return tape.gradient(loss, args)

    expected = gradients(tf.constant(x), tf.constant(w))
    fn = tf2jax.convert_functional(tf.function(run), x, w)
    found = jax.jit(jax.grad(lambda x, w: jnp.sum(jnp.sin(fn(x, w))), (0, 1)))(x, w)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
