"""Arrays of one value, ranges and evenly spaced numbers against TensorFlow."""

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.registry import lookup

BF16 = ml_dtypes.bfloat16
I32, I64 = np.int32, np.int64

CASES = [
    *(
        case("Fill", np.array(s, t), np.array(v))
        for s, t in (([2, 3], I32), ([], I64), ([0, 2], I32))
        for v in (np.float32(1.5), np.int8(-3), np.complex64(1j), np.True_, np.asarray(2, BF16))
    ),
    case("Fill", np.array([2]), np.float32(np.nan)).using(baked=("value",), name="host"),
    case("Fill", np.array([40, 40]), np.float32(7)).using(baked=("value",), name="host-large"),
    case("Fill", np.array([-1]), np.float32(7)).using(error="must be >= 0", name="negative"),
    case("Fill", np.array([1]), np.float32([7])).using(error="scalar", name="vector"),
    *(case("Empty", np.array(s, I32), dtype=t, init=True) for s in ([2, 3], [], [0]) for t in (tf.float32, tf.int64)),
    case("Empty", np.array([3], I32), dtype=tf.bfloat16, init=True),
    # Range, LinSpace.
    *(
        case("Range", *(np.array(v, t) for v in args)).using(name=f"{args}-{t}")
        for t in ("int32", "int64")
        for args in ((0, 5, 1), (2, 11, 3), (2, 12, 3), (5, 0, -2), (5, 5, 1), (-3, 3, 2), (3, -3, -1))
    ),
    *(
        # Bit-exact. TensorFlow has no float16 ranges in graphs.
        case("Range", *(np.array(v, t) for v in args)).using(rtol=0, atol=0, name=f"{args}-{np.dtype(t)}")
        for t in ("float32", "float64", BF16)
        for args in ((0, 1, 0.1), (0.3, -2.1, -0.7), (0, 2, 0.3), (1, 1, 1), (0, 2.1, 0.7), (0, 300, 1))
    ),
    case("Range", I32(0), I32(70000), I32(1)).using(name="large"),
    case("Range", I32(3), I32(1), I32(1)).using(error="does not reach", name="order"),
    case("Range", I32(1), I32(3), I32(-1)).using(error="does not reach", name="order2"),
    case("Range", I32(1), I32(3), I32(0)).using(error="must not be 0", name="zero"),
    *(
        case("LinSpace", np.array(1, t), np.array(-2.7, t), np.array(n))
        for t in ("float32", "float64")
        for n in (1, 2, 7)
    ),
    case("LinSpace", np.float32(3), np.float32(3), I64(4)),
    case("LinSpace", np.float32(0), np.float32(1), np.array(0)).using(error="positive", name="none"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_only_small_constants_are_folded():
    assert isinstance(lookup("Fill").fold(np.array([4]), np.array(1.0)), np.ndarray)
    assert isinstance(lookup("Fill").fold(np.array([4000]), np.array(1.0)), jax.Array)
    assert isinstance(lookup("BroadcastTo").fold(np.ones(1), np.array([4000])), jax.Array)
