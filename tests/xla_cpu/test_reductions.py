"""CPU lowering rules of reductions against JAX's own primitives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.ops.common.broadcasting import matched
from tf2jax_lite.xla_cpu import cost_model, reductions
from tf2jax_lite.xla_cpu.reductions import arg_reduce, broadcast, reduce_axes, repeats_long_rows

from .test_rules import compare, everything, normal

FUNCTIONS = [lax.reduce_sum, lax.reduce_max, lax.reduce_min]
SHAPES = {
    "few rows": ((3, 5), (0,)),
    "sixteen": ((16, 3), (0,)),
    "more": ((37, 2, 3), (0,)),
    "between": ((2, 19, 2, 2), (1,)),
    "several axes": ((2, 3, 7, 5), (1, 2)),
    "not adjacent": ((3, 2, 4, 2), (0, 2)),
    "last": ((3, 4), (1,)),
    "one row": ((1, 4), (0,)),
    "all": ((3, 4), (0, 1)),
    "none": ((0, 4), (0,)),
}


@pytest.fixture
def short(monkeypatch):
    """Make rows long from two values on, and drop programs of other limits."""
    monkeypatch.setattr(cost_model, "REDUCE_MAX_ROW", 1)
    monkeypatch.setattr(cost_model, "ARG_MIN_LAST_AXIS", 1)
    reductions.call.__globals__["_trace_once"].cache_clear()


@pytest.mark.full
@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("name", SHAPES)
def test_reduction(short, name, fn):
    shape, axes = SHAPES[name]
    x = np.round(normal(*shape) * 2)  # ties share the gradient
    if 0 in shape:
        np.testing.assert_array_equal(reduce_axes(fn, jnp.asarray(x), axes), fn(x, axes))
        return
    compare(partial(fn, axes=axes), lambda x: reduce_axes(fn, x, axes), x, everything=everything)


@pytest.mark.full
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_nan_and_infinities(short, fn):
    x = normal(20, 6)
    x[3, 0], x[17, 1], x[5, 2], x[6, 2], x[:, 3] = np.nan, np.inf, np.inf, -np.inf, -np.inf
    np.testing.assert_allclose(jax.jit(lambda x: reduce_axes(fn, x, (0,)))(x), fn(jnp.asarray(x), (0,)), rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int8, np.uint32, np.float64])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("fn", [lax.argmax, lax.argmin])
def test_arg_reduce(short, fn, axis, dtype):
    """Of equal values the first; in batches, too."""
    with jax.enable_x64(dtype == np.float64):
        x = jnp.asarray(
            np.round(normal(4, 5, 6) * 2).clip(-3 if jnp.issubdtype(dtype, jnp.signedinteger) else 0)
        ).astype(dtype)
        expected = fn(x, axis, np.int32)
        found = jax.jit(lambda x: arg_reduce(fn, x, axis))(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)
        batches = jnp.stack([x, x[::-1]], 1)
        actual = jax.jit(jax.vmap(lambda x: arg_reduce(fn, x, axis), in_axes=1))(batches)
        np.testing.assert_array_equal(actual, jnp.stack([expected, fn(x[::-1], axis, np.int32)]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("shape", "wide", "long"),
    [((3, 4), (5, 3, 4), True), ((1, 3, 1), (5, 3, 4), False), ((2, 1, 4), (2, 5, 4), True), ((4,), (4,), False)],
)
def test_broadcast(short, shape, wide, long):
    assert repeats_long_rows(shape, wide) == long
    compare(partial(jnp.broadcast_to, shape=wide), lambda x: broadcast(x, wide), normal(*shape))


def test_gradient_of_broadcast():
    """An added position embedding's gradient is summed by rows on CPU."""
    x, row = np.zeros((4, 200, 128), np.float32), np.zeros((1, 200, 128), np.float32)
    fn = jax.jit(jax.grad(lambda row: jnp.sum(jnp.sin(lax.mul(*matched(x, lax.add(*matched(x, row)))))), 0))
    traced = fn.trace(row)
    texts = {p: traced.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "cuda")}
    assert {p: "stablehlo.reduce" in text for p, text in texts.items()} == {"cpu": False, "cuda": True}


@pytest.mark.full
@pytest.mark.parametrize("exact", [1, 1 << 24])
def test_arg_reduce_of_many(short, monkeypatch, exact):
    """Where float32 is not exact, indices are integers."""
    monkeypatch.setattr(reductions, "_EXACT", exact)
    x = jnp.asarray(normal(3, 40))
    np.testing.assert_array_equal(jax.jit(lambda x: arg_reduce(lax.argmax, x, 1))(x), lax.argmax(x, 1, np.int32))


@pytest.mark.default_cases("shape1-axes1-False")
@pytest.mark.parametrize(
    ("shape", "axes", "long"),
    [
        ((8, 1 << 15), (0,), True),
        ((8, 128, 128), (0,), False),
        ((8, 128, 129), (0,), True),
        ((2, 3, 1 << 15), (1,), True),
        ((2, 3, 1 << 15), (0, 1), True),
        ((1, 1 << 15), (0,), False),
        ((1 << 15, 8), (0,), False),
        ((8, 1 << 15), (1,), False),
    ],
)
def test_rule(shape, axes, long):
    """Long rows have a rule, on CPU alone, and integers never."""
    for dtype in (np.float32, np.int32):
        lowered = jax.jit(lambda x: reduce_axes(lax.reduce_sum, x, axes)).trace(jax.ShapeDtypeStruct(shape, dtype))
        has_rule = {
            p: "stablehlo.reduce" not in lowered.lower(lowering_platforms=(p,)).as_text() for p in ("cpu", "cuda")
        }
        assert has_rule == {"cpu": long and dtype == np.float32, "cuda": False}
