"""Equations by themselves: evaluated, and read, as every release of JAX writes them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.jaxprs import equations

X = np.array([0.5, 1.5, 2.5], np.float32)


@jax.custom_jvp
def _squared(x):
    return x * x


_squared.defjvp(lambda primals, tangents: (_squared(*primals), 7.0 * tangents[0]))


@jax.custom_vjp
def _halved(x):
    return x / 2


_halved.defvjp(lambda x: (_halved(x), None), lambda _, ct: (5.0 * ct,))

FUNCTIONS = {
    "one result": jnp.sin,
    "several results": lambda x: lax.sort((x, x), num_keys=1),
    "call": jax.jit(lambda x: x + 1),
    "scan": lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.float32(1), x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x),
    "branches": lambda x: lax.cond(x[0] > 1, jnp.sin, jnp.cos, x),
    "derivative forwards": _squared,
    "derivative backwards": _halved,
}


@pytest.mark.default_cases("several results")
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_an_equation_gives_what_the_function_does(fn):
    closed = jax.make_jaxpr(fn)(X)
    env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, X], strict=True))
    for eqn in closed.jaxpr.eqns:
        inputs = [v.val if hasattr(v, "val") else env[v] for v in eqn.invars]
        env.update(zip(eqn.outvars, equations.bind(eqn, *inputs), strict=True))
    for found, expected in zip([env[v] for v in closed.jaxpr.outvars], jax.tree.leaves(fn(X)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("fn", "slope"), [(_squared, 7.0), (_halved, 5.0)])
def test_derivative_rules_stay(fn, slope):
    (eqn,) = jax.make_jaxpr(fn)(X).jaxpr.eqns
    np.testing.assert_array_equal(jax.grad(lambda x: equations.bind(eqn, x)[0].sum())(X), slope)


def test_another_primitive_takes_the_parameters():
    (eqn,) = jax.make_jaxpr(lambda x: lax.reduce_max(x, (0,)))(X).jaxpr.eqns
    (other,) = jax.make_jaxpr(lambda x: lax.reduce_min(x, (0,)))(X).jaxpr.eqns
    assert equations.bind(eqn, X, primitive=other.primitive) == [0.5]


@pytest.mark.default_cases("0-0-1", "0-1-1", "1-0-0", "1-1-0", "2-3-2")
@pytest.mark.parametrize(
    ("closed_over", "carried", "sliced"), [(0, 1, 1), (1, 1, 0), (2, 3, 2), (0, 0, 1), (1, 0, 0), (0, 2, 0)]
)
def test_operands_of_a_scan(closed_over, carried, sliced):
    def run(closed, carry, xs):
        def body(carry, xs):
            total = sum([*closed, *carry, *xs], jnp.float32(0))
            return [c + total for c in carry], total

        return lax.scan(body, carry, xs, length=3)

    args = [[jnp.float32(i)] * n for i, n in enumerate((closed_over, carried))]
    (eqn,) = [e for e in jax.make_jaxpr(run)(*args, [X] * sliced).jaxpr.eqns if e.primitive.name == "scan"]
    counts = equations.scan_counts(eqn.params)
    assert counts == (closed_over, carried)
    assert len(eqn.invars) == sum(counts) + sliced


@pytest.mark.full
def test_sizes():
    (eqn,) = jax.make_jaxpr(jnp.sin)(np.ones((2, 3), np.float32)).jaxpr.eqns
    assert [equations.size(eqn.outvars[0]), equations.size(eqn.outvars[0], 5)] == [6, 30]
    (n,) = jax.export.symbolic_shape("n")
    (eqn,) = jax.make_jaxpr(jnp.sin)(jax.ShapeDtypeStruct((n,), np.float32)).jaxpr.eqns
    assert equations.size(eqn.outvars[0]) == np.inf
