"""Dilated convolutions written with blocks become one by rate in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def dilated(padding, rates):
    return lambda x, w: tf.nn.convolution(x, w, padding=padding, dilations=rates)


def moved(block, pads, crops, strides=1, padding: Any = "VALID", back=None, rates=1):
    """Return a convolution between blocks, as only a graph editor writes it."""

    def call(x, w):
        x = tf.space_to_batch(x, block, pads)
        x = tf.nn.conv2d(x, w, strides, padding, dilations=rates)
        return tf.batch_to_space(x, block if back is None else back, crops)

    return call


def depthwise(x, w):
    return tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME", dilations=[2, 3])


def both_read(x, w):
    blocks = tf.space_to_batch(x, [2, 3], [[0, 0], [0, 0]])
    return tf.batch_to_space(tf.nn.conv2d(blocks, w, 1, "VALID"), [2, 3], [[0, 0], [0, 0]]), blocks


def in_a_loop(x, w):
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, dilated("SAME", 2)(x, w)), [0, x])[1]


def of_rows(axis, dropped):
    def call(x, w):
        x = tf.space_to_batch(x, [3], [[2, 1]])
        x = tf.nn.conv2d(tf.expand_dims(x, axis), w, 1, "VALID")
        return tf.batch_to_space(tf.squeeze(x, dropped), [3], [[0, 1]])

    return call


NONE = [[0, 0], [0, 0]]
IMAGES, KERNEL = (2, 12, 15, 3), (3, 2, 3, 4)
# Shapes, and whether one convolution by a rate is what becomes of it.
CASES = {
    "same": (dilated("SAME", 2), (2, 7, 9, 3), KERNEL, True),
    "rates": (dilated("SAME", [4, 3]), IMAGES, KERNEL, True),
    "valid": (dilated("VALID", [1, 3]), IMAGES, KERNEL, True),
    "rows": (dilated("SAME", 3), (2, 14, 3), (4, 3, 5), True),
    "volumes": (dilated("SAME", 2), (1, 5, 6, 7, 2), (2, 3, 2, 2, 3), True),
    "each channel": (depthwise, IMAGES, (3, 2, 3, 2), True),
    "nothing padded": (moved([2, 3], NONE, NONE), IMAGES, KERNEL, True),
    "all cropped": (moved([2, 3], [[1, 3], [2, 4]], [[2, 4], [3, 5]]), IMAGES, KERNEL, True),
    "same inside": (moved([2, 3], [[3, 1], [0, 3]], [[1, 0], [0, 2]], padding="SAME"), IMAGES, KERNEL, True),
    "padded inside": (
        moved([2, 3], [[1, 1], [0, 0]], [[1, 0], [7, 2]], padding=[[0, 0], [1, 2], [0, 3], [0, 0]]),
        IMAGES,
        KERNEL,
        True,
    ),
    "rates inside": (moved([2, 1], NONE, NONE, rates=[2, 3]), IMAGES, KERNEL, True),
    "strides along another": (moved([2, 1], NONE, NONE, strides=[1, 2]), IMAGES, KERNEL, True),
    "strides": (moved([2, 3], NONE, NONE, strides=2), IMAGES, (2, 2, 3, 4), False),
    "other blocks": (moved([2, 3], NONE, NONE, back=[3, 2]), IMAGES, KERNEL, False),
    "both read": (both_read, IMAGES, KERNEL, False),
    "a loop": (in_a_loop, (2, 7, 9, 3), (3, 2, 3, 3), True),
    "rows as images": (of_rows(1, [1]), (2, 12, 3), (1, 3, 3, 4), True),
    "rows as columns": (of_rows(-2, [-2]), (2, 12, 3), (3, 1, 3, 4), True),
}


def calls(name):
    function, shape, kernel, one = CASES[name]
    x, w = normal(*shape), normal(*kernel)
    graph = tf.function(function, autograph=False)
    return graph, tf2jax.convert_functional(graph, tf.constant(x), tf.constant(w)), x, w, one


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_results(name):
    graph, converted, x, w, one = calls(name)
    expected = [v.numpy() for v in tf.nest.flatten(graph(x, w))]
    for call in (
        converted,
        jax.jit(converted),
        lambda x, w: jax.tree.map(lambda v: v[1], jax.vmap(converted, (0, None))(np.stack([-x, x]), w)),
    ):
        for actual, wanted in zip(jax.tree.leaves(call(x, w)), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    text = str(jax.make_jaxpr(converted)(x, w))
    assert ("transpose" not in text) == one
    assert text.count("conv_general_dilated[") == 1


@pytest.mark.default_cases("rows", "strides")
@pytest.mark.parametrize("name", ["same", "rows", "each channel", "all cropped", "padded inside", "strides", "a loop"])
def test_gradients(name):
    graph, converted, x, w, _ = calls(name)
    x_tf, w_tf = tf.constant(x), tf.constant(w)
    with tf.GradientTape() as tape:
        tape.watch([x_tf, w_tf])
        total: Any = tf.reduce_sum(graph(x_tf, w_tf) ** 2)
    expected = tape.gradient(total, [x_tf, w_tf])
    actual = jax.jit(jax.grad(lambda x, w: jnp.sum(converted(x, w) ** 2), (0, 1)))(x, w)
    for a, e in zip(actual, expected, strict=True):
        e = e.numpy()
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5 * np.abs(e).max())


def test_a_gradient_in_the_graph():
    x, w = normal(2, 7, 9, 3), normal(3, 2, 3, 4)

    def function(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            total = tf.reduce_sum(dilated("SAME", 2)(x, w) ** 2)
        return tape.gradient(total, [x, w])

    graph = tf.function(function, autograph=False)
    converted = tf2jax.convert_functional(graph, tf.constant(x), tf.constant(w))
    for actual, expected in zip(jax.jit(converted)(x, w), graph(x, w), strict=True):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_symbolic_sizes():
    """Padding to whole blocks and cropping cancel for all sizes."""
    form = tf.TensorSpec((None, None, None, 3))
    graph = tf.function(dilated("SAME", 3), autograph=False)
    converted = tf2jax.convert_functional(graph, form, tf.TensorSpec((3, 2, 3, 4)))
    sizes = jax.export.symbolic_shape("b, h, w")
    args = jax.ShapeDtypeStruct((*sizes, 3), np.float32), jax.ShapeDtypeStruct((3, 2, 3, 4), np.float32)
    exported = jax.export.export(jax.jit(converted))(*args)
    assert exported.out_avals[0].shape == (*sizes, 4)
    x, w = normal(2, 7, 11, 3), normal(3, 2, 3, 4)
    np.testing.assert_allclose(exported.call(x, w), graph(x, w).numpy(), rtol=1e-4, atol=1e-5)


def test_blocks_that_do_not_fit_are_refused_as_they_are():
    graph = tf.function(moved([2, 4], NONE, NONE), autograph=False, input_signature=[tf.TensorSpec(None)] * 2)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec(None), tf.TensorSpec(None))
    with pytest.raises(Tf2JaxError, match=r"SpaceToBatchND.*no multiple of the block's 4"):
        jax.jit(converted)(normal(*IMAGES), normal(*KERNEL))


@pytest.mark.full
def test_an_override_is_called():
    seen = []

    def conv2d(input, filter, *, strides, padding, explicit_paddings, data_format, dilations):
        seen.append(input.shape)
        numbers = (data_format, "HWIO", data_format)
        return jax.lax.conv_general_dilated(input, filter, strides[1:3], padding, dimension_numbers=numbers)

    graph = tf.function(dilated("SAME", 3), autograph=False)
    x, w = normal(2, 12, 15, 3), normal(3, 2, 3, 4)
    with tf2jax.override_op("Conv2D", conv2d):
        converted = tf2jax.convert_functional(graph, tf.constant(x), tf.constant(w))
        np.testing.assert_allclose(converted(x, w), graph(x, w).numpy(), rtol=1e-4, atol=1e-5)
    assert seen == [(18, 6, 6, 3)]
