"""Ops on variables: results, and the variable's value afterwards."""

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
    "ReadVariableXlaSplitND",
    "AssignVariableXlaConcatND",
}


@pytest.mark.default_cases("VariableShape")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_variable_op(name):
    v = tf.Variable(START, name="v")
    fn = tf.function(lambda: FUNCTIONS[name](v))
    with jax.enable_x64(True):
        jax_fn, params = tf2jax.convert(fn)
        graph = jax_fn.converted.program.graph
        for run in (jax_fn, jax.jit(jax_fn)):
            v.assign(START)
            expected = fn()
            actual, updated = run(params)
            for e, a in zip(tf.nest.flatten(expected), jax.tree.leaves(actual), strict=True):
                if e is not None:
                    np.testing.assert_allclose(a, e, rtol=1e-6)
                    assert np.asarray(a).dtype == e.numpy().dtype
            if "v" in params:  # TensorFlow folds reads of the shape alone
                np.testing.assert_allclose(updated["v"], v.numpy(), rtol=1e-6)
    if "v" in params and not name.endswith("read"):
        assert any(node.op == name.removesuffix("64") for _, node in graph.walk())


@pytest.mark.full
def test_original_params_are_unchanged():
    v = tf.Variable(START, name="v")
    jax_fn, params = tf2jax.convert(tf.function(lambda: v.scatter_nd_update(ND, UPDATE[:2])))
    before = np.array(params["v"])
    jax_fn(params)
    np.testing.assert_array_equal(params["v"], before)


TILED = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
GRIDS = [([1, 2, 1], [0, 1, 0]), ([2, 3, 1], [0, 1, 0]), ([2, 1, 3], []), ([1, 1, 1], [1, 0, 2])]


# Only XLA has kernels for these two, so TensorFlow has to compile.
@pytest.mark.full
@pytest.mark.parametrize(("grid", "paddings"), GRIDS, ids=str)
def test_split_nd(grid, paddings):
    v = tf.Variable(TILED, name="v")

    def tiles():
        v.read_value()
        return tf.raw_ops.ReadVariableXlaSplitND(
            resource=v.handle, T=tf.float32, N=int(np.prod(grid)), num_splits=grid, paddings=paddings
        )

    expected = tf.function(tiles, jit_compile=True)()
    jax_fn, params = tf2jax.convert(tf.function(tiles))
    actual, _ = jax.jit(jax_fn)(params)
    assert len(actual) == len(expected)
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(a, e.numpy())


@pytest.mark.full
@pytest.mark.parametrize(("grid", "paddings"), GRIDS, ids=str)
def test_concat_nd(grid, paddings):
    padded = np.array(TILED.shape) + (paddings or 0)
    shape = (np.prod(grid), *(padded // grid))
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    v = tf.Variable(TILED, name="v")

    def assign(tiles):
        tf.raw_ops.AssignVariableXlaConcatND(
            resource=v.handle, inputs=tf.unstack(tiles), num_concats=grid, paddings=paddings
        )
        return v.read_value()

    expected = tf.function(assign, jit_compile=True)(values)
    jax_fn, params = tf2jax.convert(tf.function(assign), tf.TensorSpec(shape, tf.float32))
    actual, updated = jax.jit(jax_fn)(params, values)
    for a in (actual, updated["v"], v.numpy()):
        np.testing.assert_array_equal(a, expected.numpy())


@pytest.mark.full
def test_grid_that_does_not_divide_raises():
    v = tf.Variable(TILED, name="v")
    fn = tf.function(
        lambda: (
            v.read_value(),
            tf.raw_ops.ReadVariableXlaSplitND(resource=v.handle, T=tf.float32, N=2, num_splits=[1, 2, 1]),
        )
    )
    jax_fn, params = tf2jax.convert(fn)
    with pytest.raises(tf2jax.errors.LoweringError, match="does not divide into a grid"):
        jax_fn(params)
