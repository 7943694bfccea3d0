"""Projective transforms of images against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype
IMAGES = RNG.uniform(size=(2, 5, 6, 3)).astype(np.float32)
# No coordinate is half-way between pixels: there the last bit of a product decides which one is nearest.
TRANSFORMS = np.array(
    [[0.9, 0.2, -0.43, -0.1, 1.1, 0.37, 0.01, -0.02], [-1.3, 0.1, 5.23, 0.2, 0.6, -4.17, 0, 0]], np.float32
)
FILLS = ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
EXACT = np.array([[1, 0, -2, 0, 1, 3, 0, 0]], np.float32)


def size(*values):
    return np.array(values, np.int32)


CASES = [
    *(
        case("ImageProjectiveTransformV3", IMAGES, TRANSFORMS, size(*s), f32(0.5), interpolation=i, fill_mode=f).using(
            rtol=1e-4, atol=1e-4, name=f"{i}-{f}-{s}"
        )
        for i in ("NEAREST", "BILINEAR")
        for f in FILLS
        for s in ((5, 6), (4, 9))
    ),
    *(
        case(
            "ImageProjectiveTransformV2", (IMAGES * 100).astype(d), EXACT, size(7, 6), interpolation=i, fill_mode=f
        ).using(name=f"{i}-{f}-{np.dtype(d).name}")
        for (i, f), d in itertools.product(
            [("NEAREST", "CONSTANT"), ("BILINEAR", "REFLECT")],
            (np.uint8, np.int32, np.int64, np.float16, BF16, np.float32, np.float64),
        )
    ),
    *(
        case(
            "ImageProjectiveTransformV2",
            IMAGES[:, :1, :1],
            TRANSFORMS,
            size(3, 3),
            interpolation="BILINEAR",
            fill_mode=f,
        ).using(name=f"one-pixel-{f}")
        for f in FILLS
    ),
    case("ImageProjectiveTransformV3", IMAGES, TRANSFORMS, size(5, 6), f32(0), interpolation="BILINEAR").using(
        symbolic=("b, 5, 6, 3", "b, 8", ""), name="symbolic", **CLOSE
    ),
    case("ImageProjectiveTransformV2", IMAGES, TRANSFORMS, size(5, 6), interpolation="CUBIC").using(
        error="interpolation", name="unknown"
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
