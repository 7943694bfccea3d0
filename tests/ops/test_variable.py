"""Ops on variables against TensorFlow: results, and the variable's value afterwards."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

START = np.arange(12, dtype=np.float32).reshape(4, 3)
ROWS, UPDATE = np.array([2, 0, 2], np.int32), np.arange(9, dtype=np.float32).reshape(3, 3) + 1.5
ND = np.array([[1], [3]], np.int32)

FUNCTIONS = {
    "ReadVariableOp": lambda v: v.read_value() * 2.0,
    "AssignVariableOp": lambda v: v.assign(v * 3.0 + 1.0),
    "AssignAddVariableOp": lambda v: v.assign_add(tf.ones_like(v)),
    "AssignSubVariableOp": lambda v: v.assign_sub(tf.ones_like(v) * 2.0),
    "VariableShape": lambda v: tf.raw_ops.VariableShape(input=v.handle),
    "VariableShape64": lambda v: tf.raw_ops.VariableShape(input=v.handle, out_type=tf.int64),
    "VarIsInitializedOp": lambda v: tf.raw_ops.VarIsInitializedOp(resource=v.handle),
    "ResourceGather": lambda v: tf.gather(v, ROWS),
    "ResourceGatherNd": lambda v: v.gather_nd(ND),
    "ResourceScatterAdd": lambda v: v.scatter_add(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterSub": lambda v: v.scatter_sub(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterMul": lambda v: v.scatter_mul(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterDiv": lambda v: v.scatter_div(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterMax": lambda v: v.scatter_max(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterMin": lambda v: v.scatter_min(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterUpdate": lambda v: v.scatter_update(tf.IndexedSlices(UPDATE, ROWS)),
    "ResourceScatterNdAdd": lambda v: v.scatter_nd_add(ND, UPDATE[:2]),
    "ResourceScatterNdSub": lambda v: v.scatter_nd_sub(ND, UPDATE[:2]),
    "ResourceScatterNdUpdate": lambda v: v.scatter_nd_update(ND, UPDATE[:2]),
    "ResourceScatterNdMax": lambda v: v.scatter_nd_max(ND, UPDATE[:2]),
    "ResourceScatterNdMin": lambda v: v.scatter_nd_min(ND, UPDATE[:2]),
    "read, write, read": lambda v: (v + 0.0, v.assign_add(v), v * 2.0)[::2],
}
CASES = []
TESTED_OTHERWISE = {
    "ReadVariableOp",
    "AssignVariableOp",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "VariableShape",
    "VarIsInitializedOp",
    "VarHandleOp",
    "_XlaAotOnlyVarHandleOp",
    "DestroyResourceOp",
    "DisableCopyOnRead",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_variable_op(name):
    v = tf.Variable(START, name="v")
    fn = tf.function(lambda: FUNCTIONS[name](v))
    with jax.enable_x64(True):
        jax_fn, params = tf2jax.convert(fn)
        graph = jax_fn.fn.converted.program.graph
        for run in (jax_fn, jax.jit(jax_fn)):
            v.assign(START)
            expected = fn()
            actual, updated = run(params)
            for e, a in zip(tf.nest.flatten(expected), jax.tree.leaves(actual), strict=True):
                if e is not None:
                    np.testing.assert_allclose(a, e, rtol=1e-6)
                    assert np.asarray(a).dtype == e.numpy().dtype
            if "v" in params:  # TensorFlow folds what only asks for the shape
                np.testing.assert_allclose(updated["v"], v.numpy(), rtol=1e-6)
    if "v" in params and not name.endswith("read"):
        assert any(node.op == name for _, node in graph.walk())


def test_the_original_params_are_untouched():
    v = tf.Variable(START, name="v")
    jax_fn, params = tf2jax.convert(tf.function(lambda: v.scatter_nd_update(ND, UPDATE[:2])))
    before = np.array(params["v"])
    jax_fn(params)
    np.testing.assert_array_equal(params["v"], before)
