"""The interval domain: bounds hold for all numbers of the operands."""

import itertools
import operator

import jax.export
import numpy as np
import pytest

from tf2jax_lite.jaxprs import interval
from tf2jax_lite.jaxprs.interval import Interval

BOUNDS = (None, -3, 0, 2, 2.5)
INTERVALS = [
    Interval(low, high) for low, high in itertools.product(BOUNDS, BOUNDS) if None in (low, high) or low <= high
]
NUMBERS = np.concatenate([np.arange(-7, 7.1, 0.5), [1e6, -1e6]])
FUNCTIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "union": lambda a, b: np.stack([a + 0 * b, b + 0 * a]),
}


def members(of):
    low, high = (limit if bound is None else bound for bound, limit in zip(of, (-np.inf, np.inf), strict=True))
    return NUMBERS[(low <= NUMBERS) & (high >= NUMBERS)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_inside(name):
    for a, b in itertools.product(INTERVALS, INTERVALS):
        found, values = getattr(interval, name)(a, b), FUNCTIONS[name](members(a)[:, None], members(b)[None])
        assert found.lower is None or (values >= found.lower).all(), (a, b)
        assert found.upper is None or (values <= found.upper).all(), (a, b)


def test_bounds_are_tight():
    assert interval.mul(Interval(-2, 3), Interval(-5, 4)) == (-15, 12)
    assert interval.mul(Interval(1, None), Interval(2, 3)) == (2, None)
    assert interval.sub(Interval(1, 2), Interval(None, 5)) == (-4, None)
    assert interval.neg(Interval(1, None)) == (None, -1)
    assert interval.clip(interval.UNKNOWN, Interval(0, 0), Interval(9, 9)) == (0, 9)
    assert interval.of_array(np.array([True, False])) == (0, 1)
    assert interval.of_array(np.array([1.0, np.nan])) is interval.UNKNOWN


def test_upper_bounds_may_be_symbolic():
    (n,) = jax.export.symbolic_shape("n")
    symbolic = Interval(0, n)
    assert interval.add(symbolic, Interval(0, 1.5)) == (0, n + 2)
    assert interval.mul(symbolic, Interval(2, 2)) == (0, 2 * n)
    assert interval.sub(Interval(0, 3), symbolic) == (None, 3)
    assert interval.minimum(symbolic, Interval(0, 7)) == (0, 7)
    assert interval.maximum(symbolic, Interval(1, 1)).upper == n
