"""Sums that are only cut: their operands are cut instead, and what was made before a loop is cut before it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.lowering.scans import the_scan
from tf2jax_lite.lowering import hoisting
from tf2jax_lite.lowering.pieces import cut_early
from tf2jax_lite.ops import equations

RNG = np.random.default_rng(0)
TRIPS, BATCH, INPUTS, WIDTH = 5, 2, 3, 4
X = RNG.normal(size=(TRIPS, BATCH, INPUTS)).astype(np.float32)
KERNEL = RNG.normal(size=(INPUTS, 2 * WIDTH)).astype(np.float32)
RECURRENT = RNG.normal(size=(WIDTH, 2 * WIDTH)).astype(np.float32)
BIAS = RNG.normal(size=2 * WIDTH).astype(np.float32)


def _halves(z):
    a, b = lax.split(z, (WIDTH, WIDTH), 1)
    return jnp.tanh(a) * jax.nn.sigmoid(b)


def _slices(z):
    return jnp.tanh(z[:, :WIDTH]) * jax.nn.sigmoid(z[:, WIDTH:])


def _one_half(z):
    return jnp.tanh(lax.split(z, (WIDTH, WIDTH), 1)[0])


def _overlapping(z):
    return sum(z[:, i : i + WIDTH] for i in range(WIDTH + 1))


def _whole_too(z):
    return _halves(z) + jnp.sum(z)


def _sum(p, d):
    return (p + d) + BIAS


def _more(p, d):
    return -(p * 2.0 - d) * BIAS


# How gates are made of the products, how they are cut, and how often the product for all steps is cut by the loop.
CASES = [
    (_sum, _halves, 2),
    (_sum, _slices, 2),
    (_sum, _one_half, 1),
    (_more, _halves, 2),
    (_sum, _overlapping, 0),
    (_sum, _whole_too, 0),
    (lambda p, d: p + BIAS + jnp.tile(d[:, :1], (1, 2 * WIDTH)), _slices, 2),
]


def _run(combine, cut, hoist, x, kernel, recurrent):
    def step(state, place):
        value = lax.dynamic_index_in_dim(x, place, 0, keepdims=False)
        return cut(combine(value @ kernel, state @ recurrent)), None

    start, xs = jnp.zeros((BATCH, WIDTH), x.dtype), np.arange(TRIPS, dtype=np.int32)
    return hoisting.scan(step, start, xs, TRIPS) if hoist else lax.scan(step, start, xs)[0]


@pytest.mark.parametrize(("combine", "cut", "pieces"), CASES)
def test_values_gradients_and_what_the_loop_reads(combine, cut, pieces):
    args = X, KERNEL, RECURRENT
    jaxpr = jax.make_jaxpr(lambda *a: _run(combine, cut, True, *a))(*args).jaxpr
    scan = the_scan(jaxpr)
    read = [v.aval.shape for v in scan.invars[sum(equations.scan_counts(scan.params)) :]]
    expected = [(TRIPS, BATCH, WIDTH)] * pieces if pieces else [(TRIPS, BATCH, 2 * WIDTH)]
    assert [shape for shape in read if len(shape) == 3] == expected

    def both(fn):
        return [np.asarray(v) for h in (True, False) for v in jax.tree.leaves(fn(h))]

    def loss(hoist):
        return lambda *a: jnp.sum(_run(combine, cut, hoist, *a) ** 2)

    def turned(hoist):  # second derivatives, backwards twice
        return lambda *a: jnp.vdot(jax.grad(loss(hoist), argnums=2)(*a), RECURRENT)

    for fn in (
        lambda h: _run(combine, cut, h, *args),
        lambda h: jax.grad(loss(h), argnums=(0, 1, 2))(*args),
        lambda h: jax.jvp(loss(h), args, args)[1],
        lambda h: jax.jvp(jax.grad(loss(h), argnums=(0, 1, 2)), args, args)[1],
        lambda h: jax.grad(turned(h), argnums=(0, 1, 2))(*args),
        lambda h: jax.grad(loss(h))(*args),
        lambda h: jax.vmap(jax.grad(lambda r: loss(h)(X, KERNEL, r)))(np.stack([RECURRENT, 2 * RECURRENT])),
        lambda h: jax.vmap(lambda x: _run(combine, cut, h, x, KERNEL, RECURRENT))(np.stack([X, 2 * X])),
    ):
        found = both(fn)
        for a, b in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_sums_of_other_values_stay():
    """Nothing is moved where none of the sum's operands is wanted."""
    jaxpr = jax.make_jaxpr(lambda a, b: _halves(a + b))(*np.ones((2, BATCH, 2 * WIDTH), np.float32)).jaxpr
    assert cut_early(jaxpr.eqns, jaxpr.outvars, []) == list(jaxpr.eqns)
    assert len(cut_early(jaxpr.eqns, jaxpr.outvars, jaxpr.invars[:1])) > len(jaxpr.eqns)
