"""Blocks and patches against TensorFlow."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.registry import lookup

BF16 = ml_dtypes.bfloat16
I32, I64 = np.int32, np.int64
NUMERIC = ["float32", "float64", "float16", BF16, "int8", "int32", "int64", "uint8"]


def _ramp(*shape, dtype=np.float64):
    return (1 + np.arange(int(np.prod(shape)))).reshape(shape).astype(dtype)


IMAGE = _ramp(2, 4, 6, 2)

CASES = [
    *(
        case("SpaceToBatchND", x, np.array(b, t), np.array(p, t)).using(name=f"{x.shape}-{b}-{p}-{np.dtype(t)}")
        for t in (I32, I64)
        for x, b, p in (
            (IMAGE, [2, 2], [[0, 0], [0, 0]]),
            (IMAGE, [2, 3], [[1, 1], [2, 1]]),
            (IMAGE, [1, 2], [[0, 0], [1, 1]]),
            (_ramp(2, 5), [3], [[0, 1]]),
            (_ramp(1, 4, 2, 2, 3), [2, 1, 2], [[0, 0], [1, 0], [0, 2]]),
        )
    ),
    *(case("SpaceToBatchND", _ramp(1, 4, 2, dtype=t), np.array([2]), np.array([[1, 1]])) for t in NUMERIC),
    case("SpaceToBatchND", IMAGE, np.array([2, 2]), np.array([[0, 0], [0, 0]])).using(
        symbolic=("b, 4, 6, 2",), name="sym"
    ),
    case("SpaceToBatchND", IMAGE, np.array([3, 2]), np.array([[0, 0], [0, 0]])).using(
        error="no multiple", name="remainder"
    ),
    *(
        case("BatchToSpaceND", x, np.array(b, t), np.array(c, t)).using(name=f"{x.shape}-{b}-{c}-{np.dtype(t)}")
        for t in (I32, I64)
        for x, b, c in (
            (_ramp(4, 2, 3, 2), [2, 2], [[0, 0], [0, 0]]),
            (_ramp(12, 2, 3, 1), [2, 3], [[1, 1], [2, 1]]),
            (_ramp(6, 5), [3], [[0, 4]]),
            (_ramp(4, 2, 1, 2, 3), [2, 1, 2], [[0, 1], [0, 0], [1, 1]]),
        )
    ),
    *(case("BatchToSpaceND", _ramp(2, 4, 2, dtype=t), np.array([2]), np.array([[1, 0]])) for t in NUMERIC),
    case("BatchToSpaceND", _ramp(8, 2, 3, 2), np.array([2, 2]), np.array([[0, 1], [0, 0]])).using(
        symbolic=("4*b, 2, 3, 2",), name="sym"
    ),
    case("BatchToSpaceND", _ramp(3, 2, 2, 1), np.array([2, 2]), np.array([[0, 0], [0, 0]])).using(
        error="no multiple", name="remainder"
    ),
    *(
        case("SpaceToBatch", IMAGE, np.array(p, t), block_size=2).using(name=f"{p}-{np.dtype(t)}")
        for t in (I32, I64)
        for p in ([[0, 0], [0, 0]], [[1, 1], [2, 0]])
    ),
    case("SpaceToBatch", IMAGE.astype(np.int32), np.array([[1, 1], [0, 0]]), block_size=3),
    case("SpaceToBatch", IMAGE, np.array([[0, 0], [0, 0]]), block_size=1).using(error="greater than 1", name="block"),
    *(
        case("BatchToSpace", _ramp(8, 2, 3, 2), np.array(c, t), block_size=2).using(name=f"{c}-{np.dtype(t)}")
        for t in (I32, I64)
        for c in ([[0, 0], [0, 0]], [[1, 1], [2, 0]])
    ),
    case("BatchToSpace", _ramp(9, 2, 1, 1, dtype=np.int32), np.array([[1, 1], [0, 0]]), block_size=3),
    # Depth.
    case("SpaceToDepth", IMAGE, block_size=2, data_format="NHWC"),
    case("SpaceToDepth", _ramp(1, 3, 6, 2), block_size=3),
    *(case("SpaceToDepth", _ramp(1, 2, 4, 1, dtype=t), block_size=2) for t in NUMERIC),
    case("SpaceToDepth", IMAGE, block_size=2).using(symbolic=("b, 4, 6, 2",), name="sym"),
    case("SpaceToDepth", _ramp(1, 3, 4, 1), block_size=2).using(error="divide", name="remainder"),
    case("DepthToSpace", _ramp(2, 2, 3, 8), block_size=2),
    case("DepthToSpace", _ramp(1, 1, 2, 9), block_size=3),
    *(case("DepthToSpace", _ramp(1, 2, 1, 4, dtype=t), block_size=2) for t in NUMERIC),
    case("DepthToSpace", _ramp(2, 2, 3, 8), block_size=2).using(symbolic=("b, h, w, 8",), name="sym"),
    case("DepthToSpace", _ramp(1, 2, 1, 6), block_size=2).using(error="divide", name="remainder"),
    # Patches.
    *(
        case(
            "ExtractImagePatches", _ramp(2, 5, 7, 2), ksizes=[1, *k, 1], strides=[1, *s, 1], rates=[1, *r, 1], padding=p
        )
        for p in ("SAME", "VALID")
        for k, s, r in (
            ((2, 3), (1, 1), (1, 1)),
            ((3, 2), (2, 3), (1, 1)),
            ((2, 2), (1, 2), (2, 3)),
            ((1, 1), (2, 2), (1, 1)),
            ((2, 2), (2, 2), (1, 1)),
            ((5, 7), (3, 3), (1, 1)),
            ((2, 1), (5, 6), (1, 1)),
        )
    ),
    *(
        case(
            "ExtractImagePatches",
            _ramp(1, 4, 4, 1, dtype=t),
            ksizes=[1, 2, 2, 1],
            strides=[1, 2, 1, 1],
            rates=[1] * 4,
            padding="SAME",
        )
        for t in (*NUMERIC, "int16", "uint16", "uint32", "uint64", "complex64", "complex128")
    ),
    case(
        "ExtractImagePatches",
        np.float32([[[[np.nan], [1]], [[np.inf], [2]]]]),
        ksizes=[1, 2, 1, 1],
        strides=[1] * 4,
        rates=[1] * 4,
        padding="VALID",
    ).using(name="nan"),
    case("ExtractImagePatches", IMAGE, ksizes=[1, 2, 2, 1], strides=[1, 2, 2, 1], rates=[1] * 4, padding="VALID").using(
        symbolic=("b, 4, 6, 2",), name="sym"
    ),
    case("ExtractImagePatches", IMAGE, ksizes=[1, 3, 3, 1], strides=[1, 2, 2, 1], rates=[1] * 4, padding="SAME").using(
        symbolic=("b, h, w, 2",), name="sym-image"
    ),
    *(
        case("ExtractVolumePatches", _ramp(2, 3, 4, 5, 2), ksizes=[1, *k, 1], strides=[1, *s, 1], padding=p)
        for p in ("SAME", "VALID")
        for k, s in (((2, 3, 1), (1, 1, 1)), ((1, 2, 2), (2, 2, 3)), ((3, 4, 5), (1, 1, 1)))
    ),
    *(
        case(
            "ExtractVolumePatches",
            _ramp(1, 2, 2, 2, 1, dtype=t),
            ksizes=[1, 2, 1, 2, 1],
            strides=[1] * 5,
            padding="SAME",
        )
        for t in NUMERIC
    ),
    case("ExtractVolumePatches", _ramp(2, 3, 4, 5, 2), ksizes=[1, 2, 2, 2, 1], strides=[1] * 5, padding="VALID").using(
        symbolic=("b, 3, 4, 5, 2",), name="sym"
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_channels_first():
    # TensorFlow on CPU has no kernel for it.
    x = _ramp(2, 8, 3, 2)
    for name, own in (("DepthToSpace", x), ("SpaceToDepth", _ramp(2, 3, 4, 6))):
        fn = lookup(name).fn
        first = fn(own, block_size=2, data_format="NCHW")
        last = fn(np.transpose(own, (0, 2, 3, 1)), block_size=2, data_format="NHWC")
        np.testing.assert_array_equal(first, np.transpose(last, (0, 3, 1, 2)))
