"""TF1's arithmetic on (tensor, min, max), equal bit for bit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import OpError

from .harness import check_quantized

TESTED_OTHERWISE = {
    "QuantizedAdd",
    "QuantizedAvgPool",
    "QuantizedBiasAdd",
    "QuantizedConcat",
    "QuantizedConv2D",
    "QuantizedMatMul",
    "QuantizedMaxPool",
    "QuantizedMul",
    "QuantizedRelu",
    "QuantizedRelu6",
    "QuantizedReluX",
    "QuantizedReshape",
}
F = np.float32
RNG = np.random.default_rng(0)
# Also ranges without 0.
RANGES = [(-1.5, 2.0), (0.0, 6.0), (-0.013, 0.0126), (0.53, 2.0), (-300.0, -200.0)]
PAIRS = [(a, b) for a in RANGES for b in RANGES[:4]]


def random_uint8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def ends(names, *ranges):
    return {name: F(end) for name, end in zip(names.split(), np.ravel(ranges), strict=True)}


def check(op, ranges, names, **arguments):
    quantized = {k: tf.quint8 for k, v in arguments.items() if isinstance(v, np.ndarray) and v.dtype == np.uint8}
    inputs: dict = arguments | ends(names, *ranges)
    check_quantized(op, quantized, **inputs)


@pytest.mark.full
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_mat_mul(transposed):
    a, b = random_uint8(3, 5), random_uint8(5, 4)
    a, b = (np.ascontiguousarray(m.T) if t else m for m, t in zip((a, b), transposed, strict=True))
    for ranges in PAIRS[:: 1 if transposed == (False, False) else 5]:
        check(
            "QuantizedMatMul",
            ranges,
            "min_a max_a min_b max_b",
            a=a,
            b=b,
            Toutput=tf.qint32,
            transpose_a=transposed[0],
            transpose_b=transposed[1],
        )


@pytest.mark.default_cases("2-VALID")
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv2d(stride, padding):
    for ranges in [p for p in PAIRS if p[0][1] >= 0][::4]:
        check(
            "QuantizedConv2D",
            ranges,
            "min_input max_input min_filter max_filter",
            input=random_uint8(2, 7, 6, 3),
            filter=random_uint8(3, 2, 3, 4),
            strides=[1, stride, stride, 1],
            padding=padding,
        )


@pytest.mark.full
@pytest.mark.parametrize("op", ["QuantizedMul", "QuantizedAdd"])
def test_elementwise(op):
    for ranges in PAIRS:
        check(op, ranges, "min_x max_x min_y max_y", x=random_uint8(5, 8), y=random_uint8(5, 8))
    check(op, PAIRS[1], "min_x max_x min_y max_y", x=random_uint8(5, 8), y=random_uint8(8))


@pytest.mark.full
def test_bias_add():
    """TensorFlow rounds by SIMD position: results differ by a step."""
    x, bias = random_uint8(4, 16), random_uint8(16)
    for first, second in PAIRS:
        arguments = ends("min_input max_input min_bias max_bias", first, second)

        def add(x, bias, arguments=arguments):
            x, bias = (tf.bitcast(v, tf.quint8) for v in (x, bias))
            out, low, high = tf.raw_ops.QuantizedBiasAdd(input=x, bias=bias, out_type=tf.qint32, **arguments)
            return tf.bitcast(out, tf.int32), low, high

        with jax.enable_x64(True):
            actual = jax.jit(tf2jax.convert_functional(tf.function(add, autograph=False), x, bias))(x, bias)
        expected = [v.numpy() for v in add(x, bias)]
        np.testing.assert_allclose(actual[0], expected[0], atol=2, rtol=0)
        assert [np.asarray(v) for v in actual[1:]] == expected[1:]


@pytest.mark.full
@pytest.mark.parametrize("op", ["QuantizedRelu", "QuantizedRelu6"])
def test_relu(op):
    for each in RANGES:
        check(op, [each], "min_features max_features", features=np.arange(256, dtype=np.uint8), out_type=tf.quint8)


@pytest.mark.default_cases("1.25")
@pytest.mark.parametrize("limit", [0.0, 1.25, 6.0])
def test_relu_x(limit):
    """TensorFlow has no kernel: QuantizedRelu6 at 6, else the nearest level."""
    features = np.arange(256, dtype=np.uint8)
    for low, high in RANGES[:4]:
        with jax.enable_x64(True):
            out, out_low, out_high = quantized_op("QuantizedReluX")(features, F(limit), F(low), F(high))
            six = quantized_op("QuantizedRelu6")(features, F(low), F(high))[0]
        assert (out_low, out_high) == (F(low), F(high))
        scale = (high - low) / 255
        values = (np.asarray(out, np.int32) - round(-low / scale)) * scale
        expected = np.clip((np.arange(256) - round(-low / scale)) * scale, 0, max(0, limit))
        if low <= 0 and (limit < high or limit == 6):
            np.testing.assert_allclose(values, expected, atol=scale / 2 + 1e-6)
        if limit == 6:
            np.testing.assert_array_equal(out, six)


@pytest.mark.default_cases("2-2-VALID-QuantizedMaxPool", "2-2-VALID-QuantizedAvgPool")
@pytest.mark.parametrize("op", ["QuantizedMaxPool", "QuantizedAvgPool"])
@pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, "VALID"), (3, 2, "SAME"), (5, 3, "SAME")])
def test_pools(op, size, stride, padding):
    check(
        op,
        RANGES[:1],
        "min_input max_input",
        input=random_uint8(2, 9, 8, 3),
        ksize=[1, size, size, 1],
        strides=[1, stride, stride, 1],
        padding=padding,
    )


@pytest.mark.full
def test_concat_and_reshape():
    x, y = random_uint8(4, 5), random_uint8(4, 3)
    for (low, high), (low_y, high_y) in PAIRS:

        def concat(x, y, low=low, high=high, low_y=low_y, high_y=high_y):
            x, y = (tf.bitcast(v, tf.quint8) for v in (x, y))
            out, out_low, out_high = tf.raw_ops.QuantizedConcat(
                concat_dim=1, values=[x, y], input_mins=[low, low_y], input_maxes=[high, high_y]
            )
            out, out_low, out_high = tf.raw_ops.QuantizedReshape(
                tensor=out, shape=[-1, 2], input_min=out_low, input_max=out_high
            )
            return tf.bitcast(out, tf.uint8), out_low, out_high

        with jax.enable_x64(True):
            actual = jax.jit(tf2jax.convert_functional(tf.function(concat, autograph=False), x, y))(x, y)
        for a, e in zip(actual, concat(x, y), strict=True):
            np.testing.assert_array_equal(a, e.numpy())


def network(x, kernel, bias, matrix):
    """Return a small image network, quantized as by TF1."""
    low, high = tf.reduce_min(x), tf.reduce_max(x)
    x = tf.raw_ops.QuantizeV2(input=x, min_range=low, max_range=high, T=tf.quint8, mode="MIN_FIRST")
    kernel, bias, matrix = (
        tf.raw_ops.QuantizeV2(
            input=v, min_range=tf.reduce_min(v), max_range=tf.reduce_max(v), T=tf.quint8, mode="MIN_FIRST"
        )
        for v in (kernel, bias, matrix)
    )
    shrink = lambda out: tf.raw_ops.QuantizeDownAndShrinkRange(  # noqa: E731
        input=out[0], input_min=out[1], input_max=out[2], out_type=tf.quint8
    )
    pair = lambda a, b, names: dict(zip(names.split(), (a[1], a[2], b[1], b[2]), strict=True))  # noqa: E731
    x = tf.raw_ops.QuantizedConv2D(
        input=x[0],
        filter=kernel[0],
        strides=[1, 1, 1, 1],
        padding="SAME",
        **pair(x, kernel, "min_input max_input min_filter max_filter"),
    )
    x = shrink(x)
    x = tf.raw_ops.QuantizedBiasAdd(
        input=x[0], bias=bias[0], out_type=tf.qint32, **pair(x, bias, "min_input max_input min_bias max_bias")
    )
    x = shrink(x)
    x = tf.raw_ops.QuantizedRelu(features=x[0], min_features=x[1], max_features=x[2], out_type=tf.quint8)
    x = tf.raw_ops.QuantizedMaxPool(
        input=x[0], min_input=x[1], max_input=x[2], ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID"
    )
    x = tf.raw_ops.QuantizedReshape(tensor=x[0], shape=[2, -1], input_min=x[1], input_max=x[2])
    x = tf.raw_ops.QuantizedMatMul(a=x[0], b=matrix[0], **pair(x, matrix, "min_a max_a min_b max_b"))
    x = shrink(x)
    return tf.raw_ops.Dequantize(input=x[0], min_range=x[1], max_range=x[2], mode="MIN_FIRST")


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_network(x64):
    """Without 64-bit mode results may differ by one step."""
    shapes = (2, 8, 8, 3), (3, 3, 3, 4), (4,), (64, 5)
    inputs = [RNG.normal(size=shape).astype(F) for shape in shapes]
    expected = network(*map(tf.constant, inputs)).numpy()
    with jax.enable_x64(x64):
        call = tf2jax.convert_functional(tf.function(network, autograph=False), *inputs)
        step = np.ptp(expected) / 255
        for found in (jax.jit(call)(*inputs), call(*inputs)):
            np.testing.assert_allclose(found, expected, atol=2.1 * step, rtol=0)
            assert np.abs(np.asarray(found) - expected).mean() < step / 2


def test_invalid_arguments_raise():
    x, one = random_uint8(2, 3), F(1)
    for call, said in (
        (lambda: quantized_op("QuantizedMatMul")(x, x, -one, one, -one, one), "two matrices"),
        (lambda: quantized_op("QuantizedMatMul")(x, x.T, np.ones(2, F), one, -one, one), "min_a must be a scalar"),
        (lambda: tf2jax.ops.registry.lookup("QuantizedMul").check({"Toutput": np.int16}, {}), "qint32 only"),
        (
            lambda: quantized_op("QuantizedBiasAdd")(x, x[0, :2], -one, one, -one, one, out_type=np.int32),
            "does not fit",
        ),
    ):
        with pytest.raises(OpError, match=said):
            call()


def quantized_op(name):
    return tf2jax.ops.registry.lookup(name).fn
