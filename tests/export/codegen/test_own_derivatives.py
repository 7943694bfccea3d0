"""Derivatives that jax2tf wrote are rules in source only where JAX's differ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax
from jax.experimental import jax2tf

import tf2jax_lite as tf2jax

from .test_source import imported, nested, written

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@jax.custom_vjp
def doubled(x):
    return jnp.sin(x)


doubled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (2 * ct * jnp.cos(x),))

# A function, and whether its derivative is that of its values.
FUNCTIONS = {
    "layer": (lambda x: jax.nn.softmax(jnp.tanh(x @ x.T)), True),
    "of positive numbers": (lambda x: jnp.log(jnp.abs(x)) * lax.rsqrt(x), True),
    "custom_vjp": (lambda x: doubled(x) + x, False),
    "stop_gradient": (lambda x: x * lax.stop_gradient(x), False),
}


@pytest.mark.default_cases("layer", "stop_gradient")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_source_has_a_rule_where_derivatives_differ(name, tmp_path):
    function, same = FUNCTIONS[name]
    made = tf.function(jax2tf.convert(function, polymorphic_shapes=["b, ..."]), autograph=False)
    fn, params = tf2jax.convert(made, tf.TensorSpec([None, 4]))
    text, constants = written(fn, params)
    assert ("defvjp" in text or "defjvp" in text) != same, text
    model = imported(text, tmp_path / "model.py").model
    given = nested(params, constants)
    expected, found = (
        jax.value_and_grad(lambda x, call=call: jnp.sum(jnp.sin(call(x))))(jnp.abs(X))
        for call in (function, lambda x: model(given, x)[0])
    )
    jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6), expected, found)
