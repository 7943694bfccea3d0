"""Resizing against TensorFlow."""

import itertools

import numpy as np
import pytest

from .harness import case, check

IMAGES = np.random.default_rng(0).normal(size=(2, 5, 7, 3)).astype(np.float32)
SIZES = [(10, 14), (3, 4), (5, 7), (1, 1), (8, 3)]
MODES = [{}, {"align_corners": True}, {"half_pixel_centers": True}]

CASES = [
    *(
        case(op, IMAGES, np.array(s, np.int32), **m).using(rtol=1e-4, atol=1e-5)
        for op in ("ResizeBilinear", "ResizeNearestNeighbor")
        for s, m in itertools.product(SIZES, MODES)
    ),
    case("ResizeBilinear", (IMAGES * 50).astype(np.uint8), np.array([8, 9], np.int32)).using(rtol=1e-4, atol=1e-3),
    case("ResizeNearestNeighbor", (IMAGES * 50).astype(np.uint8), np.array([8, 9], np.int32)),
    case("ResizeBilinear", IMAGES, np.array([8, 9], np.int32)).using(symbolic=("b, 5, 7, 3",), rtol=1e-4, atol=1e-5),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
