"""Drawn bounding boxes against TensorFlow."""

import numpy as np
import pytest

from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
PIXELS = RNG.uniform(size=(2, 4, 5, 3)).astype(np.float32)
BOXES = np.array(
    [
        [[0.1, 0.2, 0.8, 0.7], [-0.5, 0.3, 0.5, 1.5], [0.8, 0.8, 0.1, 0.1], [1.2, 1.2, 1.5, 1.5]],
        [[0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5], [0.2, -1, 0.6, 2], [0.4, 0.1, 0.41, 0.9]],
    ],
    np.float32,
)
COLORS = np.array([[0.1, 0.2, 0.3, 1], [0.9, 0.8, 0.7, 0]], np.float32)


def many_boxes(batch, count):
    """Return boxes that overlap and cross edges: thin, inverted, or equal."""
    low = RNG.uniform(-0.3, 0.9, size=(batch, count, 2))
    boxes = np.concatenate([low, low + RNG.uniform(-0.1, 0.6, size=low.shape) * RNG.integers(0, 2, low.shape)], -1)
    return np.where(np.arange(count)[:, None] % 5 == 4, boxes[:, :1], boxes).astype(np.float32)


CASES = [
    *(
        case("DrawBoundingBoxes", RNG.uniform(size=(2, 7, 9, c)).astype(d), BOXES).using(name=f"{c}-{np.dtype(d).name}")
        for c in (1, 3, 4)
        for d in (np.float32, np.float16)
    ),
    *(
        case("DrawBoundingBoxesV2", RNG.uniform(size=(2, 7, 9, c)).astype(np.float32), BOXES, colors).using(
            name=f"{c}-{len(colors)}"
        )
        for c in (1, 3, 4)
        for colors in (COLORS, COLORS[:0])
    ),
    case("DrawBoundingBoxes", PIXELS, np.tile(BOXES, (1, 4, 1))).using(name="more-boxes-than-colors"),
    *(
        case("DrawBoundingBoxesV2", f32(RNG.uniform(size=(b, h, w, 3))), many_boxes(b, n), COLORS[:m]).using(
            name=f"{b}-{h}-{w}-{n}-{m}"
        )
        for b, h, w, n, m in (
            (1, 1, 1, 3, 2), (2, 2, 1, 4, 2), (2, 1, 2, 4, 1), (1, 2, 2, 6, 2), (3, 33, 17, 40, 2), (1, 64, 90, 200, 2)
        )
    ),
    case("DrawBoundingBoxes", np.zeros((0, 4, 5, 3), np.float32), BOXES[:0]).using(name="no-images"),
    case("DrawBoundingBoxes", PIXELS, BOXES).using(symbolic=("b, h, w, 3", "b, n, 4"), name="symbolic-sizes"),
    case("DrawBoundingBoxes", PIXELS, BOXES[:, :0]).using(name="no-boxes"),
    case("DrawBoundingBoxes", PIXELS, BOXES).using(symbolic=("b, 4, 5, 3", "b, n, 4"), name="symbolic"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
