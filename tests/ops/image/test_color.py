"""Colors and drawn boxes against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype
PIXELS = RNG.uniform(size=(2, 4, 5, 3)).astype(np.float32)
# Grey, black, pure and mixed colors, ties of two channels, and values outside [0, 1].
HARD = np.array(
    [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1],
     [0.7, 0.7, 0.2], [0.2, 0.7, 0.7], [0.7, 0.2, 0.7], [0.2, 0.2, 0.7], [2, 3, 1], [-1, 0.5, 0.2], [-1, -2, -3]],
    np.float32,
)[None]  # fmt: skip
BOXES = np.array(
    [
        [[0.1, 0.2, 0.8, 0.7], [-0.5, 0.3, 0.5, 1.5], [0.8, 0.8, 0.1, 0.1], [1.2, 1.2, 1.5, 1.5]],
        [[0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5], [0.2, -1, 0.6, 2], [0.4, 0.1, 0.41, 0.9]],
    ],
    np.float32,
)
COLORS = np.array([[0.1, 0.2, 0.3, 1], [0.9, 0.8, 0.7, 0]], np.float32)
LOOSE = {
    "float16": {"rtol": 1e-2, "atol": 5e-3, "grad": False},
    "bfloat16": {"rtol": 5e-2, "atol": 3e-2, "grad": False},
}


def f32(value):
    return np.array(value, np.float32)


def many_boxes(batch, count):
    """Boxes that cross one another and the image's edges; some are one pixel thin, some upside down, some alike."""
    low = RNG.uniform(-0.3, 0.9, size=(batch, count, 2))
    boxes = np.concatenate([low, low + RNG.uniform(-0.1, 0.6, size=low.shape) * RNG.integers(0, 2, low.shape)], -1)
    return np.where(np.arange(count)[:, None] % 5 == 4, boxes[:, :1], boxes).astype(np.float32)


CASES = [
    *(
        case(op, x.astype(d)).using(
            name=f"{np.dtype(d).name}-{len(x)}", **LOOSE.get(np.dtype(d).name, {}), **({"rtol": 1e-4, "atol": 1e-5}
            if d == np.float32 else {})
        )
        for op, inputs in (("RGBToHSV", (PIXELS, HARD[0])), ("HSVToRGB", (PIXELS, HARD[0, :13])))
        for x in inputs
        for d in (np.float32, np.float64, np.float16, BF16)
    ),
    case("RGBToHSV", HARD[0, 3]).using(name="one-pixel"),
    case("RGBToHSV", PIXELS).using(symbolic=("b, 4, 5, 3",), name="symbolic"),
    case("RGBToHSV", PIXELS[..., :2]).using(error="could not trace", name="two-channels"),
    *(case("AdjustHue", x, f32(d)).using(rtol=1e-4, atol=1e-5, name=f"{d}-{len(x)}", vmap=x is PIXELS)
      for x in (PIXELS, HARD[:, None]) for d in (0.0, 0.2, -0.7, 1.4)),
    *(case("AdjustSaturation", x, f32(s)).using(rtol=1e-4, atol=1e-5, name=f"{s}-{len(x)}")
      for x in (PIXELS, HARD[:, None, :13]) for s in (0.0, 0.5, 1.7, -1.0)),
    *(case("AdjustContrastv2", x, f32(s)).using(rtol=1e-4, atol=1e-5, name=f"{s}-{x.ndim}")
      for x in (PIXELS, PIXELS[0], PIXELS[None, ..., :2]) for s in (0.0, 0.5, 2.0)),
    *(
        case(op, PIXELS.astype(np.float32)).using(symbolic=("b, 4, 5, 3",), name="symbolic")
        for op in ("HSVToRGB",)
    ),
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
