"""Inferred intervals of traced numbers hold for all values of the arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from tf2jax_lite.autodiff.custom_gradient import Refusal, with_custom_gradient
from tf2jax_lite.dynamic_shapes.intervals import interval_of
from tf2jax_lite.jaxprs.interval import Interval

MASK, INTS, FLOATS = np.zeros((3, 5), bool), np.zeros((3, 5), np.int32), np.zeros((3, 5), np.float32)
BYTES = np.zeros(4, np.uint8)


def straight_through(x):
    """Return a clipped number with the gradient of the number."""
    return with_custom_gradient(lambda a, r, s, c: c, [x], [jnp.clip(x, 0, 6)], (), Refusal("", "", "", ()))[0]


KNOWN = {
    "booleans": (lambda m: m, MASK, Interval(0, 1)),
    "arguments": (lambda x: x, INTS, Interval()),
    "counts": (lambda m: jnp.sum(m, axis=1), MASK, Interval(0, 5)),
    "all": (lambda m: jnp.sum(m), MASK, Interval(0, 15)),
    "of floats": (lambda m: jnp.sum(m.astype(np.float32)).astype(np.int32), MASK, Interval(0, 15)),
    "scaled": (lambda m: (jnp.sum(m.astype(np.float32)) * 0.1).astype(np.int32), MASK, Interval(0, 2)),
    "the most of counts": (lambda m: jnp.max(jnp.sum(m, axis=1)), MASK, Interval(0, 5)),
    "running": (lambda m: lax.cumsum(m.astype(np.int32), axis=1), MASK, Interval(0, 5)),
    "positions": (lambda x: jnp.argmax(x, axis=1) + 1, INTS, Interval(1, 5)),
    "clipped": (lambda x: jnp.clip(x, 2, 7), INTS, Interval(2, 7)),
    "least": (lambda x: jnp.minimum(x, 9), INTS, Interval(None, 9)),
    "difference": (lambda m: 10 - jnp.sum(m), MASK, Interval(-5, 10)),
    "product": (lambda m: jnp.sum(m) * jnp.sum(m, axis=0), MASK, Interval(0, 45)),
    "half": (lambda m: jnp.sum(m) // 2, MASK, Interval(0, 15)),
    "remainder": (lambda x: lax.rem(x, jnp.int32(6)), INTS, Interval(-5, 5)),
    "chosen": (lambda m, x: jnp.where(m, jnp.clip(x, 3, 4), 8), MASK, INTS, Interval(3, 8)),
    "entry": (lambda m: jnp.sum(m, axis=1)[1], MASK, Interval(0, 5)),
    "together": (lambda m: jnp.stack([jnp.sum(m), jnp.int32(40)])[0], MASK, Interval(0, 40)),
    "negative": (lambda m: -jnp.sum(m), MASK, Interval(-15, 0)),
    "what may wrap": (lambda x: x.astype(np.uint8) + np.uint8(1), BYTES, Interval(0)),
    "casts that wrap": (lambda m: (jnp.sum(m) * 100).astype(np.int8), MASK, Interval()),
    "of an unknown value": (lambda x: jnp.sum(x), INTS, Interval()),
    "called": (lambda m: jax.jit(lambda v: jnp.sum(v) + 1)(m), MASK, Interval(1, 16)),
    "with a gradient of its own": (lambda x: straight_through(x)[0, 0].astype(np.int32), FLOATS, Interval(0, 6)),
    "after a loop": (lambda m: lax.fori_loop(0, jnp.sum(m), lambda i, n: n + i, 0), MASK, Interval()),
}


def seen(function, *args):
    found = []

    def run(*inner):
        result = function(*inner)
        found.append(interval_of(result))
        return result

    jax.make_jaxpr(run)(*args)
    return found[0]


@pytest.mark.full_cases(
    "of floats", "running", "positions", "together", "called", "with a gradient of its own", "after a loop"
)
@pytest.mark.parametrize("name", KNOWN)
def test_ranges(name):
    function, *args, expected = KNOWN[name]
    found = seen(function, *args)
    if expected.upper is not None or expected.lower not in (None, 0):
        assert found.upper == expected.upper
    assert found.lower is None or expected.lower is not None
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = [rng.integers(0, 2, a.shape).astype(a.dtype) for a in args]
        drawn = [
            d if a.dtype == bool else rng.integers(-99 if a.dtype.kind == "i" else 0, 99, a.shape).astype(a.dtype)
            for d, a in zip(drawn, args, strict=True)
        ]
        result = np.asarray(function(*map(jnp.asarray, drawn)))
        assert found.lower is None or result.min() >= found.lower
        assert found.upper is None or result.max() <= found.upper


@pytest.mark.full
def test_of_a_size_that_is_not_known():
    (size,) = export.symbolic_shape("b")
    found = seen(lambda m: jnp.sum(m, axis=0), jax.ShapeDtypeStruct((size, 3), np.bool_))
    assert found.lower == 0 and str(found.upper) == "b"


@pytest.mark.full
def test_long_chains_end():
    def chain(m):
        total = jnp.sum(m)
        for _ in range(3000):
            total = total + jnp.sum(m)
        return total

    assert seen(chain, MASK).upper is None
