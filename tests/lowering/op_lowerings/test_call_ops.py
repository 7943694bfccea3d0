"""Calls of functions that return nothing and assign variables, anywhere."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

X = [np.float32([1, 2]), np.float32([0, -3])]


class Counted(tf.Module):
    """Two variables, and functions that assign them."""

    def __init__(self):
        super().__init__()
        self.total = tf.Variable([1.0, 2.0], name="total")
        self.count = tf.Variable(0, name="count")

    @tf.function
    def add(self, x):
        self.total.assign_add(x)

    @tf.function(experimental_attributes={"_noinline": True})
    def step(self):
        self.count.assign_add(1)

    @tf.function
    def both(self, x):
        self.add(x)
        self.step()


def in_a_row(m, x):
    m.add(x)
    m.step()
    m.both(x)
    return m.total * 2.0


def nothing_returned(m, x):
    m.both(x)
    m.both(x * 2.0)


def in_branches(m, x):
    if tf.reduce_sum(x) > 0.0:
        m.add(x)
    else:
        m.step()
    return x


def in_branches_of_nothing(m, x):
    tf.switch_case(tf.cast(x[0], tf.int32), [lambda: m.add(x), m.step])


def in_a_loop(m, x):
    for _ in tf.range(3):
        m.both(x)
    return m.count


def beside_a_gradient(m, x):
    with tf.GradientTape() as tape:
        m.step()
        y = tf.reduce_sum(m.total * x * m.total)
    return tape.gradient(y, m.total)


@pytest.mark.full
@pytest.mark.parametrize("x", X, ids=str)
@pytest.mark.parametrize(
    "fn",
    [in_a_row, nothing_returned, in_branches, in_branches_of_nothing, in_a_loop, beside_a_gradient],
    ids=lambda f: f.__name__,
)
def test_functions_that_return_nothing(fn, x):
    module = Counted()
    graph_function = tf.function(lambda x: fn(module, x))
    jax_fn, params = tf2jax.convert(graph_function, x)
    params = {name: np.array(value) for name, value in params.items()}
    result, updated = jax.jit(jax_fn)(params, x)
    expected = graph_function(x)
    assert (result is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(result, expected)
    for variable in (module.total, module.count):
        name = variable.name.removesuffix(":0")
        np.testing.assert_allclose(updated.get(name, params.get(name, variable)), variable)


@pytest.mark.full
def test_artifacts_assign_variables_of_such_functions(tmp_path):
    module = Counted()
    jax_fn, params = tf2jax.convert(tf.function(lambda x: in_a_row(module, x)), X[0])
    tf2jax.export_functions({"run": (jax_fn, params)}, tmp_path / "out", platforms=("cpu",))
    loaded, weights = tf2jax.load(tmp_path / "out")
    result, updated = loaded(weights, X[0])
    np.testing.assert_allclose(result, [6, 12])
    assert updated["count"] == 2
