"""TensorArray.stack() of TF1 with a data-dependent size is padded under jit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tests.passes.control_flow_v1.test_functionalize import PLAIN, _v1, converted, numbers, placeholder  # noqa: F401
from tf2jax_lite import ir
from tf2jax_lite.ir.build import constant
from tf2jax_lite.passes.optimize.idioms import tensor_array_stack
from tf2jax_lite.support.config import Config

tf1 = tf.compat.v1
FLOAT32 = np.dtype(np.float32)


@pytest.mark.parametrize(("start", "op"), [(0, "_TensorArrayStack"), (1, "TensorArrayGatherV3")])
def test_tensor_array_stack_matches_gathers_of_all_elements(start, op):
    def ref(*names):
        return tuple(map(ir.TensorRef, names))

    args = (ir.Argument("handle", ir.RESOURCE), ir.Argument("flow", FLOAT32))
    size = ir.Node("size", "TensorArraySizeV3", ref("handle", "flow"), (None, None), (), {})
    indices = ir.Node("indices", "Range", ref("start", "size", "delta"), (None,) * 3, (), {})
    inputs = ref("handle", "indices", "flow")
    gather = ir.Node("all", "TensorArrayGatherV3", inputs, (None,) * 3, (), {}, output_dtypes=(FLOAT32,))
    nodes = (constant("start", np.int32(start)), constant("delta", np.int32(1)), size, indices, gather)
    graph = tensor_array_stack(ir.Graph(ir.Function("main", args, nodes, ref("all")), {}), Config())
    found = graph.main.nodes[-1]
    assert found.op == op
    assert found.inputs == (ref("handle", "flow") if start == 0 else gather.inputs)


def decoder():
    """Decode until all sequences end, and stack the elements so far."""
    start, w = placeholder("start", shape=(2, 3)), placeholder("w", shape=(3, 3))

    def body(time, state, done, out):
        state = tf1.where(done, state, tf.tanh(tf.matmul(state, w)))
        return time + 1, state, done | (tf.reduce_sum(state, 1) > 0.4), out.write(time, state)

    out = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[2, 3])
    going = lambda time, state, done, out: tf.logical_not(tf.reduce_all(done))  # noqa: E731
    loop = tf1.while_loop(going, body, (0, start, tf.zeros([2], tf.bool), out), maximum_iterations=7)
    return [start, w], [loop[0], loop[3].stack()]


@pytest.mark.full
def test_stack_of_data_dependent_length_is_padded():
    with tf2jax_lite.override_config("dynamic_shape_bound", 8):
        graph, inputs, outputs, fn, params = converted(decoder)
    values = numbers(2, 3), numbers(3, 3)
    with tf1.Session(graph=graph, config=PLAIN) as session:
        for scale in (1.0, 0.1, -0.3):
            feeds = values[0] * np.float32(scale), values[1]
            time, expected = session.run(outputs, dict(zip(inputs, feeds, strict=True)))
            found, stacked = jax.jit(fn)(params, *feeds)[0]
            assert found == time and stacked.shape == (8, 2, 3)
            np.testing.assert_allclose(stacked[:time], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(stacked[time:], 0.0)
            np.testing.assert_allclose(fn(params, *feeds)[0][1], expected, rtol=1e-5, atol=1e-6)
