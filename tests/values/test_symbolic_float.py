"""Dimensions in float arithmetic equal float32's, or are arrays."""

import math
import operator
from fractions import Fraction

import jax
import jax.export
import numpy as np
import pytest

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.values.static import as_array, dims_dtype
from tf2jax_lite.values.symbolic_float import FloatDim, is_float_dim, truncate_to_dim

(N,) = jax.export.symbolic_shape("n")
SIZES = (*range(1, 300), *np.random.default_rng(0).integers(300, 1_000_000, 2000).tolist())

# Operations on a dimension between two casts.
WAYS = {
    "half": lambda n: n * 0.5,
    "three quarters": lambda n: 0.75 * n,
    "a third": lambda n: n / 3.0,
    "a seventh of less": lambda n: (n - 2.0) / 7.0,
    "halves of thirds": lambda n: n / 3.0 * 0.5,
    "more than half": lambda n: (n + 1.0) / 2.0 + 0.25,
    "back": lambda n: -(-n / 16.0) * 2.0,
    "remainder": lambda n: n - n * 0.5,
    "of 64": lambda n: 64.0 - n / 4.0,
    "seven eighths": lambda n: (n - n * 0.875) / 2.0,
    "most of it": lambda n: n * 0.9375,
    "by a thousand": lambda n: n * 3.0 / 1000.0,
}


@pytest.mark.parametrize("rounding", ["floor", "ceil", "rint", "cut off"])
@pytest.mark.parametrize("name", WAYS)
def test_integers_are_those_of_float32(name, rounding):
    def rounded(n):
        found = WAYS[name](n)
        return found if rounding == "cut off" else getattr(np, rounding)(found)

    for size in SIZES:
        assert truncate_to_dim(rounded(FloatDim(size))) == int(rounded(np.float32(size)))


@pytest.mark.parametrize(
    "way",
    [
        lambda n: n * 0.1,
        lambda n: n / 3.0 * 3.0,
        lambda n: n / 3.0 + 1.0,
        lambda n: n * n,
        lambda n: 1.0 / n,
        lambda n: n / 0.0,
        lambda n: n + 1e6,
        lambda n: n * 255.0 * 255.0,
        lambda n: n / 64.0 / 128.0,
        lambda n: n * 17.0,
        lambda n: n + 0.1,
        lambda n: n * math.inf,
        lambda n: n < 3.0,
        lambda n: n == 3.0,
        lambda n: n != N,
    ],
)
def test_inexact_operations_are_left_to_jax(way):
    with pytest.raises(InconclusiveDimensionOperation):
        way(FloatDim(N))


def test_comparisons_for_all_sizes():
    n = FloatDim(N, 2)
    assert n == FloatDim(N, 2)
    assert n != n + 1.0
    for compare in (operator.gt, operator.ge):
        assert compare(n + 1.0, n)
    for compare in (operator.lt, operator.le):
        assert compare(0.25, n) if compare is operator.le else compare(n, n + 0.5)
    assert repr(n) == "(n) / 2"


def test_rounding_of_any_quotient():
    for a in range(-50, 50):
        for d in range(1, 18):
            assert truncate_to_dim(FloatDim(a, d)) == int(Fraction(a, d))
            assert FloatDim(a, d).rint().dividend == round(Fraction(a, d))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conversion_to_arrays(dtype):
    vector = np.array([FloatDim(7, 3), 2.5, FloatDim(4)], object)
    assert is_float_dim(vector)
    assert not is_float_dim(np.array([b"text"], object))
    with jax.enable_x64(True):
        found = as_array(vector.view(dims_dtype(dtype)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array([7, 2.5, 4], dtype) / np.array([3, 1, 1], dtype))
