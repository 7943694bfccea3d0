"""Whether predictions are probabilities, by the ops that compute them."""

import jax
import jax.export
import jax.numpy as jnp
import pytest

from tf2jax_lite.export.predictions import prediction_kinds

X = jnp.ones((2, 3))
W = jnp.ones((3, 3))


def shifted_scan(x):
    return jax.lax.scan(lambda carry, row: (carry, jax.nn.softmax(row)), 0.0, x)[1]


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (jax.nn.softmax, "probabilities"),
        (lambda x: jnp.exp(jax.nn.log_softmax(x @ W)), "probabilities"),
        (lambda x: jax.nn.softmax(x.astype(jnp.bfloat16)).astype(jnp.float32)[:, :1], "probabilities"),
        (jax.jit(jax.checkpoint(jax.nn.sigmoid)), "probabilities"),
        (lambda x: 0.5 * (1 + jnp.tanh(x / 2)), "probabilities"),
        (lambda x: jax.lax.cond(x[0, 0] > 0, jax.nn.softmax, jax.nn.sigmoid, x), "probabilities"),
        (lambda x: x @ W + 1, "logits"),
        (jax.nn.log_softmax, "logits"),
        (lambda x: jax.nn.softmax(x) @ (W - 2), "logits"),
        (jnp.tanh, "unknown"),
        (lambda x: jnp.square(x) / jnp.sum(jnp.square(x), -1, keepdims=True), "unknown"),
        (lambda x: jax.nn.sigmoid(x[:, 1:]) - jax.nn.sigmoid(x[:, :-1]), "unknown"),
        (lambda x: jax.nn.softmax(x) @ jnp.full((3, 3), 1 / 3), "unknown"),
        (lambda x: x + jax.nn.relu(x @ W) @ W, "logits"),
        (jax.nn.relu, "unknown"),
        (lambda x: jax.nn.softmax(x, where=x > 0), "unknown"),
        (shifted_scan, "unknown"),
        (lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x), "unknown"),
    ],
)
def test_prediction_kinds_last_operations_tell(function, kind):
    assert prediction_kinds(jax.make_jaxpr(function)(X)) == [kind]


def test_prediction_kinds_keys_and_integers_among_operands():
    def draw(x):
        key = jax.random.key(0)
        return jax.nn.softmax(x + jax.random.normal(key, x.shape)), jnp.argmax(x, -1), key

    assert prediction_kinds(jax.make_jaxpr(draw)(X))[0] == "probabilities"


@pytest.mark.full
def test_prediction_kinds_symbolic_counts_are_bounds():
    """A fraction of a symbolic dimension is no traced value where nothing is traced."""
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.float32)
    ids = jax.ShapeDtypeStruct(rows.shape, jnp.int32)
    traced = jax.make_jaxpr(lambda x, i: jnp.zeros(3).at[i].add(jax.nn.sigmoid(x) * 0.5))(rows, ids)
    assert prediction_kinds(traced) == ["unknown"]
