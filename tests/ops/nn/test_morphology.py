"""Grayscale dilation against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from jax.test_util import check_grads

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
IMAGE, FILTER = RNG.normal(size=(2, 6, 5, 2)), RNG.normal(size=(3, 2, 2))
INTEGERS, FLAT = RNG.integers(0, 4, (2, 6, 5, 2)), RNG.integers(0, 2, (2, 3, 2))
ATTRS = [
    {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"},
    {"strides": [1, 2, 1, 1], "rates": [1, 1, 2, 1], "padding": "SAME"},
    {"strides": [1, 2, 3, 1], "rates": [1, 2, 1, 1], "padding": "VALID"},
    {"strides": [1, 3, 3, 1], "rates": [1, 1, 1, 1], "padding": "SAME"},
]
DTYPES = [
    np.float16,
    ml_dtypes.bfloat16,
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
]


def pooled(image, filter, attrs):
    window = [(k - 1) * r + 1 for k, r in zip(filter.shape[:2], attrs["rates"][1:3], strict=True)]
    padding = [0, 0] if attrs["padding"] == "VALID" else [k - 1 for k in window]
    sizes = zip(image.shape[1:3], window, padding, attrs["strides"][1:3], strict=True)
    return (image.shape[0], *((d - k + p) // s + 1 for d, k, p, s in sizes), image.shape[3])


def all_three(image, filter, attrs, name):
    grad = RNG.integers(1, 4, pooled(image, filter, attrs)).astype(image.dtype)
    yield case("Dilation2D", image, filter, **attrs).using(name=name)
    yield case("Dilation2DBackpropInput", image, filter, grad, **attrs).using(name=name)
    yield case("Dilation2DBackpropFilter", image, filter, grad, **attrs).using(name=name)


NAN = np.where(INTEGERS == 3, np.nan, np.where(INTEGERS == 0, -np.inf, INTEGERS))
CASES = [
    *(c for i, f in enumerate(ATTRS) for c in all_three(IMAGE, FILTER, f, f"float64-{i}")),
    *(c for i, f in enumerate(ATTRS[:2]) for c in all_three(INTEGERS * 1.0, FLAT * 1.0, f, f"ties-{i}")),
    *(c for c in all_three(IMAGE.astype(np.float32), FILTER.astype(np.float32), ATTRS[1], "float32")),
    *(c for d in DTYPES for c in all_three(INTEGERS.astype(d), FLAT.astype(d), ATTRS[1], np.dtype(d).name)),
    *all_three(IMAGE[..., :0], FILTER[..., :0], ATTRS[1], "no-depth"),
    case("Dilation2D", IMAGE, FILTER[:, :0], **ATTRS[3]).using(grad=False, name="no-taps"),
    case("Dilation2D", NAN, FLAT * 1.0, **ATTRS[1]).using(name="nan", grad=False),
    case("Dilation2D", (INTEGERS * 40).astype(np.int8), (FLAT * 30).astype(np.int8), **ATTRS[0]).using(name="overflow"),
    case("Dilation2D", IMAGE, FILTER, **ATTRS[1]).using(symbolic=("b, h, w, 2", "3, 2, 2"), name="symbolic"),
    case("Dilation2D", IMAGE[:, :2], FILTER, **ATTRS[0]).using(error="does not fit"),
    case("Dilation2D", IMAGE, FILTER[..., :1], **ATTRS[0]).using(error="do not fit"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_second_derivatives(padding):
    image, filter = RNG.normal(size=(2, 5, 4, 2)), RNG.normal(size=(2, 3, 2))
    graph = tf.function(
        lambda x, w: tf.nn.dilation2d(x, w, [1, 1, 1, 1], padding, "NHWC", [1, 1, 1, 1]), autograph=False
    )
    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(graph, image, filter)
        check_grads(lambda x, w: converted(x, w) ** 2, (image, filter), order=2)
