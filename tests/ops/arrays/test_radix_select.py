"""Radix select against sorting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.xla_cpu.test_top_k import DTYPES, odd
from tf2jax_lite.ops.arrays.sort import nth_smallest


@pytest.mark.default_cases("uint16", "int64")
@pytest.mark.parametrize("dtype", [*DTYPES, "float64", "int64", "uint64"])
def test_each_n_of_special_values(dtype):
    x = odd(dtype)
    with jax.enable_x64(x.dtype.itemsize == 8):
        found = [jax.jit(nth_smallest)(x, n) for n in range(x.size)]
    assert all(f.dtype == x.dtype for f in found)
    wide = x if x.dtype.kind in "iu" else x.astype(np.float64)
    np.testing.assert_array_equal(np.asarray(found, wide.dtype), np.sort(wide))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1), (0, 4), (2, 3, 257)])
def test_shapes(shape, dtype):
    x = (np.random.default_rng(0).normal(size=shape) * 9).astype(dtype)
    for n in {0, shape[-1] // 3, shape[-1] - 1}:
        np.testing.assert_array_equal(nth_smallest(jnp.asarray(x), n), np.sort(x)[..., n])


@pytest.mark.full
def test_n_out_of_range_is_clamped():
    x = jnp.asarray([3.0, 1.0, 2.0])
    np.testing.assert_array_equal(jax.vmap(lambda n: nth_smallest(x, n))(jnp.arange(-2, 5)), [1, 1, 1, 2, 3, 3, 3])
