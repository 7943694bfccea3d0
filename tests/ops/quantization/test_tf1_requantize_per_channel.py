"""Requantization per channel, equal bit for bit."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry

from .harness import check_quantized, implementation

TESTED_OTHERWISE = {"RequantizationRangePerChannel", "RequantizePerChannel"}
F = np.float32
RNG = np.random.default_rng(0)
LIMIT = 2**31 - 100  # larger values overflow in TensorFlow


def channels(size, count):
    x = (RNG.normal(size=(2, 9, 8, count)) * size).clip(-LIMIT, LIMIT).astype(np.int32)
    ends = {"input_min": -RNG.uniform(0.1, 3, count).astype(F), "input_max": RNG.uniform(0.1, 3, count).astype(F)}
    return {"input": x} | ends


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("size", [0, 1e3, 1e6, 1e9])
def test_requantization_range(size, count):
    arguments = channels(size, count)
    for clip in (6.0, 1e-3, 1e9):
        for x in (arguments["input"], np.abs(arguments["input"])):
            check_quantized(
                "RequantizationRangePerChannel",
                {"input": tf.qint32},
                **arguments | {"input": x},
                clip_value_max=clip,
            )


@pytest.mark.full
@pytest.mark.parametrize("dtype", [tf.quint8, tf.qint8], ids=lambda t: t.name)
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_requantize(size, dtype):
    arguments = channels(size, 3)
    limit = size * 3 / 2**31 * float(arguments["input_max"].max())
    for low, high in ((-limit, limit), (-limit / 3, limit / 2)):
        check_quantized(
            "RequantizePerChannel",
            {"input": tf.qint32},
            **arguments,
            requested_output_min=F(low),
            requested_output_max=F(high),
            out_type=dtype,
        )


@pytest.mark.default_cases("quint8")
@pytest.mark.parametrize("dtype", [tf.quint8, tf.qint8], ids=lambda t: t.name)
def test_halves_round_to_even(dtype):
    limit = F((255 if dtype == tf.quint8 else 127) / 2**31 * 2)
    check_quantized(
        "RequantizePerChannel",
        {"input": tf.qint32},
        input=np.arange(-600, 600, dtype=np.int32).reshape(1, 1, -1, 1),
        input_min=-np.ones(1, F),
        input_max=np.ones(1, F),
        requested_output_min=-limit,
        requested_output_max=limit,
        out_type=dtype,
    )


def test_invalid_arguments_raise():
    call = implementation("RequantizationRangePerChannel")
    for x, said in (
        (np.zeros((2, 3), np.int32), "4 dimensions"),
        (np.zeros((1, 1, 1, 3), np.int32), "3 channels"),
    ):
        with pytest.raises(OpError, match=said):
            call(x, np.zeros(2, F), np.ones(2, F), clip_value_max=1.0)
    with pytest.raises(OpError, match="qint32"):
        registry.lookup("RequantizationRangePerChannel").check({}, {"input": np.dtype(np.int8)})
