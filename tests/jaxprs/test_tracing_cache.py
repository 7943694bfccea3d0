"""Inlined ops: the plain function's jaxpr and values, traced once."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.jaxprs.tracing_cache import inlined, shared
from tf2jax_lite.ops import known_ops

X = np.linspace(-8, 8, 24, dtype=np.float32).reshape(4, 6)
# op, attributes: all are elementwise or over the last axis, so any matrix will do.
OPS = [
    ("Relu", {}),
    ("Relu6", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {}),
    ("Selu", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("Softmax", {}),
    ("LogSoftmax", {}),
    ("Sqrt", {}),
    ("Rsqrt", {}),
    ("Reciprocal", {}),
]


def _ours(name):
    return known_ops()[name].fn


def _plain(name):
    return inspect.unwrap(_ours(name))


@pytest.mark.parametrize(("name", "attrs"), OPS, ids=[name for name, _ in OPS])
def test_the_jaxpr_is_that_of_the_plain_function(name, attrs):
    """So exported sources, name scopes in profiles and what XLA gets stay as they are."""

    def scoped(fn):
        def call(x):
            with jax.named_scope("node"):
                return fn(x, **attrs)

        return jax.make_jaxpr(call)(X)

    ours, plain = scoped(_ours(name)), scoped(_plain(name))
    assert str(ours) == str(plain)
    assert {str(e.source_info.name_stack) for e in ours.eqns} == {"node"}


@pytest.mark.full
@pytest.mark.parametrize(("name", "attrs"), OPS, ids=[name for name, _ in OPS])
def test_derivatives_of_both_orders_are_those_of_the_plain_function(name, attrs):
    def derivatives(fn):
        first = jax.grad(lambda x: jnp.sum(jnp.sin(fn(x, **attrs))))
        return jax.jit(lambda x: (first(x), jax.jvp(first, (x,), (x,))[1]))(X), first(X)

    ours, plain = (jax.tree.leaves(derivatives(fn)) for fn in (_ours(name), _plain(name)))
    for a, b in zip(ours, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_it_is_traced_once_for_each_shape_dtype_and_attribute():
    traced = []

    @inlined
    def fn(x, *, scale=1.0):
        traced.append((x.shape, scale))
        return x * scale

    def call(x, y):
        return fn(x), fn(x), fn(x, scale=2.0), fn(y), fn(y, scale=2.0)

    jax.make_jaxpr(call)(X, X)
    assert traced == [((4, 6), 1.0), ((4, 6), 2.0)]
    jax.make_jaxpr(call)(X, X[0])
    assert traced[2:] == [((6,), 1.0), ((6,), 2.0)]


@pytest.mark.full
def test_outside_of_a_trace_it_is_the_function_itself():
    """It runs by operation: one call is not worth a compilation."""
    seen = []

    @inlined
    def fn(x):
        seen.append(isinstance(x, jax.core.Tracer))
        return x + 1

    fn(X)
    fn(X)
    assert seen == [False, False]


@pytest.mark.full
def test_what_is_shared_is_one_equation_and_in_a_program_once():
    @shared
    def fn(x, *, scale=1.0):
        return jnp.sin(x) * scale

    def call(x):
        return fn(fn(fn(x)), scale=2.0)

    equations = jax.make_jaxpr(call)(X).eqns
    assert [e.primitive.name for e in equations] == ["jit"] * 3
    assert equations[0].params["jaxpr"] is equations[1].params["jaxpr"]
    assert jax.jit(call).lower(X).as_text().count("stablehlo.sine") == 2
    np.testing.assert_allclose(jax.jit(call)(X), np.sin(np.sin(np.sin(X))) * 2, rtol=1e-6)
    np.testing.assert_allclose(call(X), np.sin(np.sin(np.sin(X))) * 2, rtol=1e-6)
