"""What iterations add up of products is one product of all iterations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

from .scans import carried_shapes

RNG = np.random.default_rng(0)
A = (0.4 * RNG.normal(size=(6, 2, 5))).astype(np.float32)
B = (0.4 * RNG.normal(size=(6, 2, 7))).astype(np.float32)
W = RNG.normal(size=(5, 7)).astype(np.float32)


def loop(added, shape=(5, 7), start=None, after=lambda total, term: total + term, seen=lambda total: 0.0):
    """Carry a total, and a state that changes and may see the total."""

    def function(a, b):
        def body(i, total, h):
            return i + 1, after(total, added(a[i] * h, b[i])), tf.sin(h + a[i][0, 0]) + seen(total)

        first = tf.ones(shape) if start is None else start(a, b)
        _, total, h = tf.while_loop(lambda i, *_: i < 6, body, (0, first, 1.0))
        return total * h

    return function


def product(a, b):
    return tf.matmul(a, b, transpose_a=True)


LOOPS = {
    "rows": (loop(product), False),
    "the other way": (loop(product, after=lambda total, term: term + total), False),
    "transposed": (loop(lambda a, b: product(b, a), (7, 5)), False),
    "starts with data": (loop(product, start=lambda a, b: product(a[0], b[0])), False),
    "both are made": (loop(lambda a, b: product(tf.sin(a), tf.tanh(b))), False),
    "with itself": (loop(lambda a, b: product(b, b), (7, 7)), False),
    "one row": (loop(lambda a, b: product(a[:1], b[:1])), False),
    # A product is not larger than its factors.
    "one column": (loop(lambda a, b: product(a[:, :1], b), (1, 7)), True),
    "seen": (loop(product, seen=lambda total: total[0, 0]), True),
    "subtracted": (loop(product, after=lambda total, term: total - term), True),
    "twice": (loop(product, after=lambda total, term: total + term + term), True),
    "doubled": (loop(product, after=lambda total, term: total + total + term), True),
    "the same weights": (loop(lambda a, b: a @ W, (2, 7)), True),
    "no product": (loop(lambda a, b: a[0][:, None] * b[0]), True),
    "each by itself": (loop(lambda a, b: tf.einsum("nkl,nlm->nkm", a[..., None], b[:, None]), (2, 5, 7)), True),
}


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize(("function", "carried"), LOOPS.values(), ids=LOOPS)
def test_values_and_gradients(function, carried):
    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, *(tf.TensorSpec(v.shape, v.dtype) for v in (A, B)))
    expected = graph(A, B)
    shapes = carried_shapes(jax.make_jaxpr(converted)(A, B).jaxpr)
    assert shapes
    assert (tuple(expected.shape) in shapes) == carried
    a, b = tf.constant(A), tf.constant(B)
    with tf.GradientTape() as tape:
        tape.watch((a, b))
        loss = tf.reduce_sum(tf.sin(graph(a, b)))
    upstream = [tf.convert_to_tensor(g) for g in tape.gradient(loss, (a, b))]

    def ours(a, b):
        return jnp.sum(jnp.sin(converted(a, b)))

    close(jax.jit(converted)(A, B), expected)
    for actual, gradient in zip(jax.jit(jax.grad(ours, (0, 1)))(A, B), upstream, strict=True):
        close(actual, gradient)
    both = jax.jit(jax.vmap(converted))(np.stack([A, A[::-1]]), np.stack([B, B[::-1]]))
    close(both[1], graph(A[::-1], B[::-1]))
    tangents = np.cos(A), np.cos(B)
    derivative = sum(np.vdot(g, t) for g, t in zip(upstream, tangents, strict=True))
    np.testing.assert_allclose(jax.jvp(ours, (A, B), tangents)[1], derivative, rtol=1e-4)


@pytest.mark.full
def test_sizes_that_are_open():
    graph = tf.function(loop(product, shape=None, start=lambda a, b: product(a[0], b[0])), autograph=False)
    specs = [tf.TensorSpec((6, None, 5), tf.float32), tf.TensorSpec((6, None, 7), tf.float32)]
    converted = tf2jax.convert_functional(graph, *specs)
    (n,) = jax.export.symbolic_shape("n")
    shapes = [jax.ShapeDtypeStruct((6, n, k), np.float32) for k in (5, 7)]
    exported = jax.export.export(jax.jit(converted))(*shapes)
    close(exported.call(A, B), graph(A, B))
