"""Values that iterations cut are read once; unit axes stay outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.jaxprs.compat import scan_counts
from tf2jax_lite.lowering import scan_opt

from .scans import the_scan

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


def _flattened(z):
    return _halves(jnp.reshape(jnp.reshape(z, (-1,)), z.shape))


def _uncut(z):
    return jnp.tanh(z[:, :1]) * jnp.ones((1, WIDTH), z.dtype)


# How gates are made of the products, how they are cut, and how many marks that takes.
CASES = [
    (_sum, _halves, 1),
    (_sum, _slices, 1),
    (_sum, _one_half, 0),
    (_more, _halves, 1),
    (_sum, _overlapping, 1),
    (_sum, _whole_too, 1),
    (_sum, _flattened, 1),
    (_sum, _uncut, 0),
    (lambda p, d: p + BIAS + jnp.tile(d[:, :1], (1, 2 * WIDTH)), _slices, 1),
    (lambda p, d: p[:, ::-1] + d, _halves, 1),
    (lambda p, d: jnp.sum(p, keepdims=True) + d, _halves, 0),
]


def _run(combine, cut, hoist, x, kernel, recurrent):
    def step(state, place):
        value = lax.dynamic_index_in_dim(x, place, 0, keepdims=False)
        return cut(combine(value @ kernel, state @ recurrent)), None

    start, xs = jnp.zeros((x.shape[1], WIDTH), x.dtype), np.arange(TRIPS, dtype=np.int32)
    return scan_opt.scan(step, start, xs, TRIPS) if hoist else lax.scan(step, start, xs)[0]


@pytest.mark.full
@pytest.mark.parametrize(("combine", "cut", "marks", "batch"), [(*c, BATCH) for c in CASES] + [(*CASES[0], 1)])
def test_values_gradients_and_what_the_loop_reads(combine, cut, marks, batch):
    args = X[:, :batch], KERNEL, RECURRENT
    jaxpr = jax.make_jaxpr(lambda *a: _run(combine, cut, True, *a))(*args).jaxpr
    scan = the_scan(jaxpr)
    read = [v.aval.shape for v in scan.invars[sum(scan_counts(scan.params)) :]]
    expected = (TRIPS, batch, 2 * WIDTH) if batch > 1 else (TRIPS, 2 * WIDTH)
    assert [shape for shape in read if len(shape) > 1] == [expected]
    (first, last) = np.cumsum(scan_counts(scan.params))
    assert [v.aval.shape for v in scan.invars[first:last]] == [(batch, WIDTH) if batch > 1 else (WIDTH,)]
    assert sum(e.primitive.name == "materialize" for e in scan.params["jaxpr"].jaxpr.eqns) == marks

    def both(fn):
        return [np.asarray(v) for h in (True, False) for v in jax.tree.leaves(fn(h))]

    def loss(hoist):
        return lambda *a: jnp.sum(_run(combine, cut, hoist, *a) ** 2)

    def twice(hoist):  # second derivatives, backwards twice
        return lambda *a: jnp.vdot(jax.grad(loss(hoist), argnums=2)(*a), RECURRENT)

    for fn in (
        lambda h: _run(combine, cut, h, *args),
        lambda h: jax.grad(loss(h), argnums=(0, 1, 2))(*args),
        lambda h: jax.jvp(loss(h), args, args)[1],
        lambda h: jax.jvp(jax.grad(loss(h), argnums=(0, 1, 2)), args, args)[1],
        lambda h: jax.grad(twice(h), argnums=(0, 1, 2))(*args),
        lambda h: jax.grad(loss(h))(*args),
        lambda h: jax.vmap(jax.grad(lambda r: loss(h)(*args[:2], r)))(np.stack([RECURRENT, 2 * RECURRENT])),
        lambda h: jax.vmap(lambda x: _run(combine, cut, h, x, KERNEL, RECURRENT))(np.stack([args[0], 2 * args[0]])),
    ):
        found = both(fn)
        for a, b in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_integers_are_cut_as_they_are():
    x, kernel = np.arange(TRIPS * 2).reshape(TRIPS, 1, 2).astype(np.int32), np.ones((2, 4), np.int32)

    def step(state, place):
        a, b = lax.split(lax.dynamic_index_in_dim(jnp.asarray(x), place, 0, keepdims=False) @ kernel, (2, 2), 1)
        return state + a * b, None

    start, xs = jnp.zeros((1, 2), np.int32), np.arange(TRIPS)
    np.testing.assert_array_equal(scan_opt.scan(step, start, xs, TRIPS), lax.scan(step, start, xs)[0])
