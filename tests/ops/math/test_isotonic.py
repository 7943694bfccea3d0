"""Isotonic regression against TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype


CASES = [
    *(
        case("IsotonicRegression", (RNG.normal(size=shape) * 10).astype(d), output_dtype=o).using(
            name=f"{np.dtype(d).name}-{shape}")
        for shape in ((8,), (2, 3, 7))
        for d, o in [(np.float32, tf.float32), (np.float64, tf.float64), (np.int32, tf.float64), (np.int8, tf.float32),
                     (np.int16, tf.float32), (np.int64, tf.float64)]
    ),
    *(
        case("IsotonicRegression", f32(v), output_dtype=tf.float32).using(name=str(v))
        for v in ([1, 2, 3, 4], [4, 3, 2, 1], [1, 1, 1], [2, 1, 3, 1, 3], [5], [[1, 2], [2, 1]])
    ),
    *(
        case("IsotonicRegression", np.array([1, 2, 4, 3, 1, 2]).astype(d), output_dtype=o).using(name=np.dtype(d).name)
        for d, o in ((np.float16, tf.float16), (BF16, tf.bfloat16))
    ),
    case("IsotonicRegression", f32([[3, 4, 1, 2]])).using(symbolic=("b, 4",), name="symbolic"),
    case("IsotonicRegression", f32([[3, 4, 1, 2]])).using(symbolic=("b, n",), name="symbolic-sizes"),
    *(
        case("IsotonicRegression", f32(RNG.integers(-4, 4, shape))).using(name=f"many-ties-{shape}")
        for shape in ((7, 1), (7, 2), (9, 3), (30, 40), (2, 2, 2))
    ),
    # Rows that finish early, late, and that merge all segments at the end.
    case("IsotonicRegression", f32([range(9, 0, -1), range(9), [*range(9, 1, -1), 99]])).using(name="steps"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
