"""Random nests of loops and branches, with lists and a variable."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tf2jax_lite as tf2jax

X = np.array([-0.7, 0.2, 0.9], np.float32)

# A program is a list of statements over the state (x: vector, n: int, a: TensorArray) and one variable.
SIMPLE = st.sampled_from(["sin", "use_n", "add_n", "push", "read_first", "read_last", "assign", "use_variable"])
PREDICATES = st.sampled_from(["n_even", "x_small", "n_and_x", "size_small"])


def _compound(statements):
    body = st.lists(statements, min_size=1, max_size=3)
    return st.one_of(
        st.tuples(st.just("cond"), PREDICATES, body, body),
        st.tuples(st.just("for"), st.integers(0, 3), body),
        st.tuples(st.just("while_n"), st.integers(1, 3), body),
        st.tuples(st.just("while_x"), st.integers(1, 4), body),
    )


STATEMENTS = st.recursive(SIMPLE, _compound, max_leaves=6)
PROGRAMS = st.lists(st.one_of(STATEMENTS, _compound(STATEMENTS)), min_size=1, max_size=3)


class Runner:
    """Builds the TensorFlow function of a program."""

    def __init__(self):
        self.variable = tf.Variable(0.5, name="v")

    def predicate(self, kind, state):
        x, n, a = state
        if kind == "n_even":
            return n % 2 == 0
        if kind == "x_small":
            return tf.reduce_sum(x) < 0.6
        if kind == "n_and_x":
            return tf.logical_and(n < 4, tf.reduce_sum(x) < 1.0)
        return a.size() < 4

    def run(self, program, state):
        for statement in program:
            state = self.step(statement, state)
        return state

    def step(self, statement, state):
        x, n, a = state
        if statement == "sin":
            return tf.sin(x) + 0.1, n, a
        if statement == "use_n":
            return x * 0.9 + 0.1 * tf.cast(n % 5, tf.float32), n, a
        if statement == "add_n":
            return x, n + 1, a
        if statement == "push":
            return x, n, a.write(a.size(), x)
        if statement == "read_first":
            return x * 0.5 + a.read(0), n, a
        if statement == "read_last":
            return x * 0.5 - a.read(a.size() - 1), n, a
        if statement == "assign":
            self.variable.assign(self.variable * 0.5 + tf.reduce_mean(x))
            return state
        if statement == "use_variable":
            return x + 0.1 * self.variable, n, a
        kind, what, *bodies = statement
        if kind == "cond":
            then, other = bodies
            return tf.cond(self.predicate(what, state), lambda: self.run(then, state), lambda: self.run(other, state))
        if kind == "for":
            out = tf.while_loop(
                lambda i, *_: i < what, lambda i, *state: (i + 1, *self.run(bodies[0], state)), (0, *state)
            )
            return out[1:]
        if kind == "while_n":  # counted by a variable that the body may change, too
            start = n

            def grow(i, x, n, a):
                x, n, a = self.run(bodies[0], (x, n, a))
                return i + 2, x, n + 1, a

            out = tf.while_loop(lambda i, x, n, a: tf.logical_and(n - start < what, i < 9), grow, (0, *state))
            return out[1:]
        return tf.while_loop(
            lambda x, n, a: tf.reduce_sum(x) < 1.5,
            lambda x, n, a: (lambda s: (s[0] + 0.2, *s[1:]))(self.run(bodies[0], (x, n, a))),
            state,
            maximum_iterations=what,
        )


def _check(program, kind):
    runner = Runner()

    @tf.function(autograph=False)
    def fn(x):
        a = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3], clear_after_read=False)
        x, n, a = runner.run(program, (x, tf.constant(0), a.write(0, x)))
        return x, n, a.size(), a.read(0), a.read(a.size() - 1)

    with tf2jax.override_config("loop_bound", kind):
        jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([3]))

    def loss(x, params):
        results, updated = jax_fn(params, x)
        return (results[0] * results[3]).sum() + results[4].sum(), (results, updated)

    (by_x, by_params), (results, updated) = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(X, params)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = fn(x)
        value = tf.reduce_sum(expected[0] * expected[3]) + tf.reduce_sum(expected[4])
    for e, a in zip(expected, results, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)
    if "v" in updated:
        np.testing.assert_allclose(updated["v"], runner.variable.numpy(), rtol=1e-4, atol=1e-5)
    wanted, by_variable = tape.gradient(value, [x, runner.variable], unconnected_gradients="zero")
    np.testing.assert_allclose(by_x, wanted, rtol=1e-3, atol=1e-4)
    if "v" in by_params:
        np.testing.assert_allclose(by_params["v"], by_variable, rtol=1e-3, atol=1e-4)


@pytest.mark.full
@settings(max_examples=4, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, st.sampled_from(["while", "scan"]))
def test_a_few(program, kind):
    _check(program, kind)


@pytest.mark.full
@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, st.sampled_from(["while", "scan"]))
def test_many(program, kind):
    _check(program, kind)
