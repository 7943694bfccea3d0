"""Nodes that compute the same, joined where sizes depend on it."""

import numpy as np
import pytest
import tensorflow as tf

from tf2jax_lite.frontend.concrete import concrete_function
from tf2jax_lite.passes.optimize import cse
from tf2jax_lite.support.config import Config

X = np.array([1.0, -2.0, 3.0], np.float32)


def counted(function, op):
    traced = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec(X.shape, X.dtype))
    graph = cse.run(concrete_function.load_concrete(traced).graph, Config())
    return sum(node.op == op for node in graph.main.nodes)


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "op", "count"),
    [
        (lambda x: tf.boolean_mask(x, x > 0) - tf.boolean_mask(x * 2, x > 0), "Where", 1),
        (lambda x: tf.boolean_mask(x, x > 0) - tf.boolean_mask(x * 2, x > 1), "Where", 2),
        (lambda x: tf.boolean_mask(x, x > 0)[:1] - tf.boolean_mask(x * 2, x >= 0)[:1], "Where", 2),
        # What draws, or has attributes of its own, stays.
        (lambda x: tf.size(tf.where(tf.random.uniform([3]) > tf.random.uniform([3]))), "RandomUniform", 2),
        (lambda x: tf.size(tf.where(tf.cumsum(x) > tf.cumsum(x, reverse=True))), "Cumsum", 2),
        # No size depends on values here.
        (lambda x: tf.exp(x) + tf.exp(x), "Exp", 2),
    ],
)
def test_joined(function, op, count):
    assert counted(function, op) == count
