"""Normalization of quantized images: equal, with ranges of sums' order."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import OpError

from .harness import check_quantized, implementation

TESTED_OTHERWISE = {"QuantizedBatchNormWithGlobalNormalization", "QuantizedInstanceNorm"}
F = np.float32
RNG = np.random.default_rng(0)


def random_uint8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.default_cases("(0.5, 2.0)-given")
@pytest.mark.parametrize(
    "attrs",
    [{}, {"output_range_given": True, "given_y_min": -1.0, "given_y_max": 1.5}, {"min_separation": 10.0}],
    ids=["own", "given", "separated"],
)
@pytest.mark.parametrize("ends", [(-1.0, 3.0), (0.5, 2.0)], ids=str)
def test_instance_norm(ends, attrs):
    check_quantized(
        "QuantizedInstanceNorm",
        {"x": tf.quint8},
        rtol=2e-6,
        x=random_uint8(2, 5, 4, 3),
        x_min=F(ends[0]),
        x_max=F(ends[1]),
        variance_epsilon=1e-3,
        **attrs,
    )


@pytest.mark.default_cases("20.0-False")
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("size", [0.1, 1.0, 20.0])
def test_batch_norm(size, scaled):
    arguments = {}
    for name, low, high in (("t", -1, 3), ("m", -0.5, 0.4), ("v", 0, 1), ("beta", -1, 1), ("gamma", -2, 0.5)):
        arguments[name] = random_uint8(2, 5, 4, 3) if name == "t" else random_uint8(3)
        arguments |= {f"{name}_min": F(low * size), f"{name}_max": F(high * size)}
    check_quantized(
        "QuantizedBatchNormWithGlobalNormalization",
        dict.fromkeys(("t", "m", "v", "beta", "gamma"), tf.quint8),
        **arguments,
        out_type=tf.qint32,
        variance_epsilon=1e-3,
        scale_after_normalization=scaled,
    )


def test_invalid_arguments_raise():
    call = implementation("QuantizedInstanceNorm")
    x, one = random_uint8(2, 3, 4), F(1)
    with pytest.raises(OpError, match="rank 4"):
        call(x, -one, one)
    with pytest.raises(OpError, match="given_y_min must be less"):
        call(x[None], -one, one, output_range_given=True)
    call = implementation("QuantizedBatchNormWithGlobalNormalization")
    vectors = [v for _ in range(4) for v in (random_uint8(3), -one, one)]
    with pytest.raises(OpError, match="one value for each"):
        call(x[None], -one, one, *vectors, out_type=np.int32, variance_epsilon=0.1, scale_after_normalization=True)
