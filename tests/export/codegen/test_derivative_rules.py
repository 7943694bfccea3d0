"""Functions with derivative rules are at module level, with sizes passed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import ExportError
from tf2jax_lite.export import artifact, codegen, symbolic_dims
from tf2jax_lite.export.codegen import free_names

from .test_source import imported, nested, written

X = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
TABLE = np.random.default_rng(1).normal(size=4 * 6).astype(np.float32)  # too large for source


@tf.custom_gradient
def by_rows(x):
    """Its gradient depends on a size."""
    return x * 2.0, lambda g: g * tf.cast(tf.shape(x)[0], tf.float32)


@tf.custom_gradient
def clipped_by_rows(x):
    """Its gradient depends on a size, and is not linear."""
    return x * 2.0, lambda g: tf.minimum(g, tf.cast(tf.shape(x)[0], tf.float32) / 100.0)


@tf.custom_gradient
def transposed(x):
    """Return a result whose gradient's residuals do not determine each size."""
    flat = tf.reshape(x, [-1])
    return flat, lambda g: tf.tanh(tf.reshape(g, tf.shape(x)))


@tf.custom_gradient
def by_table(x):
    return x * 2.0, lambda g: g * TABLE.reshape(6, 4)


@tf.custom_gradient
def by_table_clipped(x):
    return tf.sin(x), lambda g: tf.minimum(g * TABLE.reshape(6, 4), 1.0)


@tf.custom_gradient
def by_table_twice(x):
    """Use a table in a rule, inside the rule of another one with its own."""
    return tf.sin(x), lambda g: by_table(g) * TABLE[::-1].reshape(6, 4)


def small(x):
    """Halve an array until it is small."""
    return tf.while_loop(lambda y: tf.reduce_sum(y * y) > 1.0, lambda y: (y / 2.0,), (x,))[0]


@tf.custom_gradient
def halved(x):
    """Its gradient reads the result of a loop with a data-dependent trip count."""
    y = small(x)
    return y, lambda g: g * y


@tf.custom_gradient
def halved_clipped(x):
    y = small(x)
    return y, lambda g: tf.minimum(g * y, 0.01)


@tf.custom_gradient
def times_clipped(x, y):
    y = tf.identity(y)  # of the branch that the gradient is taken in
    return x * y, lambda g: (tf.minimum(g * y, 0.01), None)


def halved_in_branch(x):
    y = small(x) * 2.0
    return tf.cond(x[0, 0, 0] > 0.0, lambda: times_clipped(x, y), lambda: times_clipped(x, y + 1.0))


def halved_in_loop(x):
    return tf.scan(lambda y, row: times_clipped(row, small(y)), x, x[0])


def scopes(x):
    """Functions of scopes pass values on that only inner scopes use."""
    with tf.name_scope("one"):
        y = tf.nn.softmax(tf.reshape(x, [-1, 4]) * 2.0)
    with tf.name_scope("two"):
        return by_table(tf.reshape(tf.nn.softmax(y * 3.0), [-1, 6, 4])) + 1.0


def named_as_size(x):
    """Name a node as a size is named."""
    y = tf.exp(x[:, 1:], name="d1")
    return tf.nn.softmax(tf.sin(y * y, name="b"))


def losses(x):
    flat = tf.reshape(x, [-1, 4])
    first = tf.nn.softmax_cross_entropy_with_logits(labels=tf.nn.softmax(flat), logits=flat)
    return first + tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(flat[:, 0] > 0, tf.int32), logits=flat)


ANY = [None, None, 4]
CASES = {
    "a product": (lambda x: tf.nn.softmax(tf.reshape(x, [-1, 4])), ANY),
    "a sum": (lambda x: tf.nn.softmax(tf.concat([x[:, 0], x[0]], 0)), ANY),
    "a difference": (lambda x: tf.nn.softmax(x[:, 1:]), ANY),
    "half": (lambda x: tf.nn.softmax(x[:, ::2]), ANY),
    "a maximum": (lambda x: tf.nn.softmax(tf.nn.conv1d(x, tf.ones([3, 4, 4]) * 0.1, 1, "VALID")), ANY),
    "a multiple": (lambda x: tf.nn.softmax(tf.concat([x, x], 1), axis=1), ANY),
    "losses": (losses, ANY),
    "a custom gradient": (lambda x: by_rows(tf.reshape(x, [-1, 4])), ANY),
    "backwards alone": (lambda x: clipped_by_rows(tf.reshape(x, [-1, 4])), ANY),
    "not saved": (lambda x: transposed(tf.concat([x, x[:, :1]], 1)), ANY),
    "in a loop": (lambda x: tf.scan(lambda _, row: tf.nn.softmax(row[1:]), x, x[0, 1:]), [3, None, 4]),
    "a while loop": (halved, ANY),
    "a while loop, backwards alone": (halved_clipped, ANY),
    "a while loop before a branch": (halved_in_branch, ANY),
    "a while loop in a loop": (halved_in_loop, [3, None, 4]),
    "scopes": (scopes, [None, 6, 4]),
    "named as a size": (named_as_size, ANY),
    "a constant": (by_table, [2, 6, 4]),
    "a constant, backwards alone": (by_table_clipped, [None, 6, 4]),
    "constants in rules of rules": (by_table_twice, [None, 6, 4]),
}


