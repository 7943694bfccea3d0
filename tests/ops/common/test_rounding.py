"""Products and quotients are rounded as written, whatever is proven."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.ops.common.precision import product, quotient

SCALE, SHIFT = np.float32(4 / 255), np.float32(-1.3)
OPERANDS = {
    "bytes": np.arange(256).astype(np.uint8),
    "signed bytes": np.arange(-128, 128).astype(np.int8),
    "floats": np.linspace(-9, 9, 1001, dtype=np.float32),
}


@pytest.mark.full
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", OPERANDS)
def test_product_is_rounded_before_a_sum(name, constant):
    """LLVM proves small integers times constants finite, and removed a guard."""
    value = OPERANDS[name]
    expected = (value.astype(np.float32) * SCALE).astype(np.float32) + SHIFT

    def shifted(x, scale):
        return product(x.astype(np.float32), SCALE if constant else scale) + SHIFT

    np.testing.assert_array_equal(jax.jit(shifted)(value, SCALE), expected)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, jnp.bfloat16])
def test_large_products_infinity_and_nan(dtype):
    with jax.enable_x64(True):
        most = jnp.finfo(dtype).max
        a = jnp.asarray([most, -most, most / 2, jnp.inf, -jnp.inf, jnp.nan, 0, -most / 3], dtype)
        for b in (1, 2, -1, jnp.inf, 0):
            b = jnp.asarray(b, dtype)
            np.testing.assert_array_equal(jax.jit(product)(a, b).astype(np.float64), (a * b).astype(np.float64))
            gradient = jax.grad(lambda x, b=b: product(x, b))(a[2])
            np.testing.assert_array_equal(gradient.astype(np.float64), b.astype(np.float64))


@pytest.mark.full
def test_quotient_is_not_a_product_with_a_reciprocal():
    value = OPERANDS["floats"]
    np.testing.assert_array_equal(jax.jit(lambda x: quotient(x, np.float32(7)))(value), value / np.float32(7))
