"""Frozen Case as a Switch with many sides: results are the function's."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import tf2jax_lite
from tf2jax_lite.passes.control_flow_v1.functionalize import OPS
from tf2jax_lite.pipeline.convert import graph_of

tf1 = tf.compat.v1
INT, FLOATS = tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)
X = np.array([0.5, -2.0], np.float32)


def sides(number, x, count=4):
    return tf.switch_case(number, [lambda k=k: tf.sin(x * (k + 1)) + k for k in range(count)])


def nested(number, x):
    inner = [lambda k=k: sides(number - 3 + k, x * k, 3) for k in range(3)]
    return tf.switch_case(number, [*inner, lambda: x])


def several(number, x):
    # Two of them on one number, and results of different shapes within.
    first, second = tf.switch_case(number, [lambda: (x, x + 1), lambda: (-x, x * 2), lambda: (x * 3, x)])
    third = tf.switch_case(number, [lambda: second[:1], lambda: first[1:], lambda: first[:1]])
    return first + third, second


def looped(number, x):
    def body(i, y):
        return i + 1, sides((number + i) % 5 - 1, y, 3) + 0.1 * x

    return tf.while_loop(lambda i, y: i < 6, body, (tf.constant(0), x), maximum_iterations=6)[1]


def within_loops(number, x):
    def branch(k):
        return lambda: tf.while_loop(lambda i, y: i < k, step, (0, x))[1]

    def step(i, y):
        return i + 1, tf.cos(y) + tf.cast(i, tf.float32)

    return tf.switch_case(number, [branch(k) for k in range(4)])


def under_a_condition(number, x):
    return tf.cond(x[0] > 0, lambda: sides(number, x), lambda: sides(number + 1, -x))


def one(number, x):
    return sides(number, x, 1)


@pytest.mark.default_cases("looped", "one")
@pytest.mark.parametrize("fn", [sides, nested, several, looped, within_loops, under_a_condition, one])
def test_frozen(fn):
    variable = tf.Variable(1.5)
    function = tf.function(lambda number, x: fn(number, x * variable), autograph=False)
    frozen = convert_variables_to_constants_v2(function.get_concrete_function(INT, FLOATS))
    graph_def = frozen.graph.as_graph_def()
    assert fn is one or "_SwitchN" in {node.op for node in graph_def.node}
    names = [t.name for t in frozen.inputs], [t.name for t in frozen.outputs]
    converted, params = tf2jax_lite.convert_graph_def(graph_def, *names)
    assert not [node.op for _, node in graph_of(converted).walk() if node.op in OPS]
    jitted = jax.jit(converted)
    gradient = jax.jit(jax.grad(lambda x, number: sum(out.sum() for out in converted(params, number, x)[0])))
    for number in np.arange(-2, 6, dtype=np.int32):
        for x in (X, -X):
            tensor = tf.constant(x)
            with tf.GradientTape() as tape:
                tape.watch(tensor)
                expected = tf.nest.flatten(function(tf.constant(number), tensor))
                total = tf.add_n([tf.reduce_sum(value) for value in expected])
            for call in (converted, jitted):
                for value, found in zip(expected, call(params, number, x)[0], strict=True):
                    np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(gradient(x, number), tape.gradient(total, tensor), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_sixty_sides_and_batches_of_numbers():
    count = 60
    function = tf.function(lambda number, x: sides(number, x, count), autograph=False)
    frozen = convert_variables_to_constants_v2(function.get_concrete_function(INT, FLOATS))
    names = [t.name for t in frozen.inputs], [t.name for t in frozen.outputs]
    converted, params = tf2jax_lite.convert_graph_def(frozen.graph.as_graph_def(), *names)
    jitted = jax.jit(jax.vmap(converted, (None, 0, None)))
    numbers = np.arange(-2, count + 3, dtype=np.int32)
    expected = np.stack([function(tf.constant(number), tf.constant(X)) for number in numbers])
    np.testing.assert_allclose(jitted(params, numbers, X)[0][0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_only_the_side_taken_acts():
    # TensorFlow freezes no function that assigns: its executor, which lowers Case so, is given such a graph.
    amounts = (1.0, 10.0, 100.0)
    with tf.Graph().as_default() as graph:
        number = tf1.placeholder(tf.int32, [], "number")
        state = tf1.get_variable("state", initializer=5.0, use_resource=True)
        attributes = {"num_outs": tf1.AttrValue(i=len(amounts)), "T": tf1.AttrValue(type=tf.int32.as_datatype_enum)}
        pivots = graph.create_op(
            "_SwitchN", [number, number], [tf.int32] * len(amounts), name="pivots", attrs=attributes
        ).outputs
        results = []
        for pivot, amount in zip(pivots, amounts, strict=True):
            with tf.control_dependencies([tf.identity(pivot)]):
                change = state.assign_add(amount, read_value=False)
            with tf.control_dependencies([change]):
                results.append(state.read_value() * 2)
        merged = tf.raw_ops.Merge(inputs=results)
        names = [merged.output.name, merged.value_index.name]
    converted, params = tf2jax_lite.convert_graph_def(graph.as_graph_def(), ["number:0"], names)
    assert set(params) == {"state"}
    plain = tf1.ConfigProto()
    plain.graph_options.rewrite_options.disable_meta_optimizer = True
    for value in (-1, 0, 1, 2, 7):
        with tf1.Session(graph=graph, config=plain) as session:
            session.run(state.initializer)
            expected = session.run([merged.output, merged.value_index], {number: value})
            left = session.run(state)
        found, after = jax.jit(converted)({"state": np.float32(5)}, np.int32(value))
        assert list(map(float, found)) == list(map(float, expected))
        assert float(after["state"]) == left
