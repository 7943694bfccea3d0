"""Segment reductions of gathered rows, and their gradients, against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry

BF16 = ml_dtypes.bfloat16
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


M = np.array([[1.0, 5, -2], [3, 0.5, 2], [2, 2, 0], [4, -1, 0], [1, 1, 1]])
SMALL = np.array([[1, 5], [3, 4], [2, 2], [4, 0]])
SPARSE = (np.int32([0, 2, 1]), np.int32([0, 0, 2]))
NORMS = ("Sum", "Mean", "SqrtN")


CASES = [
    *(
        case(f"SparseSegment{kind}", cast(SMALL, t), np.int32([0, 2, 1]), np.int32([0, 0, 2])).using(
            baked=("segment_ids",)
        )
        for kind in NORMS
        for t in (*FLOATS, *(INTS if kind == "Sum" else ()))
    ),
    *(
        case(f"SparseSegment{kind}", M, np.array(indices, a), np.array(ids, b), sparse_gradient=sparse).using(
            baked=("segment_ids",), name=f"{ids}-{a}-{b}-{sparse}"
        )
        for kind in NORMS
        for a, b, sparse in (("int32", "int64", False), ("int64", "int32", True), ("int64", "int64", False))
        for indices, ids in (([4, 4, 0], [0, 0, 0]), ([4, 4, 0, 1], [1, 1, 1, 4]))
    ),
    *(
        case(f"SparseSegment{kind}", M, np.zeros(0, np.int32), np.zeros(0, np.int32)).using(jit=False, name="empty")
        for kind in NORMS
    ),
    *(case(f"SparseSegment{kind}", M[:, 0], np.int32([1, 1]), np.int32([0, 0])).using(jit=False) for kind in NORMS),
    *(
        case(f"SparseSegment{kind}WithNumSegments", cast(SMALL, t), *SPARSE, np.int32(n))
        for kind in NORMS
        for t in (*FLOATS, *(("int32", "uint8") if kind == "Sum" else ()))
        for n in (3, 5)
    ),
    *(
        case(
            f"SparseSegment{kind}WithNumSegments",
            M,
            np.array(indices, t),
            np.array(ids, t),
            np.array(6, t),
            sparse_gradient=sparse,
        ).using(name=f"{ids}-{t}")
        for kind in NORMS
        for t, sparse in (("int32", False), ("int64", True))
        for indices, ids in (([4, 4, 0], [0, 0, 0]), ([4, 4, 0, 1], [1, 1, 1, 4]))
    ),
    *(
        case(f"SparseSegment{kind}WithNumSegments", M, np.int32([4, 4, 0]), np.int32([0, 0, 2]), np.int32(3)).using(
            symbolic=("b, 3", "n", "n"), name="sym"
        )
        for kind in NORMS
    ),
    case("SparseSegmentSum", M, np.int32([5]), np.int32([0])).using(error="out of range", name="index"),
    case("SparseSegmentMean", M, np.int32([1, 2]), np.int32([1, 0])).using(error="not increasing", name="unsorted"),
    case("SparseSegmentSumWithNumSegments", M, np.int32([1]), np.int32([2]), np.int32(2)).using(
        error="out of range", name="id"
    ),
    *(
        case(f"SparseSegment{kind}Grad", cast(SMALL[:3], t), np.int32([0, 2, 0]), np.int32([0, 0, 2]), np.int32(4))
        for kind in NORMS
        for t in FLOATS
    ),
    *(
        case(f"SparseSegment{kind}Grad", M[:3], np.array(indices, t), np.array(ids, t), np.int32(6)).using(
            name=f"{ids}-{t}"
        )
        for kind in NORMS
        for t in ("int32", "int64")
        for indices, ids in (([1, 1, 5], [0, 0, 0]), ([3, 1, 1, 3], [1, 1, 2, 2]))
    ),
    *(
        case(f"SparseSegment{kind}GradV2", cast(SMALL[:3], t), np.int32([3, 2, 3]), np.int32([0, 0, 2]), np.int32(4))
        .using(baked=("indices", "segment_ids", "dense_output_dim0"))
        for kind in NORMS
        for t in FLOATS
    ),
    *(
        case(f"SparseSegment{kind}GradV2", M[:3], np.array(indices, t), np.array(ids, t), np.int32(6)).using(
            jit=False, name=f"{ids}-{t}"
        )
        for kind in NORMS
        for t in ("int32", "int64")
        for indices, ids in (([1, 1, 5], [0, 0, 0]), ([3, 1, 1, 3], [1, 1, 2, 2]))
    ),
    *(
        case(f"SparseSegment{kind}Grad", M[:3], np.int32([6]), np.int32([0]), np.int32(6)).using(error="out of range")
        for kind in NORMS
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("SqrtN")
@pytest.mark.parametrize("kind", NORMS)
def test_traced_ids_with_a_bound(kind):
    ids = jnp.array([0, 0, 2, 2, 3])
    segments, gradient = (registry.lookup(f"SparseSegment{kind}{suffix}").fn for suffix in ("", "GradV2"))
    expected = segments(M, ids, ids, bound=None)
    actual = jax.jit(lambda x, i: segments(x, i, i, bound=6))(M, ids)
    np.testing.assert_allclose(actual, jnp.pad(expected, ((0, 2), (0, 0))), rtol=1e-6)
    args = M, jnp.array([3, 0, 3, 1, 0]), ids
    rows, unique = gradient(*args, np.int32(5), bound=None)
    padded, indices = jax.jit(lambda *a: gradient(*a, np.int32(5), bound=4))(*args)
    np.testing.assert_allclose(padded, jnp.pad(rows, ((0, 1), (0, 0))), rtol=1e-6)
    np.testing.assert_array_equal(indices, [*unique, 5])


@pytest.mark.full
def test_empty_sparse_segments_are_zeros():
    # TensorFlow leaves these uninitialized.
    none = np.zeros(0, np.int32)
    for kind in NORMS:
        for name in (f"SparseSegment{kind}WithNumSegments", f"SparseSegment{kind}Grad"):
            np.testing.assert_array_equal(registry.lookup(name).fn(M, none, none, np.int32(4)), np.zeros((4, 3)))
