"""Bincounts, histograms and bucketize against TensorFlow."""

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
from tf2jax_lite.ops.math import histogram

BF16 = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf


CASES = [
    *(
        case("Bincount", np.int32([1, 3, 1, 9, 0]), np.int32(5), np.array(w, dtype)).using(baked=("size",))
        for dtype in ("int32", "int64", "float32", "float64")
        for w in ([], [1, 2, 3, 4, 5])
    ),
    case("Bincount", np.int32([[1, 3], [1, 0]]), np.int32(4), np.float32([[1, 2], [3, 4]])).using(baked=("size",)),
    case("Bincount", np.zeros(0, np.int32), np.int32(0), np.float32([])).using(baked=("size",), name="empty"),
    case("Bincount", np.int32([1, -1]), np.int32(3), np.float32([])).using(error="negative", name="negative"),
    case("Bincount", np.int32([1, 1]), np.int32(3), np.float32([])).using(
        baked=("size",), symbolic=("n", "0"), name="sym"
    ),
    *(
        case("DenseBincount", cast(x, t), cast(4, t), np.array(w, "float32"), binary_output=binary).using(
            baked=("size",), name=f"{np.shape(x)}-{t}-{len(w)}-{binary}"
        )
        for t in ("int32", "int64")
        for x in ([1, 3, 1, 9], [[1, 3, 1], [0, 0, 7]])
        for w in ([], np.arange(np.size(x)).reshape(np.shape(x)))
        for binary in (False, True)
        if not (binary and len(w))
    ),
    *(case("DenseBincount", np.int32([1, 1]), np.int32(3), np.array([], t)).using(baked=("size",))
      for t in ("int32", "int64", "float64")),
    case("DenseBincount", np.int32([[1, 1], [0, 2]]), np.int32(3), np.float32([])).using(
        baked=("size",), symbolic=("b, n", "0"), name="sym"
    ),
    case("DenseBincount", np.int32([[-1]]), np.int32(3), np.float32([])).using(error="negative", name="negative"),
    *(
        case(
            "SparseBincount",
            np.int64([[0, 1], [0, 5], [2, 1], [2, 2]]),
            cast([1, 1, 2, 8], t),
            np.int64([3, 6]),
            cast(4, t),
            np.array(w, "float32"),
            binary_output=binary,
        ).using(baked=("size",), name=f"{t}-{len(w)}-{binary}")
        for t in ("int32", "int64")
        for w, binary in (([], False), ([1, 2, 3, 4], False), ([], True))
    ),
    case(
        "SparseBincount", np.int64([[1], [5]]), np.int32([2, 2]), np.int64([6]), np.int32(4), np.float64([])
    ).using(baked=("size",), name="vector"),
    *(
        case(
            "RaggedBincount",
            np.int64([0, 0, 3, 4, 4]),
            cast([1, 1, 7, 2], t),
            cast(4, t),
            np.array(w, "float64"),
            binary_output=binary,
        ).using(baked=("size",), name=f"{t}-{len(w)}-{binary}")
        for t in ("int32", "int64")
        for w, binary in (([], False), ([1, 2, 3, 4], False), ([], True))
    ),
    case(
        "RaggedBincount", np.int64([0, 2, 4]), np.int32([1, 1, 3, 2]), np.int32(4), np.float32([[1, 2], [3, 4]])
    ).using(baked=("size",), name="weights in rows"),
    case("HistogramFixedWidth", np.float32([3e38, 100]), np.float32([-1e38, 3e38]), np.int32(2)).using(name="overflow"),
    # Rounding decides the bin of values at bin boundaries.
    *(
        case("HistogramFixedWidth", np.linspace(*ends, n + 1, dtype=np.float32), np.float32(ends), np.int32(n)).using(
            name=f"borders of {n}"
        )
        for *ends, n in ((-16.49063, -13.252226, 33), (8.478164, 10.593681, 15), (-0.1, 0.7, 48), (-3, 17.3, 7))
    ),
    *(
        case("HistogramFixedWidth", cast([[-1, 0, 1.5], [2, 5, 15]], t), cast([0, 5], t), np.int32(5), dtype=out)
        for t in ("int32", "int64", "float32", "float64")
        for out in (tf.int32, tf.int64)
    ),
    case("HistogramFixedWidth", np.float32([0.1, 0.2, 0.3, 0.7, INF, -INF]), np.float32([0, 1]), np.int32(10)),
    case("HistogramFixedWidth", np.float32([]), np.float32([0, 1]), np.int32(3)),
    case("HistogramFixedWidth", np.float32([1]), np.float32([1, 1]), np.int32(3)).using(error="increasing"),
    *(
        case("Bucketize", cast([[-5, 10000], [150, 10], [5, 100]], t), boundaries=[0.0, 10.0, 100.0])
        for t in ("int32", "int64", "float32", "float64")
    ),
    case("Bucketize", np.float32([NAN, INF, -INF, 0]), boundaries=[0.0, 10.0]).using(name="nan"),
    case("Bucketize", np.float32([1, 2]), boundaries=[]).using(name="none"),
    case("Bucketize", np.float32([NAN, 1, 70.5, 200]), boundaries=[float(i) for i in range(100)]).using(name="many"),
    case("Bucketize", np.float64([0.1]), boundaries=[0.1]).using(name="float32-boundary"),
    case("Bucketize", np.float32([1]), boundaries=[2.0, 1.0]).using(error="sorted", name="unsorted"),
    case("Bucketize", np.float32([[1, 2]]), boundaries=[2.0]).using(symbolic=("b, 2",), name="sym"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_bincount_with_traced_size():
    x, none = jnp.array([1, 3, 1, 0, 5]), jnp.zeros(0)
    with pytest.raises(OpError, match="dynamic_shape_bound"):
        jax.jit(lambda size: histogram.bincount(x, size, none, bound=None))(4)
    counts = jax.jit(lambda size: histogram.bincount(x, size, none, bound=8))(4)
    np.testing.assert_array_equal(counts, [1, 2, 0, 1, 0, 0, 0, 0])  # 5 is beyond the size, not beyond the bound


@pytest.mark.full
def test_histogram_drops_nan():
    counts = histogram.histogram_fixed_width(jnp.array([NAN, 0.5]), jnp.array([0.0, 1.0]), np.int32(2))
    np.testing.assert_array_equal(counts, [0, 1])
