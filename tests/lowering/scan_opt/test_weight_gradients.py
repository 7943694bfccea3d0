"""Gradients with respect to a loop's weights equal those of JAX's scan."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.lowering import scan_opt
from tf2jax_lite.lowering.scheduling import cost_model

RNG = np.random.default_rng(0)
TRIPS, BATCH, WIDTH = 4, 5, 3
START = RNG.normal(size=(BATCH, WIDTH)).astype(np.float32)
SQUARE = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)
OTHER = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)


def _plain(state, w, v, number):
    return jnp.tanh(state @ w) + v[0] * number


def _on_the_left(state, w, v, number):
    return jnp.tanh(lax.dot_general(w, state, (((0,), (1,)), ((), ()))).T) * v[0]


def _summed_over_the_last(state, w, v, number):
    return jnp.tanh(lax.dot_general(state, w, (((1,), (1,)), ((), ())))) * v[0]


def _two_dimensions(state, w, v, number):
    parts = lax.dot_general(state[:, :, None], w[:, None, :], (((1, 2), (0, 1)), ((), ())))
    return jnp.tanh(parts) + v[0]


def _twice(state, w, v, number):
    return jnp.tanh(jnp.tanh(state @ w) @ w)


def _two_weights(state, w, v, number):
    return jnp.tanh(state @ w) * jax.nn.sigmoid(state @ v)


def _elsewhere_too(state, w, v, number):
    return jnp.tanh(state @ w) * jnp.sum(w**2) + w[0]


def _of_each_other(state, w, v, number):
    return jnp.tanh(state @ (w @ v))


def _of_pieces(state, w, v, number):  # as a GRU that resets its state before the product
    return jnp.concatenate([jnp.tanh(state @ w[:, :1]), jax.nn.sigmoid((state * v[0]) @ w[:, 1:])], 1)


BODIES = [_plain, _on_the_left, _summed_over_the_last, _two_dimensions, _twice, _two_weights, _elsewhere_too]
BODIES += [_of_each_other, _of_pieces]


def _end(body, ours, start, w, v):
    def step(carry, x):
        state, count = carry
        return (body(state, w, v, x.astype(np.float32)), count + x), None

    xs = np.arange(TRIPS, dtype=np.int32)
    if ours:
        state, count = scan_opt.scan(step, (start, np.int32(0)), xs, TRIPS)
    else:
        (state, count), _ = lax.scan(step, (start, np.int32(0)), xs)
    return jnp.sum(state**2) * count


def _grads(fn, *args):
    return jax.grad(fn, argnums=tuple(range(len(args))))(*args)


def _of_some(fn, start, w, v):
    return [jax.grad(fn, argnums=i)(start, w, v) for i in range(3)]


def _forward(fn, *args):
    return jax.jvp(fn, args, tuple(0.5 * a for a in args))


def _second(fn, *args):
    return jax.jvp(lambda *a: _grads(fn, *a), args, tuple(0.5 * a for a in args))


def _backwards_twice(fn, *args):
    return _grads(lambda *a: sum(jnp.vdot(g, a) for g, a in zip(_grads(fn, *a), args, strict=True)), *args)


def _mapped(fn, start, w, v):
    found = jax.vmap(lambda w: _grads(fn, start, w, v))(jnp.stack([w, 2 * w]))
    return found, jax.vmap(jax.grad(fn), (0, None, None))(jnp.stack([start, 2 * start]), w, v)


CASES = [(body, derive) for body in BODIES for derive in (_grads, _forward, _mapped)]
CASES += [(body, derive) for body in (_plain, _on_the_left, _twice) for derive in (_of_some, _second, _backwards_twice)]


@pytest.mark.full
@pytest.mark.parametrize(("body", "derive"), CASES)
def test_derivatives_are_those_of_a_scan(body, derive):
    found, expected = (
        jax.tree.leaves(jax.jit(lambda *a, o=o: derive(lambda *b: _end(body, o, *b), *a))(START, SQUARE, OTHER))
        for o in (True, False)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def _products_in_loops(jaxpr, within=False):
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive is lax.dot_general_p and within:
            found.append(eqn.outvars[0].aval.shape)
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                found += _products_in_loops(inner, within or eqn.primitive is lax.scan_p)
    return found


@pytest.mark.default_cases("_plain", "_on_the_left")
@pytest.mark.parametrize("body", BODIES)
def test_no_product_of_the_backward_loop_is_as_large_as_the_weights(body):
    jaxpr = jax.make_jaxpr(lambda *a: _grads(lambda *b: _end(body, True, *b), *a))(START, SQUARE, OTHER).jaxpr
    assert not {SQUARE.shape, SQUARE[:, :1].shape, SQUARE[:, 1:].shape} & set(_products_in_loops(jaxpr))


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_BATCHED_MATMUL_ROWS", BATCH - 1), ("MAX_STACKED_ELEMENTS", TRIPS * BATCH * WIDTH - 1)]
)
def test_large_products_stay(monkeypatch, limit, value):
    monkeypatch.setattr(cost_model, limit, value)
    jaxpr = jax.make_jaxpr(lambda *a: _grads(lambda *b: _end(_plain, True, *b), *a))(START, SQUARE, OTHER).jaxpr
    assert SQUARE.shape in _products_in_loops(jaxpr)


@pytest.mark.full
def test_effects_stay():
    def body(state, w, v, number):
        jax.debug.callback(lambda _: None, number)
        return jnp.tanh(state @ w)

    jaxpr = jax.make_jaxpr(lambda: _end(body, True, START, SQUARE, OTHER))().jaxpr
    assert "scan" in [e.primitive.name for e in jaxpr.eqns]


@pytest.mark.full
def test_keys_are_carried():
    def step(carry, x):
        state, key = carry
        return (jnp.tanh(state @ SQUARE) + jax.random.normal(key), jax.random.fold_in(key, x)), None

    def loss(start, ours):
        args = step, (start, jax.random.key(0)), np.arange(TRIPS)
        return jnp.sum((scan_opt.scan(*args, TRIPS) if ours else lax.scan(*args)[0])[0])

    found, expected = (jax.grad(loss)(START, ours) for ours in (True, False))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
