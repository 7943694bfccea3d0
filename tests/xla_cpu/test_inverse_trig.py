"""Inverse trigonometric functions on CPU: exact, special, derivatives."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.test_util import check_grads

from tf2jax_lite.xla_cpu.transform import call

acos, asin, atan, atan2 = (partial(call, fn) for fn in (lax.acos, lax.asin, lax.atan, lax.atan2))
ATAN2 = jax.jit(atan2)
ATAN = jax.jit(atan)
EDGES = np.array(
    [0, 1, np.inf, np.nan, np.pi, 2.0**-12, 2.0**100, 3e38, 1e-30, 2e-38, 1.2e-38, 1e-40, 1e-45, 1 - 2.0**-24],
    np.float32,
)
EDGES = np.concatenate([EDGES, -EDGES])


def ulps(actual, exact):
    """Return the number of floats between two."""
    one, other = (np.asarray(v, np.float32).view(np.int32).astype(np.int64) for v in (actual, exact))
    one, other = (np.where(v < 0, -(v & 0x7FFFFFFF), v) for v in (one, other))
    return np.abs(one - other)


def drawn(spread):
    rng = np.random.default_rng(0)
    return (rng.normal(size=10**5) * np.exp(spread * rng.normal(size=10**5))).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("spread", [0, 1, 5, 20])
def test_errors_within_two_ulps(spread):
    y, x = drawn(spread), drawn(0)[::-1]
    for one, other in ((y, x), (x, y), (x, np.float32(1))):
        exact = np.arctan2(np.float64(one), np.float64(other))
        seen = np.abs(exact) > 2e-38  # less may be taken for 0
        assert ulps(ATAN2(one, other), exact)[seen].max() <= 2
        assert np.abs(ATAN2(one, other)[~seen]).max(initial=0) < 2e-38
    assert ulps(ATAN(y), np.arctan(np.float64(y))).max() <= 2


def test_edges():
    y, x = np.array(list(itertools.product(EDGES, EDGES)), np.float32).T
    exact = np.arctan2(np.float64(y), np.float64(x)).astype(np.float32)
    actual = np.asarray(ATAN2(y, x))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(exact))
    finite = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(actual[finite]), np.signbit(exact[finite]))
    large = finite & (np.abs(exact) > 2.5e-38)
    assert ulps(actual, exact)[large].max() <= 2
    assert np.abs(actual[finite & ~large]).max() < 2.5e-38
    round_ones = np.isin(np.abs(y), [0, 1, np.inf]) & np.isin(np.abs(x), [0, 1, np.inf])
    np.testing.assert_array_equal(actual[round_ones], exact[round_ones])


def test_edges_of_one_argument():
    exact = np.arctan(np.float64(EDGES)).astype(np.float32)
    actual = np.asarray(ATAN(EDGES))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(EDGES))
    seen = ~np.isnan(EDGES)
    assert ulps(actual, exact)[seen].max() <= 1
    np.testing.assert_array_equal(np.signbit(actual[seen]), np.signbit(EDGES[seen]))
    tiny = np.abs(EDGES) < 2.0**-12
    np.testing.assert_array_equal(actual[tiny].view(np.int32), EDGES[tiny].view(np.int32))


@pytest.mark.parametrize("name", ["asin", "acos"])
def test_sines(name):
    fn, exact = jax.jit(partial(call, getattr(lax, name))), getattr(np, f"arc{name[1:]}")
    near = np.clip(np.concatenate([drawn(0), 1 - np.abs(drawn(5)), np.linspace(-1, 1, 10**5)]), -1, 1)
    x = np.concatenate([near, EDGES, -near, [1 + 2.0**-23]]).astype(np.float32)
    with np.errstate(invalid="ignore"):
        wanted = exact(np.float64(x)).astype(np.float32)
    actual = np.asarray(fn(x))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wanted))
    seen = ~np.isnan(wanted)
    assert ulps(actual, wanted)[seen].max() <= 2
    np.testing.assert_array_equal(np.signbit(actual[seen]), np.signbit(wanted[seen]))
    round_ones = np.isin(np.abs(x), [0, 1])
    np.testing.assert_array_equal(actual[round_ones], wanted[round_ones])


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64], ids=lambda d: np.dtype(d).name)
def test_other_dtypes_are_left_to_xla(dtype):
    with jax.enable_x64(True):
        y, x = (jnp.asarray(drawn(1)[i::1000], dtype) for i in (0, 1))
        unit = jnp.sin(y)
        for own, args in ((atan2, (y, x)), (atan, (y,)), (asin, (unit,)), (acos, (unit,))):
            found, wanted = (jax.jit(fn)(*args) for fn in (own, own.args[0]))
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(np.float64(found), np.float64(wanted))


@pytest.mark.full
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (1000, 7)], ids=str)
def test_shapes(shape):
    rng = np.random.default_rng(0)
    y, x = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    exact = np.arctan2(y, x)
    assert ATAN2(y, x).shape == shape
    np.testing.assert_allclose(ATAN2(y, x), exact, rtol=3e-7)
    np.testing.assert_allclose(atan2(y, x), exact, rtol=3e-7)
    np.testing.assert_allclose(jax.vmap(atan2, (0, None))(np.stack([y, -y]), x)[0], exact, rtol=3e-7)
    np.testing.assert_allclose(jax.vmap(atan)(y[None])[0], np.arctan(y), rtol=3e-7)


@pytest.mark.full
def test_symbolic_sizes_and_other_platforms():
    shape = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), np.float32)
    exported = jax.export.export(jax.jit(atan2), platforms=["cpu", "cuda"])(shape, shape)
    y, x = drawn(0)[:100], drawn(1)[:100]
    np.testing.assert_allclose(exported.call(y, x), np.arctan2(y, x), rtol=3e-7)
    module = jax.export.export(jax.jit(atan2), platforms=["cuda"])(shape, shape).mlir_module()
    assert "stablehlo.atan2" in module
    assert "stablehlo.bitcast_convert" not in module


@pytest.mark.full
def test_derivatives():
    y, x = drawn(0)[:20], drawn(0)[20:40]
    unit = np.sin(y)
    for own, args in ((atan2, (y, x)), (atan, (y,)), (asin, (unit,)), (acos, (unit,))):
        plain = own.args[0]
        found, wanted = (jax.grad(lambda *a, f=f: f(*a).sum(), tuple(range(len(args))))(*args) for f in (own, plain))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    with jax.enable_x64(True):
        check_grads(atan2, (np.float64(y), np.float64(x)), order=2)
