"""Programs that trace once are known at conversion."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.ops import registry
from tf2jax_lite.passes.analysis.static_values import may_compare_sizes, may_have_dynamic_sizes
from tf2jax_lite.pipeline import retracing
from tf2jax_lite.pipeline.convert import graph_of

X = tf.TensorSpec([None, 4], tf.float32)
N = tf.TensorSpec([], tf.int32)
# Function and specs; whether nodes compare sizes, whether sizes may depend on data.
PROGRAMS = {
    "dense": (lambda x: tf.nn.relu(x @ tf.ones([4, 3])), (X,), False, False),
    "shapes": (lambda x: tf.reshape(x, [tf.shape(x)[0] * 2, -1]), (X,), False, False),
    "call": (lambda x: tf.function(lambda y: tf.tile(y, [2, 1]))(x), (X,), False, False),
    "comparison": (lambda x: tf.where(x > 0, x, 0.0), (X,), True, False),
    "sizes by data": (lambda x, n: tf.tile(x, [n, 1]), (X, N), False, True),
    "slice by data": (lambda x, n: x[:n], (X, N), False, True),
    "positions": (lambda x: tf.where(tf.cast(x, tf.bool)), (X,), True, True),
    "call with sizes": (lambda x, n: tf.function(lambda y: tf.reshape(x, [y, -1]))(n), (X, N), False, True),
    "branch": (lambda x, n: tf.cond(n > 0, lambda: x, lambda: -x), (X, N), True, True),
    "loop": (lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (0, x))[1], (X,), True, True),
}


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_facts(name):
    fn, specs, compares, dynamic = PROGRAMS[name]
    graph = graph_of(tf2jax_lite.convert_functional(tf.function(fn), *specs))
    ops = registry.ops_in_force()
    assert (may_compare_sizes(graph, ops), may_have_dynamic_sizes(graph, ops)) == (compares, dynamic)


@pytest.mark.full
@pytest.mark.parametrize(("name", "drivers"), [("dense", 0), ("positions", 1)])
def test_drivers_run_for_programs_with_a_reason_only(monkeypatch, name, drivers):
    fn, specs, *_ = PROGRAMS[name]
    calls = []
    inner = retracing.driver.trace_and_evaluate
    monkeypatch.setattr(retracing.driver, "trace_and_evaluate", lambda *args: (calls.append(1), inner(*args))[1])
    x = np.ones([2, 4], np.float32)
    with tf2jax_lite.override_config("dynamic_shape_bound", 8):
        converted = tf2jax_lite.convert_functional(tf.function(fn), *specs)
    assert jax.jit(converted)(x).shape[1] == tf.function(fn)(x).shape[1]
    assert len(calls) == drivers
