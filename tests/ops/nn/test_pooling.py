"""Pooling against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 7, 6, 3)).astype(np.float32)
TIES = np.round(IMAGE)
VOLUME = RNG.normal(size=(1, 4, 5, 4, 2)).astype(np.float32)
ATTRS = [
    {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"},
    {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"},
    {"ksize": [1, 3, 2, 1], "strides": [1, 1, 1, 1], "padding": "SAME"},
]
ATTRS3D = [
    {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"},
    {"ksize": [1, 3, 2, 2, 1], "strides": [1, 1, 2, 1, 1], "padding": "SAME"},
]


def pooled(shape, attrs):
    out = []
    for size, k, s in zip(shape, attrs["ksize"], attrs["strides"], strict=True):
        out.append(-(-size // s) if attrs["padding"] == "SAME" else (size - k) // s + 1)
    return tuple(out)


def max_cases(op, grad_op, value, attrs_list):
    for attrs in attrs_list:
        y = getattr(tf.raw_ops, op)(input=value, **attrs).numpy()
        g = RNG.normal(size=y.shape).astype(np.float32)
        yield case(grad_op, value, y, g, **attrs).using(grad=False)


def avg_cases(grad_op, value, attrs_list):
    for attrs in attrs_list:
        g = RNG.normal(size=pooled(value.shape, attrs)).astype(np.float32)
        yield case(grad_op, np.array(value.shape, np.int32), g, **attrs)


CASES = [
    *(
        case(op, v.astype(d), **f).using(name=f"{np.dtype(d).name}-{i}-{n}")
        for op in ("MaxPool", "AvgPool")
        for i, f in enumerate(ATTRS)
        for d in (np.float32, np.float64)
        for n, v in (("x", IMAGE), ("ties", TIES))
    ),
    case(
        "MaxPool",
        IMAGE,
        ksize=[1, 2, 2, 1],
        strides=[1, 1, 1, 1],
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0],
    ),
    # An error in the kernel, too: a window could be all padding.
    *(
        case("MaxPool", IMAGE, ksize=[1, *k, 1], strides=[1] * 4, padding="EXPLICIT", explicit_paddings=p).using(
            error="must be smaller than the window", name=f"padded by a window-{i}"
        )
        for i, (k, p) in enumerate([((1, 2), [0, 0, 1, 0, 0, 0, 0, 0]), ((2, 2), [0, 0, 1, 0, 0, 2, 0, 0])])
    ),
    *(case(op, IMAGE, **ATTRS[1]).using(symbolic=("b, 7, 6, 3",), name="symbolic") for op in ("MaxPool", "AvgPool")),
    *(
        case("MaxPoolV2", IMAGE, np.array(f["ksize"], np.int32), np.array(f["strides"], np.int32), padding=f["padding"])
        for f in ATTRS
    ),
    *(case(op, VOLUME, **f).using(name=str(i)) for op in ("MaxPool3D", "AvgPool3D") for i, f in enumerate(ATTRS3D)),
    *max_cases("MaxPool", "MaxPoolGrad", IMAGE, ATTRS),
    *max_cases("MaxPool", "MaxPoolGrad", TIES, ATTRS),
    *max_cases("MaxPool3D", "MaxPool3DGrad", VOLUME, ATTRS3D),
    *avg_cases("AvgPoolGrad", IMAGE, ATTRS),
    *avg_cases("AvgPool3DGrad", VOLUME, ATTRS3D),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
