"""Rules of cumulative sums and products against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from tf2jax_lite.xla_cpu.transform import call

from .test_rules import compare, everything, first_order, normal

FUNCTIONS = [lax.cumsum, lax.cumprod, lax.cumlogsumexp]
SHAPES = {"unrolled": ((2, 5, 4, 4), 1), "a loop": ((19, 16), 0), "last": ((3, 20), 1), "short rows": ((20, 3), 0)}
LONG = {"whole parts": (4096,), "and a rest": (4099,), "rows": (3, 5001), "nothing": (0, 5000)}


def cumulative(fn, x, axis, reverse):
    return call(fn, x, axis=axis, reverse=reverse)


@pytest.mark.full
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_cumulative(name, fn, reverse):
    shape, axis = SHAPES[name]
    compare(
        lambda x: fn(x, axis=axis, reverse=reverse),
        lambda x: cumulative(fn, x, axis, reverse),
        normal(*shape) / 2 + 1,
        everything=everything if fn is lax.cumsum else first_order,
    )


@pytest.mark.default_cases("unrolled-int8")
@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.float64, np.complex64])
@pytest.mark.parametrize("name", SHAPES)
def test_dtypes(name, dtype):
    """Integers wrap around; in 64-bit mode loops' counters are of another type."""
    shape, axis = SHAPES[name]
    with jax.enable_x64(True):
        x = jnp.asarray((normal(*shape) * 50).clip(0).astype(dtype))
        found = jax.jit(lambda x: cumulative(lax.cumsum, x, axis, True))(x)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, lax.cumsum(x, axis=axis, reverse=True), rtol=1e-6)


@pytest.mark.default_cases("nothing-float32-True")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize("name", LONG)
def test_long_last_axes(name, dtype, reverse):
    x = (normal(*LONG[name]) * 4).astype(dtype)
    axis = x.ndim - 1
    found = jax.jit(lambda x: cumulative(lax.cumsum, x, axis, reverse))(x)
    assert found.dtype == dtype
    expected = np.flip(np.cumsum(np.flip(x, axis), axis, np.float64 if dtype == np.float32 else dtype), axis)
    expected = expected if reverse else np.cumsum(x, axis, np.float64 if dtype == np.float32 else dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-3)


@pytest.mark.full
@pytest.mark.parametrize("reverse", [False, True])
def test_infinities_of_long_axes(reverse):
    """After an infinity or NaN all results are one, and none before."""
    x = normal(5000)
    x[1500], x[3500] = np.inf, np.nan
    found = jax.jit(lambda x: cumulative(lax.cumsum, x, 0, reverse))(x)
    expected = np.cumsum(x[::-1])[::-1] if reverse else np.cumsum(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.full
def test_infinities():
    """A log-sum-exp of -inf is -inf; after a NaN all results are NaN."""
    x = normal(20, 16)
    x[:3, 0], x[5, 1], x[7, 2] = -np.inf, np.nan, np.inf
    found = jax.jit(lambda x: cumulative(lax.cumlogsumexp, x, 0, False))(x)
    np.testing.assert_allclose(found, lax.cumlogsumexp(x, axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("sizes", ["n, 16", "3, n"])
def test_symbolic_size(fn, sizes):
    x = normal(3, 16)
    spec = export.symbolic_args_specs([x], sizes)
    for axis in range(2):
        found = export.export(jax.jit(lambda x, axis=axis: cumulative(fn, x, axis, False)))(*spec).call(x)
        np.testing.assert_allclose(found, fn(x, axis=axis), rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(("shape", "axis", "loops"), [((40, 64), 0, True), ((64, 40), 1, False), ((40, 15), 0, False)])
def test_rule(shape, axis, loops):
    traced = jax.jit(lambda x: cumulative(lax.cumsum, x, axis, False)).trace(jax.ShapeDtypeStruct(shape, np.float32))
    found = {p: "stablehlo.while" in traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "cuda")}
    assert found == {"cpu": loops, "cuda": False}
