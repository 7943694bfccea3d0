"""Top k for TPUs against the OpDefs' documentation, without kernels."""

import jax
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_library

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

CASES = []
TESTED_OTHERWISE = {"KthOrderStatistic", "MakeUnique", "TopKUnique", "TopKWithUnique"}
NAN, INF = np.nan, np.inf
X = np.float32([[3, 1, 3, -2, 0], [NAN, -0.0, 0, INF, -INF], [-NAN, NAN, 1, NAN, 1]])


def converted(op, x, **attrs):
    fn = tf.function(lambda x: op_def_library.apply_op(op, input=x, **attrs))
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(x.shape, x.dtype))
    one = jax.jit(jax_fn)(x)
    for plain, batched in zip(jax.tree.leaves(one), jax.tree.leaves(jax.vmap(jax_fn)(x[None])), strict=True):
        np.testing.assert_array_equal(plain, batched[0])
    return [np.asarray(v) for v in jax.tree.leaves(one)]


@pytest.mark.default_cases("0", "4")
@pytest.mark.parametrize("k", range(7))
def test_kth_order_statistic(k):
    (found,) = converted("KthOrderStatistic", X, k=k)
    bits = X.view(np.int32).astype(np.int64)
    order = np.where(bits < 0, -(bits + 2**31) - 1, bits)
    if 1 <= k <= 5:
        expected = np.take_along_axis(X, np.argsort(-order, axis=1, kind="stable")[:, k - 1 : k], 1)[:, 0]
    else:
        expected = np.full(3, [0x7FFFFFFF, 0xFFFFFFFF][k > 0], np.uint32).view(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.full
def test_top_k_unique():
    values, indices = converted("TopKUnique", X, k=4)
    np.testing.assert_array_equal(values, np.float32([[3, 1, 0, -2], [INF, 0, -INF, -INF], [1, -INF, -INF, -INF]]))
    np.testing.assert_array_equal(indices, [[2, 1, 4, 3], [3, 2, 4, 4], [4, -1, -1, -1]])
    assert indices.dtype == np.int32
    assert [v.shape for v in converted("TopKUnique", X, k=0)] == [(3, 0), (3, 0)]


@pytest.mark.full
@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_make_unique(width):
    x = np.round(np.random.default_rng(width).normal(size=(4, width))).astype(np.float32)
    (found,) = converted("MakeUnique", x)
    assert all(len(set(row)) == width for row in found)
    assert (np.signbit(found) == np.signbit(x)).all() and (np.abs(found) >= np.finfo(np.float32).tiny).all()
    np.testing.assert_allclose(found, x, rtol=1e-6, atol=1e-37)


def test_top_k_with_unique():
    x = np.float32([[3, 1, 3, -2, 0, 3], [1, 2, 3, 4, 5, 6]])
    values, indices = converted("TopKWithUnique", x, k=4)
    np.testing.assert_array_equal(indices, [[5, 2, 0, 1], [5, 4, 3, 2]])
    np.testing.assert_allclose(values, [[3, 3, 3, 1], [6, 5, 4, 3]], rtol=1e-6)


@pytest.mark.default_cases("TopKUnique")
@pytest.mark.parametrize("op", sorted(TESTED_OTHERWISE))
def test_inputs_are_checked(op):
    attrs = {} if op == "MakeUnique" else {"k": 1}
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="x", op="Placeholder").attr["dtype"].type = tf.float32.as_datatype_enum
    node = graph_def.node.add(name="top", op=op, input=["x"])
    for name, value in attrs.items():
        node.attr[name].i = value
    jax_fn, params = tf2jax.convert_graph_def(graph_def, ["x"], ["top"])
    with pytest.raises(Tf2JaxError, match=rf"'top' \({op}\).*matrix"):
        jax_fn(params, X[0])
    if attrs:
        node.attr["k"].i = -1
        jax_fn, params = tf2jax.convert_graph_def(graph_def, ["x"], ["top"])
        with pytest.raises(Tf2JaxError, match="negative"):
            jax_fn(params, X)
