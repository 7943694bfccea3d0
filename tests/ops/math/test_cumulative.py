"""Cumulative sums, products and log-sum-exps against TensorFlow."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests._support import cast
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops import registry
from tf2jax_lite.ops.math import reductions

BF16 = ml_dtypes.bfloat16
FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
NAN, INF = np.nan, np.inf


X = np.array([[[1.5, -2, 3], [0.5, 4, -1]], [[2, 1, 1], [-3, 0.25, 2]]])

CASES = [
    *(
        case(op, cast(x, dtype), np.array(-1), exclusive=exclusive, reverse=reverse)
        for op, x in (("Cumsum", [[3, 7, 1], [2, 100, 3]]), ("Cumprod", [[3, 2, 1], [2, 5, 3]]))
        for dtype in (*FLOATS, *COMPLEX, "int8", "uint16", "int64")
        for exclusive, reverse in ((False, False), (True, True))
    ),
    *(
        case(op, X, np.array(axis), exclusive=exclusive, reverse=not exclusive)
        for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp")
        for axis in (0, 1, -1)
        for exclusive in (False, True)
    ),
    *(
        case(op, np.zeros(shape, np.float32), np.array(0), exclusive=exclusive).using(name=f"empty-{shape}-{exclusive}")
        for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp")
        for shape in ((0,), (0, 2), (2, 0))
        for exclusive in (False, True)
    ),
    case("Cumsum", np.float32([1, INF, 3, NAN, 2]), np.array(0), exclusive=True).using(name="inf"),
    case("Cumsum", np.float32([1, INF, 3, NAN, 2]), np.array(0), reverse=True).using(name="inf-rev"),
    case("Cumprod", np.float32([1, NAN, 3]), np.array(0), exclusive=True, reverse=True).using(name="nan", grad=False),
    # TensorFlow's gradient divides by the input, and is 0 where that is 0.
    case("Cumprod", np.float32([2, 0, 3]), np.array(0)).using(name="zero", grad=False),
    case("Cumsum", np.ones((2, 3), np.float32), np.array(1)).using(symbolic=("b, 3",), name="sym"),
    case("Cumsum", np.ones((2, 3), np.float32), np.array(1), exclusive=True, reverse=True).using(
        symbolic=("b, n",), name="sym2"
    ),
    case("Cumprod", np.ones((2, 3), np.float32), np.array(1), exclusive=True).using(symbolic=("b, 3",), name="sym"),
    case("Cumsum", np.float32(1), np.array(0)).using(error="rank >= 1", name="rank0"),
    case("Cumsum", np.ones((2, 3)), np.array(-3)).using(error="out of range", name="bad-axis"),
    *(
        case("CumulativeLogsumexp", cast([[1, 3, 2, -4]], dtype), np.array(1), exclusive=exclusive, reverse=reverse)
        for dtype in FLOATS
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    *(
        # TensorFlow's gradient of infinities is NaN: inf - inf.
        case("CumulativeLogsumexp", np.float32(x), np.array(0), exclusive=e, reverse=r).using(
            name=f"{x}-{e}", grad=False
        )
        for x in ([-INF, 1, -INF, 3, INF, -INF, 2], [-INF, -INF], [300, -300, 1000])
        for e, r in ((False, True), (True, False), (False, False))
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.parametrize("name", ["Cumsum", "Cumprod"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_constant_folding_of_a_scan(name, exclusive, reverse):
    for x in (np.array([3, 2, 5]), np.float32([[1, 2], [3, 4]]), np.zeros(0, np.int32)):
        expected = tf.raw_ops.__dict__[name](x=x, axis=0, exclusive=exclusive, reverse=reverse).numpy()
        actual = registry.lookup(name).fold(x, np.array(0), exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(actual, expected)
        assert actual.dtype == expected.dtype


@pytest.mark.full
def test_gradient_of_cumprod_at_zero():
    grad = jax.grad(lambda x: reductions.cumprod(x, np.array(0)).sum())(jnp.array([2.0, 0.0, 3.0]))
    np.testing.assert_allclose(grad, [1.0, 2.0 + 2.0 * 3.0, 0.0])
