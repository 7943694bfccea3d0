"""Max pooling with argmax, and first and second gradients."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 5, 6, 3)).astype(np.float32)
TIES = np.round(IMAGE)
VOLUME = RNG.normal(size=(2, 4, 5, 4, 2)).astype(np.float32)
ATTRS = [
    {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
    {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"},
    {"ksize": [1, 3, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"},
]
ATTRS3D = [
    {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"},
    {"ksize": [1, 3, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": "SAME"},
]
DTYPES = [np.float64, np.float16, BF16, np.int8, np.uint8, np.int32, np.uint64]


def values(dtype):
    return (
        np.asarray(TIES + (2 if np.dtype(dtype).kind == "u" else 0)).clip(0 if dtype == np.uint64 else -9).astype(dtype)
    )


def integers(shape, dtype):
    """Return small integers, whose sums are exact in every dtype."""
    return RNG.integers(1, 4, shape).astype(dtype)


def second_cases(x, attrs, name):
    """Yield cases whose cotangent is an image: MaxPoolGradGrad linearizes."""
    y = tf.raw_ops.MaxPool(input=tf.constant(x), **attrs).numpy()
    g = integers(x.shape, x.dtype)
    sizes = [np.array(attrs[n], np.int32) for n in ("ksize", "strides")]
    yield case("MaxPoolGradGrad", x, y, g, **attrs).using(name=name)
    yield case("MaxPoolGradGradV2", x, y, g, *sizes, padding=attrs["padding"]).using(name=name)
    yield case("MaxPoolGradV2", x, y, integers(y.shape, x.dtype), *sizes, padding=attrs["padding"]).using(name=name)


def argmax_cases(x, attrs, name, batch):
    y, index = tf.raw_ops.MaxPoolWithArgmax(input=tf.constant(x), include_batch_in_index=batch, **attrs)
    yield case("MaxPoolWithArgmax", x, include_batch_in_index=batch, **attrs).using(name=name)
    yield case(
        "MaxPoolGradWithArgmax", x, integers(y.shape, x.dtype), index.numpy(), include_batch_in_index=batch, **attrs
    ).using(name=name)


CASES = [
    *(c for i, f in enumerate(ATTRS) for c in second_cases(TIES, f, f"ties-{i}")),
    *(c for d in DTYPES[:5] for c in second_cases(values(d), ATTRS[1], np.dtype(d).name)),
    *(c for i, f in enumerate(ATTRS) for c in argmax_cases(TIES, f, f"ties-{i}", i == 1)),
    *(c for d in DTYPES for c in argmax_cases(values(d), ATTRS[1], np.dtype(d).name, False)),
    case("MaxPoolWithArgmax", IMAGE, Targmax=tf.int32, **ATTRS[0]),
    case("MaxPoolWithArgmax", IMAGE, **ATTRS[2]).using(name="x"),
    case("MaxPoolWithArgmax", IMAGE, **ATTRS[1]).using(symbolic=("b, 5, 6, 3",), name="symbolic"),
    # TensorFlow's gradient of this op goes to all equal maxima, though the op itself reads only the first.
    *(
        case(
            "MaxPool3DGradGrad", x, tf.raw_ops.MaxPool3D(input=x, **f).numpy(), integers(x.shape, np.float32), **f
        ).using(name=f"{n}-{i}", grad=n == "x")
        for i, f in enumerate(ATTRS3D)
        for n, x in (("x", VOLUME), ("ties", np.round(VOLUME)))
    ),
]
TESTED_OTHERWISE = {"MaxPoolGradGradWithArgmax"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("batch", [False, True])
def test_grad_grad_with_argmax(batch):
    """TensorFlow has a GPU kernel only: as MaxPoolGradGrad at the indices."""
    attrs = ATTRS[1]
    y, index = tf.raw_ops.MaxPoolWithArgmax(input=TIES, include_batch_in_index=batch, **attrs)
    grad = integers(TIES.shape, np.float32)
    expected = tf.raw_ops.MaxPoolGradGrad(orig_input=TIES, orig_output=y, grad=grad, **attrs)

    @tf.function
    def fn(x, grad, argmax):
        return tf.raw_ops.MaxPoolGradGradWithArgmax(
            input=x, grad=grad, argmax=argmax, include_batch_in_index=batch, **attrs
        )

    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(fn, *(tf.TensorSpec(v.shape, v.dtype) for v in (TIES, grad, index)))
        actual = jax.jit(jax_fn)(TIES, grad, index.numpy())
    np.testing.assert_array_equal(actual, expected.numpy())
