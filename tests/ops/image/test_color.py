"""Color conversion and adjustment against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype
PIXELS = RNG.uniform(size=(2, 4, 5, 3)).astype(np.float32)
# Gray, black, pure and mixed colors, ties of two channels, and values outside [0, 1].
HARD = np.array(
    [[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1],
     [0.7, 0.7, 0.2], [0.2, 0.7, 0.7], [0.7, 0.2, 0.7], [0.2, 0.2, 0.7], [2, 3, 1], [-1, 0.5, 0.2], [-1, -2, -3]],
    np.float32,
)[None]  # fmt: skip
LOOSE = {
    "float16": {"rtol": 1e-2, "atol": 5e-3, "grad": False},
    "bfloat16": {"rtol": 5e-2, "atol": 3e-2, "grad": False},
}


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
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
