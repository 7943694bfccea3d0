"""Segment reductions against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import OpError
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.math import segment

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
NAN, INF = np.nan, np.inf


M = np.array([[1.0, 5, -2], [3, 0.5, 2], [2, 2, 0], [4, -1, 0], [1, 1, 1]])
SMALL = np.array([[1, 5], [3, 4], [2, 2], [4, 0]])
TIES = np.float64([[1, 2], [1, 3], [1, 3], [0, 3], [2, 2]])
ZEROS = np.float64([[0, 2], [3, 0], [4, 5], [0, 6], [7, 0]])
KINDS = ("Sum", "Prod", "Max", "Min")
SORTED = (*KINDS, "Mean")


def has_kernel(kind, dtype):
    return dtype not in COMPLEX or kind not in ("Max", "Min")


CASES = [
    *(
        case(f"UnsortedSegment{kind}", cast(SMALL, t), np.int32([1, -1, 3, 1]), np.int32(5))
        for kind in KINDS
        for t in (*FLOATS, *INTS, *COMPLEX)
        if has_kernel(kind, t)
    ),
    *(
        case(f"UnsortedSegment{kind}", M, np.array(ids, t), np.array(n, t)).using(name=f"{np.shape(ids)}-{n}-{t}")
        for kind in KINDS
        for t in ("int32", "int64")
        for ids, n in (
            ([2, 0, 2, 2, 0], 3),
            ([0, 0, 0, 0, 0], 1),
            ([-1, -1, -1, -1, -1], 2),
            ([[0, 1, 0], [2, 2, -1], [1, 0, 1], [0, 0, 0], [3, 1, 1]], 4),
        )
    ),
    case("UnsortedSegmentSum", M, np.int16([2, 0, 2, 2, 0]), np.int32(3)).using(grad=False),
    *(case(f"UnsortedSegment{kind}", M, np.int32(1), np.int32(2)).using(name="one-id") for kind in KINDS),
    *(
        case(f"UnsortedSegment{kind}", np.zeros((0, 2)), np.int32([]), np.int32(2)).using(name="empty")
        for kind in KINDS
    ),
    *(case(f"UnsortedSegment{kind}", np.zeros((0, 2)), np.int32([]), np.int32(0)).using(name="none") for kind in KINDS),
    *(
        case(f"UnsortedSegment{kind}", np.zeros((2, 0)), np.int32([1, 0]), np.int32(2)).using(name="flat")
        for kind in KINDS
    ),
    *(
        case(f"UnsortedSegment{kind}", data, np.int32([1, 1, 1, 0, -1]), np.int32(3)).using(name=name)
        for kind in KINDS
        for name, data in (("ties", TIES), ("zeros", ZEROS), ("zeros-complex", ZEROS.astype(np.complex64)))
        if has_kernel(kind, data.dtype.name)
    ),
    *(
        # TensorFlow drops NaN if another element follows: it is last here.
        case(f"UnsortedSegment{kind}", np.float32([[3, 2], [NAN, 3], [-INF, INF]]), np.int32([0, 0, 1]), np.int32(2))
        .using(name="nan")
        for kind in KINDS
    ),
    *(
        case(f"UnsortedSegment{kind}", M, np.int32([2, 0, 2, 2, 0]), np.int32(3)).using(
            symbolic=("b, 3", "b"), name="sym"
        )
        for kind in KINDS
    ),
    *(
        case(f"UnsortedSegment{kind}", M, np.int32([2, 0, 2, 2, 0]), np.int32(3)).using(
            baked=("segment_ids",), name="constant"
        )
        for kind in KINDS
    ),
    case("UnsortedSegmentSum", M, np.int32([2, 0, 3, 2, 0]), np.int32(3)).using(error="id 3 is out", name="high"),
    case("UnsortedSegmentSum", M, np.int32([2, 0]), np.int32(3)).using(error="does not start", name="shape"),
    case("UnsortedSegmentMax", M, np.int32([-1] * 5), np.int32(-1)).using(error="negative", name="count"),
    # The size of the result depends on the ids, which are constants of the graph.
    *(
        case(f"Segment{kind}", cast(SMALL, t), np.int32([1, 1, 3, 3])).using(baked=("segment_ids",))
        for kind in SORTED
        for t in (*FLOATS, *INTS, *COMPLEX)
        if has_kernel(kind, t)
    ),
    *(
        case(f"Segment{kind}", M, np.array(ids, t)).using(baked=("segment_ids",), name=f"{ids}-{t}")
        for kind in SORTED
        for t in ("int32", "int64")
        for ids in ([0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [0, 0, 2, 2, 5])
    ),
    *(
        case(f"Segment{kind}", data, np.int32([0, 0, 0, 2, 2])).using(baked=("segment_ids",), name=name)
        for kind in SORTED
        for name, data in (("ties", TIES), ("zeros", ZEROS))
    ),
    *(
        case(f"Segment{kind}", np.float32([1, NAN, NAN, -INF, INF]), np.int32([0, 0, 3, 4, 5])).using(
            baked=("segment_ids",), name="nan"
        )
        for kind in SORTED
    ),
    *(
        case(f"Segment{kind}", np.zeros((0, 2)), np.zeros(0, np.int32)).using(jit=False, name="empty")
        for kind in SORTED
    ),
    *(case(f"Segment{kind}", M, np.int32([0, 0, 2, 2, 5])).using(jit=False, name="eager") for kind in SORTED),
    *(
        case(f"Segment{kind}", M, np.int32([0, 0, 2, 2, 5])).using(
            baked=("segment_ids",), symbolic=("5, d",), name="sym"
        )
        for kind in SORTED
    ),
    case("SegmentSum", M, np.int32([0, 0, 2, 1, 5])).using(error="not increasing", name="unsorted"),
    case("SegmentMax", M, np.int32([-1, 0, 1, 2, 2])).using(error="negative", name="negative"),
    case("SegmentMean", M, np.int32([0, 0])).using(error="2 segment_ids for 5 rows", name="shape"),
    case("SegmentProd", M, np.int32([[0, 0]])).using(error="must be a vector", name="matrix"),
    case("SegmentProd", np.float32(1), np.int32([0])).using(error="at least one dimension", name="rank0"),
]  # fmt: skip


# TensorFlow has these for XLA only.
TESTED_OTHERWISE = {f"Segment{kind}V2" for kind in KINDS}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("float32-Min")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_segments_of_static_number(kind, dtype):
    name = f"Segment{kind}V2"
    raw = getattr(tf.raw_ops, name)
    entry = registry.lookup(name)
    data, ids = cast(SMALL, dtype), np.int32([1, 1, 3, 3])
    xla = tf.function(lambda x, i: raw(data=x, segment_ids=i, num_segments=6), jit_compile=True)
    expected = xla(data, ids).numpy()
    for actual in (entry.fn(data, ids, np.int32(6)), jax.jit(lambda *a: entry.fn(*a, np.int64(6)))(data, ids)):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected)
    # Its first rows are those of the op that infers the number.
    if dtype == "float32" and kind in ("Sum", "Prod"):
        np.testing.assert_allclose(getattr(tf.raw_ops, f"Segment{kind}")(data=data, segment_ids=ids), expected[:4])
    with pytest.raises(OpError, match="out of range"):
        entry.fn(data, ids, np.int32(3))


@pytest.mark.full
def test_traced_ids_need_a_bound():
    ids = jnp.array([0, 0, 2, 2, 3])
    with pytest.raises(OpError, match="dynamic_shape_bound"):
        jax.jit(lambda i: segment.segment_sum(M, i, bound=None))(ids)
    for name in ("sum", "prod", "max", "min", "mean"):
        fn = getattr(segment, f"segment_{name}")
        expected = fn(M, ids, bound=None)
        actual = jax.jit(lambda x, i, fn=fn: fn(x, i, bound=6))(M, ids)
        np.testing.assert_allclose(actual[:4], expected, rtol=1e-6)


@pytest.mark.full
def test_traced_ids_out_of_range_are_dropped():
    total = jax.jit(lambda i: segment.unsorted_segment_sum(jnp.ones(3), i, np.int32(2)))(jnp.array([1, 2, -1]))
    np.testing.assert_array_equal(total, [0, 1])
