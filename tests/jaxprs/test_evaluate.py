"""Evaluation of jaxprs with a rule per equation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.jaxprs.compat import Var, bind
from tf2jax_lite.jaxprs.evaluate import evaluate, evaluate_equations, read

X = np.array([0.5, 1.5], np.float32)
TABLE = np.array([1, 2], np.float32)


def _fn(x):
    return jnp.sin(x) * 2 + TABLE, x


@pytest.mark.full
def test_without_a_rule_gives_what_the_function_gives():
    for found, expected in zip(evaluate(jax.make_jaxpr(_fn)(X), [X]), _fn(X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_rule_replaces_some_equations():
    def rule(eqn, operands):
        return [lax.cos(*operands)] if eqn.primitive is lax.sin_p else None

    found, _ = evaluate(jax.make_jaxpr(_fn)(X), [X], rule)
    np.testing.assert_array_equal(found, jnp.cos(X) * 2 + TABLE)


def test_rule_interprets_other_values_than_arrays():
    """Rules compute sets of argument names that each result depends on."""
    closed = jax.make_jaxpr(lambda x, y: (x + TABLE, x * y, 3.0))(X, X)

    def rule(eqn, operands):
        return [frozenset().union(*operands)] * len(eqn.outvars)

    args, none = [frozenset("x"), frozenset("y")], frozenset()
    found = evaluate(closed, args, rule, consts=[none] * len(closed.consts), literal=lambda _: none)
    assert found == [{"x"}, {"x", "y"}, set()]


def test_rule_enters_calls():
    names = []

    def rule(eqn, operands):
        names.append(eqn.primitive.name)
        return evaluate(eqn.params["jaxpr"], operands, rule) if eqn.primitive.name == "jit" else None

    evaluate(jax.make_jaxpr(lambda x: jax.jit(jnp.sin)(x) + 1)(X), [X], rule)
    assert names == ["jit", "sin", "add"]


@pytest.mark.full
def test_equations_extend_an_environment():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(X).jaxpr
    env = {jaxpr.invars[0]: X}
    evaluate_equations(jaxpr.eqns[:1], env)
    assert set(env) == {jaxpr.invars[0], *jaxpr.eqns[0].outvars}
    evaluate_equations(jaxpr.eqns[1:], env, lambda eqn, operands: bind(eqn, *operands))
    np.testing.assert_array_equal(read(jaxpr.outvars, env), [np.sin(X) + 1])
    assert all(isinstance(v, Var) for v in env)