def made(name):
    function, shape = CASES[name]
    graph = tf.function(function, autograph=False)
    return graph, X[: shape[0]] if shape[0] else X, *tf2jax.convert(graph, tf.TensorSpec(shape))


@pytest.mark.default_cases("a custom gradient", "constants in rules of rules", "not saved")
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name, tmp_path):
    graph, x, fn, params = made(name)
    text, constants = written(fn, params)
    model = imported(text, tmp_path / "model.py").model
    full = nested(params, constants)
    with tf.GradientTape() as tape:
        variable = tf.Variable(x)
        expected = graph(variable)
        weights = np.linspace(-1, 1, np.size(expected), dtype=np.float32).reshape(expected.shape)
        total = tf.reduce_sum(expected * weights)
    gradient = tf.convert_to_tensor(tape.gradient(total, variable)).numpy()
    forwards = "custom_vjp" not in text

    @jax.jit
    def derivatives(given, x):
        loss = lambda given, x: jnp.sum(model(given, x)[0] * weights)  # noqa: E731
        by_params, by_x = jax.vmap(jax.grad(loss, (0, 1)), (None, 0))(given, jnp.stack([x, x]))
        product = jax.jvp(lambda x: loss(given, x), (x,), (jnp.cos(x),))[1] if forwards else None
        return by_params, by_x[1], product

    near = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(model(full, x)[0], expected, **near)
    by_params, by_x, product = derivatives(full, x)
    np.testing.assert_allclose(by_x, gradient, **near)
    assert by_params.keys() == full.keys()
    if forwards:
        np.testing.assert_allclose(product, np.sum(gradient * np.cos(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_second_derivatives_through_a_while_loop_raise(tmp_path):
    """The first derivative is no function of the loop's result, the second is."""
    _, x, fn, params = made("a while loop, backwards alone")
    text, constants = written(fn, params)
    model = imported(text, tmp_path / "model.py").model
    given = nested(params, constants)
    first = jax.grad(lambda x: jnp.sum(model(given, x)[0]))
    assert np.any(first(x))
    # JAX 0.9 stumbles over the absent cotangent before it refuses the loop.
    with pytest.raises((ValueError, TypeError), match=r"lax\.while_loop|NoneType"):
        jax.grad(lambda x: jnp.sum(first(x)))(x)


def test_what_sizes_tell_is_no_argument():
    """Functions of shapes alone take no arguments; equal ones are written once."""
    fn, params = tf2jax.convert(
        tf.function(
            lambda x: (
                tf.nn.log_softmax(tf.nn.log_softmax(tf.cast(x, tf.half))) + tf.nn.log_softmax(tf.cast(x, tf.half) * 2)
            )
        ),
        tf.TensorSpec(ANY),
    )
    text, _ = written(fn, params)
    assert text.count("@jax.custom_jvp\n") == 1 and "functools" not in text


@pytest.mark.full
def test_names_that_nothing_defines():
    """A mistake of the writer is an error at once, not when the source is run."""
    text = "import jax\n\ndef f(x):\n    def g(y):\n        return x + y + b\n    return g(jax.d) + len(x) + c\n"
    assert free_names.undefined(text) == ["b", "c"]
    assert free_names.undefined(text.replace("import jax", "b = c = 1")) == ["jax"]


@pytest.mark.full
def test_undefined_names_are_refused(monkeypatch):
    _, _, fn, params = made("a difference")
    monkeypatch.setattr(free_names, "undefined", lambda _: ["d7"])
    converted = artifact.converted_function(fn)
    entry = artifact.entry("model", converted, symbolic_dims.stage_symbolic(converted, None, params), "model")
    with pytest.raises(ExportError, match="d7"):
        codegen.write_module([entry], ["A model."])
