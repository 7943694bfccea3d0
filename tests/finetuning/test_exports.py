"""Exports evaluated by operation: the values and gradients of the export."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tf2jax_lite.finetuning.exports import expanded
from tf2jax_lite.jaxprs.evaluate import equations


def primitives(function, *args):
    return {eqn.primitive.name for eqn in jax.make_jaxpr(function)(*args).jaxpr.eqns}


def test_gradients_are_those_of_the_export():
    @jax.custom_jvp
    def own(x):
        return x

    own.defjvp(lambda primals, tangents: (primals[0], 3.0 * tangents[0]))

    def model(w, ids):
        return jnp.sum(jnp.sin(own(w))[ids])

    shapes = jax.ShapeDtypeStruct((4,), np.float32), jax.ShapeDtypeStruct(jax.export.symbolic_shape("b"), np.int32)
    called = jax.export.export(jax.jit(model), platforms=["cpu"])(*shapes).call
    gradient = jax.value_and_grad(called)
    args = np.arange(4, dtype=np.float32), np.array([1, 2, 2], np.int32)
    assert "sin" not in primitives(gradient, *args) and "sin" in primitives(expanded(gradient), *args)
    found, expected = jax.jit(expanded(gradient))(*args), jax.value_and_grad(model)(*args)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)  # with the factor of 3, which StableHLO has not


@pytest.mark.full
@pytest.mark.skipif(not hasattr(jax.lax, "mulhi"), reason="JAX before 0.10 has no such operation")
def test_products_of_words_have_other_operations():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2**32, (2, 50), dtype=np.uint64)
    a[:2] = b[:2] = 2**32 - 1, 0
    args = a.astype(np.uint32), b.astype(np.uint32)
    assert "mulhi" not in primitives(expanded(jax.lax.mulhi), *args)
    np.testing.assert_array_equal(expanded(jax.lax.mulhi)(*args), (a * b >> 32).astype(np.uint32))


def nested_primitives(function, *args):
    return {e.primitive.name for eqn in jax.make_jaxpr(function)(*args).jaxpr.eqns for e in equations(eqn)}


@pytest.mark.default_cases("scan")
@pytest.mark.skipif(not hasattr(jax.lax, "mulhi"), reason="JAX before 0.10 has no such operation")
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: jax.lax.scan(lambda c, x: (jax.lax.mulhi(c, x), c), a[0], b),
        lambda a, b: jax.lax.fori_loop(0, (a[1] % 7).astype(jnp.int32), lambda i, c: jax.lax.mulhi(c, a), b),
        lambda a, b: jax.lax.cond(a[0] > 3, jax.lax.mulhi, jnp.add, a, b),
    ],
    ids=["scan", "while", "cond"],
)
def test_products_of_words_in_bodies_have_other_operations(function):
    a, b = np.random.default_rng(0).integers(0, 2**32, (2, 50), dtype=np.uint32)
    assert "mulhi" in nested_primitives(function, a, b)
    assert "mulhi" not in nested_primitives(expanded(function), a, b)
    jax.tree.map(np.testing.assert_array_equal, expanded(function)(a, b), function(a, b))
