"""Elements of stacks that iterations read and write become xs and ys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import close

from .scans import all_equations, carried_shapes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2, 3)).astype(np.float32)
W = RNG.normal(size=(3, 3)).astype(np.float32)


def loop(write, read=lambda i: i, trips=6, size=6, value=None, start=None, again=lambda i, h, ta: ta):
    """Carry a state that reads elements, and an array that it is written to."""

    def function(x):
        ta = tf.TensorArray(tf.float32, size, clear_after_read=False)
        ta = ta.unstack(tf.fill([size, 2, 3], start)) if start is not None else ta

        def body(i, h, ta):
            h = tf.tanh(h * 0.9 + x[read(i)])
            return i + 1, h, again(i, h, ta.write(write(i), h if value is None else value(i, h, x)))

        _, h, ta = tf.while_loop(lambda i, *_: i < trips, body, (0, tf.zeros([2, 3]), ta))
        return tf.concat([ta.stack(), h[None]], 0)

    return function


def scanned(x):
    return tf.scan(lambda h, e: (h[0] * 0.5 + e, tf.sin(h[0])), x, (x[0], x[0]))[1]


def nested(x):
    def inner(row):
        return tf.scan(lambda a, b: a * 0.5 + tf.sin(b), row)

    return tf.map_fn(inner, x)


def two_reads(x):
    """Each element of a stack meets the one before it."""
    ta = tf.TensorArray(tf.float32, 5)

    def body(i, ta):
        return i + 1, ta.write(i, tf.sin(x[i]) * x[i + 1])

    return tf.while_loop(lambda i, _: i < 5, body, (0, ta))[1].stack()


def counted(x):
    """Integers are written, and values that are loop-invariant."""
    ta, tb = tf.TensorArray(tf.int32, 6), tf.TensorArray(tf.float32, 6)

    def body(i, ta, tb, h):
        return i + 1, ta.write(i, i * i), tb.write(i, x[0]), h + x[i]

    _, ta, tb, h = tf.while_loop(lambda i, *_: i < 6, body, (0, ta, tb, x[0]))
    return tf.cast(ta.stack(), tf.float32)[:, None, None] + tb.stack() * h


def last_alone(x):
    """Carry the last element by itself, unread by iterations."""
    ta = tf.TensorArray(tf.float32, 6)

    def body(i, last, ta):
        value = tf.sin(x[i]) * 2.0
        return i + 1, value, ta.write(i, value)

    _, last, ta = tf.while_loop(lambda i, *_: i < 6, body, (0, x[0], ta))
    return ta.stack() * last


# Functions, and the number of scatters that are left: buffers that the scan stacks itself need none.
FUNCTIONS = {
    "in order": (loop(lambda i: i), 0),
    "backwards": (loop(lambda i: 5 - i, lambda i: 5 - i), 0),
    "the other way": (loop(lambda i: 5 - i), 0),
    "a part": (loop(lambda i: i + 2, lambda i: i + 1, trips=3, start=7.0), 0),
    "a part backwards": (loop(lambda i: 4 - i, trips=3, start=7.0), 0),
    "the input": (loop(lambda i: i, value=lambda i, h, x: x[i]), 0),
    "a constant": (loop(lambda i: i, value=lambda i, h, x: tf.ones([2, 3])), 0),
    "a product": (loop(lambda i: i, value=lambda i, h, x: x[i] @ W), 0),
    "two scans": (scanned, 0),
    "a loop in a loop": (nested, 0),
    "two reads": (two_reads, 0),
    "counted": (counted, 0),
    "the last alone": (last_alone, 0),
    "not in order": (loop(lambda i: (i * 5 + 3) % 6), 1),
    "one place": (loop(lambda i: i // 6, size=2), 1),
    "read again": (loop(lambda i: i, value=lambda i, h, x: h, again=lambda i, h, ta: ta.write(i, h + ta.read(i))), 2),
    "before that": (
        loop(lambda i: i + 1, size=7, start=1.0, again=lambda i, h, ta: ta.write(i, h * ta.read(i))),
        2,
    ),
}


def scatters(jaxpr):
    return sum(eqn.primitive.name.startswith("scatter") for eqn in all_equations(jaxpr))


@pytest.mark.full
@pytest.mark.parametrize(("function", "left"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_values_and_gradients(function, left):
    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))
    assert scatters(jax.make_jaxpr(converted)(X).jaxpr) == left
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = graph(x)
        loss = tf.reduce_sum(tf.sin(expected))
    upstream = tf.convert_to_tensor(tape.gradient(loss, x))

    def ours(x):
        return jnp.sum(jnp.sin(converted(x)))

    close(jax.jit(converted)(X), expected)
    close(jax.jit(jax.grad(ours))(X), upstream)
    both = np.stack([X, X[::-1]])
    close(jax.jit(jax.vmap(converted))(both)[1], graph(X[::-1]))
    close(jax.jit(jax.vmap(jax.grad(ours)))(both)[0], upstream)
    tangent = np.cos(X)
    close(jax.jvp(ours, (X,), (tangent,))[1], np.vdot(upstream, tangent))
    twice = jax.jit(jax.grad(lambda x: jnp.vdot(jax.grad(ours)(x), tangent)))(X)
    close(twice, jax.jit(lambda x: jax.jvp(jax.grad(ours), (x,), (tangent,))[1])(X))


@pytest.mark.full
@pytest.mark.parametrize("name", ["backwards", "a part", "counted", "not in order"])
@pytest.mark.parametrize("checkpoint", ["body", "segments"])
def test_checkpoints(checkpoint, name):
    function, left = FUNCTIONS[name]
    graph = tf.function(function, autograph=False)
    plain = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))
    with tf2jax.override_config("loop_checkpoint", checkpoint):
        converted = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))
    assert scatters(jax.make_jaxpr(converted)(X).jaxpr) == left
    close(jax.jit(converted)(X), graph(X))
    gradients = [jax.jit(jax.grad(lambda x, f=f: jnp.sum(jnp.sin(f(x)))))(X) for f in (converted, plain)]
    close(*gradients)


@pytest.mark.full
def test_nothing_of_the_length_of_the_stack_is_carried():
    """Backwards, XLA copied the carry in each iteration."""
    graph = tf.function(FUNCTIONS["in order"][0], autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))
    for function in (converted, jax.grad(lambda x: jnp.sum(converted(x)))):
        shapes = carried_shapes(jax.make_jaxpr(function)(X).jaxpr)
        assert shapes
        assert all(np.prod(shape) <= X[0].size for shape in shapes)


@pytest.mark.full
def test_dynamic_trip_count():
    """Iterations are conditional: the stack is carried, unchanged from the end."""

    def function(x):
        ta = tf.TensorArray(tf.float32, 6)

        def body(i, h, ta):
            h = h + tf.reduce_sum(x[i] ** 2)
            return i + 1, h, ta.write(i, h)

        return tf.while_loop(lambda i, h, _: (i < 6) & (h < 9), body, (0, 0.0, ta))[2].stack()

    graph = tf.function(function, autograph=False)
    with tf2jax.override_config("loop_bound", "scan"):
        converted = tf2jax.convert_functional(graph, tf.TensorSpec(X.shape, tf.float32))
    assert 0 < np.count_nonzero(graph(X)) < 6
    close(jax.jit(converted)(X), graph(X))


@pytest.mark.full
def test_sizes_that_are_open():
    graph = tf.function(loop(lambda i: i), autograph=False)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec((None, 2, 3), tf.float32))
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 6"])
    exported = jax.export.export(jax.jit(converted))(jax.ShapeDtypeStruct((n, 2, 3), np.float32))
    longer = np.concatenate([X, X])
    close(exported.call(longer), graph(longer))
