"""How far apart two arrays are."""

import ml_dtypes
import numpy as np
import pytest

from tf2jax_lite.verification.compare import compare_arrays


def test_equal():
    found = compare_arrays("x", np.float32([1, 2]), np.float32([1, 2]))
    assert (found.ok, found.max_abs_error, found.max_ulp) == (True, 0, 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_ulp(dtype):
    x = np.array([1.0, -1.0, 0.0, 3.0], dtype)
    bits = x.view(f"i{x.dtype.itemsize}").copy()
    bits[0] += 3
    assert compare_arrays("x", x, bits.view(dtype)).max_ulp == 3
    tiny = np.array([0.0], dtype).view(f"u{x.dtype.itemsize}") + 2
    assert compare_arrays("x", np.array([-0.0], dtype), tiny.view(dtype)).max_ulp == 2


def test_nan_and_infinity():
    e = np.float32([np.nan, 1, np.inf, np.inf])
    assert compare_arrays("x", e, e.copy()).ok
    found = compare_arrays("x", e, np.float32([0, np.nan, -np.inf, np.inf]))
    assert not found.ok and "3 position" in found.problem
    assert (found.nan, found.infinite, found.positions) == ((1, 1), (2, 2), ((0,), (1,), (2,)))


def test_tolerance():
    e = np.float32([1e-6, 1.0])
    assert compare_arrays("x", e, e + np.float32([5e-5, 0])).ok  # small beside the array's largest
    assert not compare_arrays("x", e, e + np.float32([5e-4, 0])).ok
    assert compare_arrays("x", e, e + np.float32([5e-4, 0]), 1e-2).ok
    assert not compare_arrays("x", np.int32([1]), np.int32([2]), 10.0).ok


@pytest.mark.full
def test_dtype_and_shape():
    e = np.zeros(2, np.int64)
    assert "int32" in compare_arrays("x", e, np.zeros(2, np.int32)).problem
    assert compare_arrays("x", e, np.zeros(2, np.int32), loose_dtype=True).ok
    assert not compare_arrays("x", e, np.zeros(2, np.float32), loose_dtype=True).ok
    assert "[3]" in compare_arrays("x", e, np.zeros(3, np.int64)).problem


@pytest.mark.full
def test_other_kinds():
    assert compare_arrays("x", np.array([True, False]), np.array([True, False])).ok
    assert compare_arrays("x", np.array([b"a"], object), np.array([b"b"], object)).max_abs_error == 1
    assert compare_arrays("x", np.complex64([1 + 1j]), np.complex64([1 + 1j])).ok
    assert not compare_arrays("x", np.complex64([1 + 1j]), np.complex64([1 - 1j])).ok
    assert compare_arrays("x", np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)).ok
