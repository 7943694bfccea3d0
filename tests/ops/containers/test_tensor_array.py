"""Resource TensorArrays, also in loops and in TensorFlow's gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite import errors

raw = tf.raw_ops
v1 = tf.compat.v1
F32 = tf.float32
X = np.arange(12, dtype=np.float32).reshape(4, 3) + 1

CASES = []
TESTED_OTHERWISE = {
    "_TensorArrayStack",
    "TensorArrayCloseV3",
    "TensorArrayConcatV3",
    "TensorArrayGatherV3",
    "TensorArrayGradV3",
    "TensorArrayGradWithShape",
    "TensorArrayReadV3",
    "TensorArrayScatterV3",
    "TensorArraySizeV3",
    "TensorArraySplitV3",
    "TensorArrayUnpack",  # tests/passes/canonicalize/test_legacy_tensor_arrays.py
    "TensorArrayV3",
    "TensorArrayWriteV3",
}


def make(size=4, shape=(3,), **attrs):
    return raw.TensorArrayV3(size=size, dtype=F32, element_shape=shape, **{"clear_after_read": False, **attrs})


def write_and_read(x):
    handle, flow = make()
    for i in (2, 0, 3):
        flow = raw.TensorArrayWriteV3(handle=handle, index=i, value=x[i] * 2.0, flow_in=flow)
    read = [raw.TensorArrayReadV3(handle=handle, index=i, flow_in=flow, dtype=F32) for i in (3, 1)]
    close = raw.TensorArrayCloseV3
    with tf.control_dependencies(read):
        close(handle=handle)
    return read


def unknown_shape(x):
    handle, flow = make(shape=None)
    flow = raw.TensorArrayWriteV3(handle=handle, index=1, value=x, flow_in=flow)
    return raw.TensorArrayReadV3(handle=handle, index=1, flow_in=flow, dtype=F32)


def dynamic_size(x):
    handle, flow = make(size=0, dynamic_size=True)
    for i in range(3):
        flow = raw.TensorArrayWriteV3(handle=handle, index=i, value=x[i], flow_in=flow)
    size = raw.TensorArraySizeV3(handle=handle, flow_in=flow)
    return raw.TensorArrayGatherV3(handle=handle, indices=tf.range(size), flow_in=flow, dtype=F32), size


def scatter_and_gather(x):
    handle, flow = make()
    flow = raw.TensorArrayScatterV3(handle=handle, indices=[3, 1, 0, 2], value=x, flow_in=flow)
    return raw.TensorArrayGatherV3(handle=handle, indices=[1, 3], flow_in=flow, dtype=F32, element_shape=[3])


def split_and_concat(x):
    handle, flow = make(size=2, shape=(None, 3))
    flow = raw.TensorArraySplitV3(handle=handle, value=x, lengths=np.array([2, 2], np.int64), flow_in=flow)
    value, lengths = raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=F32, element_shape_except0=[3])
    return value, lengths


def in_a_loop(x):
    handle, flow = make()

    def body(i, total, flow):
        total = total * 0.5 + x[i]
        return i + 1, total, raw.TensorArrayWriteV3(handle=handle, index=i, value=total, flow_in=flow)

    _, total, flow = tf.while_loop(lambda i, *_: i < 4, body, (0, tf.zeros([3]), flow))
    return raw.TensorArrayGatherV3(handle=handle, indices=tf.range(4), flow_in=flow, dtype=F32), total


def in_a_branch(x):
    handle, flow = make(size=1)

    def write(scale):
        return lambda: raw.TensorArrayWriteV3(handle=handle, index=0, value=x[0] * scale, flow_in=flow)

    flow = tf.cond(tf.reduce_sum(x) > 0.0, write(2.0), write(3.0))
    return raw.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=F32)


def gradient_in_the_graph(x):
    handle, flow = make()
    flow = raw.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2, 3], value=tf.sin(x), flow_in=flow)
    # One element is read twice: its gradients add up.
    read = [raw.TensorArrayReadV3(handle=handle, index=i, flow_in=flow, dtype=F32) for i in (1, 3, 1)]
    loss = tf.reduce_sum(read[0] * read[1]) + tf.reduce_sum(read[2] ** 3)
    return tf.gradients(loss, x)[0], loss


def gradient_of_writes(x):
    handle, flow = make(size=3)
    for i in range(3):
        flow = raw.TensorArrayWriteV3(handle=handle, index=i, value=x[i] * x[i + 1], flow_in=flow)
    gathered = raw.TensorArrayGatherV3(handle=handle, indices=[2, 0], flow_in=flow, dtype=F32)
    return tf.gradients(tf.reduce_sum(gathered**2), x)[0]


def gradient_of_split_and_concat(x):
    handle, flow = make(size=2, shape=(2, 3))
    flow = raw.TensorArraySplitV3(handle=handle, value=x, lengths=np.array([2, 2], np.int64), flow_in=flow)
    value, _ = raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=F32)
    return tf.gradients(tf.reduce_sum(value**2), x)[0]


def gradient_array(x):
    handle, flow = make(size=2)
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=x[0], flow_in=flow)
    grads, start = raw.TensorArrayGradV3(handle=handle, flow_in=flow, source="gradients")
    for i in (0, 2):
        start = raw.TensorArrayWriteV3(handle=grads, index=1, value=x[i], flow_in=start)
    return raw.TensorArrayReadV3(handle=grads, index=1, flow_in=start, dtype=F32)


def gradient_array_with_shape(x):
    handle, flow = make(size=2)
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=x[0], flow_in=flow)
    grads, start = raw.TensorArrayGradWithShape(handle=handle, flow_in=flow, shape_to_prepend=[4], source="gradients")
    start = raw.TensorArrayWriteV3(handle=grads, index=1, value=x, flow_in=start)
    return raw.TensorArrayReadV3(handle=grads, index=1, flow_in=start, dtype=F32)


FUNCTIONS = [
    write_and_read,
    unknown_shape,
    dynamic_size,
    scatter_and_gather,
    split_and_concat,
    in_a_loop,
    in_a_branch,
    gradient_array,
    gradient_array_with_shape,
]


@pytest.mark.default_cases("unknown_shape", "gradient_array_with_shape")
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_against_tensorflow(fn):
    fn = tf.function(fn, autograph=False)
    with jax.enable_x64(True):
        converted = tf2jax.convert_functional(fn, tf.TensorSpec([4, 3]))
        expected = tf.nest.flatten(fn(X))
        for run in (converted, jax.jit(converted)):
            for e, a in zip(expected, jax.tree.leaves(run(X)), strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-6)
                assert np.asarray(a).dtype == e.numpy().dtype


def loop_then_scatter(x, count, indices):
    array = tf.TensorArray(F32, size=1, dynamic_size=True, clear_after_read=False, element_shape=[3])
    _, array = tf.while_loop(
        lambda i, _: i < count, lambda i, a: (i + 1, a.write(i, x[i])), (0, array), maximum_iterations=5
    )
    array = array.scatter(indices, x[2:] * 10)
    return array.size(), array.read(0), array.read(3), array.read(indices[1])


@pytest.mark.default_cases("lists-3-known", "resources-2-data")
@pytest.mark.parametrize("known", [True, False], ids=["known", "data"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", ["lists", "resources"])
def test_array_grows_by_scattering_after_a_loop(kind, count, known):
    # The length is then dynamic twice: elements scattered past the end were dropped once.
    given = [X, np.int32(count)] + ([] if known else [np.int32([3, 4])])  # traced: within the capacity of the loop
    specs = [tf.TensorSpec(v.shape, v.dtype) for v in given]

    def fn(x, n, indices=(3, 5)):
        return loop_then_scatter(x, n, tf.constant(indices) if known else indices)

    if kind == "lists":
        compiled = tf.function(fn, autograph=False)
        expected, converted = tf.nest.flatten(compiled(*given)), tf2jax.convert_functional(compiled, *specs)
    else:
        v1.disable_control_flow_v2()
        try:
            with tf.Graph().as_default() as graph, v1.Session() as session:
                fed = [v1.placeholder(v.dtype, v.shape) for v in given]
                results = tf.nest.flatten(fn(*fed))
                expected = session.run(results, dict(zip(fed, given, strict=True)))
        finally:
            v1.enable_control_flow_v2()
        names = [[t.name for t in tensors] for tensors in (fed, results)]
        graph_function, params = tf2jax.convert_graph_def(graph.as_graph_def(), *names)
        assert not params

        def converted(*args):
            return graph_function(params, *args)[0]

    for run in (converted, jax.jit(converted)):
        for e, a in zip(expected, jax.tree.leaves(run(*given)), strict=True):
            np.testing.assert_array_equal(a, np.asarray(e))


@pytest.mark.default_cases("6")
@pytest.mark.parametrize("size", [0, 2, 4, 6])
def test_array_extended_by_a_counted_loop_has_static_length(size):
    # The array is of the resource kind in graphs with control flow v1: its stack has a shape under jit.
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, v1.Session() as session:
            x = v1.placeholder(F32, [4, 3])
            array = tf.TensorArray(F32, size=size, dynamic_size=True, element_shape=[3])
            _, array = tf.while_loop(lambda i, _: i < 4, lambda i, a: (i + 1, a.write(i, x[i] ** 2)), (0, array))
            stacked = array.stack()
            expected = session.run(stacked, {x: X})
    finally:
        v1.enable_control_flow_v2()
    converted, params = tf2jax.convert_graph_def(graph.as_graph_def(), [x.name], stacked.name)

    def fn(x):
        return converted(params, x)[0]

    np.testing.assert_array_equal(jax.jit(fn)(X), expected)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: fn(x).sum()))(X), 2 * X)


@pytest.fixture
def _control_flow_v1():
    """TensorFlow differentiates these TensorArrays in control flow v1 only."""
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


@pytest.mark.default_cases("gradient_of_split_and_concat")
@pytest.mark.usefixtures("_control_flow_v1")
@pytest.mark.parametrize(
    "fn", [gradient_in_the_graph, gradient_of_writes, gradient_of_split_and_concat], ids=lambda f: f.__name__
)
def test_gradient_in_the_graph(fn):
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(F32, [4, 3], name="x")
        results = tf.nest.map_structure(tf.identity, tf.nest.flatten(fn(x)))
        with v1.Session() as session:
            expected = session.run(results, {x: X})
    assert "TensorArrayGradV3" in {node.op for node in graph.as_graph_def().node}
    converted = tf2jax.convert_graph_def(graph.as_graph_def(), ["x:0"], [r.name for r in results])[0]
    actual = converted({}, X)[0]
    for e, a in zip(expected, jax.tree.leaves(actual), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-6)


def sums_of_rows(ragged):
    return tf.map_fn(lambda row: tf.reduce_sum(row**2) * 2.0, ragged, fn_output_signature=tf.TensorSpec([], F32))


def rows_backwards(ragged):
    spec = tf.RaggedTensorSpec([None], F32)
    return tf.map_fn(lambda row: row[::-1] * 2.0 + 1.0, ragged, fn_output_signature=spec).values


def rows_of_rows(ragged):
    outer = tf.RaggedTensor.from_row_splits(ragged, np.int64([0, 1, 4]))
    spec = tf.RaggedTensorSpec([None, None], F32, ragged_rank=1)
    return tf.map_fn(lambda rows: rows * 3.0, outer, fn_output_signature=spec).flat_values


def some_rows(ragged):
    # Filled in another order, and longer than what is gathered.
    array = tf.TensorArray(tf.variant, size=5, element_shape=[], clear_after_read=False)
    array = array.scatter([4, 2, 0, 1], ragged._to_variant(batched_input=True))
    parts = tf.RaggedTensor._from_variant(array.gather([1, 4, 2]), F32, output_ragged_rank=1)
    return parts.values


@pytest.mark.default_cases("rows_of_rows", "some_rows")
@pytest.mark.usefixtures("_control_flow_v1")
@pytest.mark.parametrize("fn", [sums_of_rows, rows_backwards, rows_of_rows, some_rows], ids=lambda f: f.__name__)
def test_arrays_of_ragged_rows(fn):
    # tf.map_fn over a ragged tensor in control flow v1 makes arrays of variants.
    flat = X.reshape(-1)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(F32, [12])
        result = fn(tf.RaggedTensor.from_row_splits(x, np.int64([0, 2, 5, 5, 12]), validate=False))
        results = [result]
        if fn is not some_rows:  # TensorFlow has no gradient
            results += v1.gradients(result**3, x)
        expected = session.run(results, {x: flat})
    for result, value in zip(results, expected, strict=True):
        converted, params = tf2jax.convert_graph_def(graph.as_graph_def(), [x.name], result.name)
        np.testing.assert_allclose(jax.jit(converted)(params, flat)[0], value, rtol=1e-6)
    converted, params = tf2jax.convert_graph_def(graph.as_graph_def(), [x.name], results[0].name)
    gradient = jax.grad(lambda x: (converted(params, x)[0] ** 3).sum())(flat)
    for value in expected[1:]:
        np.testing.assert_allclose(gradient, value, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("fn", [write_and_read, scatter_and_gather, in_a_loop, split_and_concat])
def test_jax_gradient(fn):
    """JAX's gradient equals that of tf.stack and indexing."""
    plain = {
        write_and_read: lambda x: x[3] * 2.0,
        scatter_and_gather: lambda x: jnp.stack([x[1], x[0]]),
        in_a_loop: lambda x: jnp.stack([sum(x[j] * 0.5 ** (i - j) for j in range(i + 1)) for i in range(4)]),
        split_and_concat: lambda x: x,
    }[fn]
    converted = tf2jax.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec([4, 3]))
    actual = jax.grad(lambda x: jnp.sum(jnp.sin(jax.tree.leaves(converted(x))[0])))(X)
    np.testing.assert_allclose(actual, jax.grad(lambda x: jnp.sum(jnp.sin(plain(x))))(X), rtol=1e-5)


@pytest.mark.default_cases("<lambda>-out of range1")
@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: raw.TensorArrayReadV3(handle=make()[0], index=7, flow_in=make()[1], dtype=F32), "out of range"),
        (lambda x: raw.TensorArrayGatherV3(handle=make()[0], indices=[9], flow_in=0.0, dtype=F32), "out of range"),
        (lambda x: raw.TensorArrayScatterV3(handle=make()[0], indices=[9], value=x[:1], flow_in=0.0), "out of range"),
    ],
)
def test_errors(fn, message):
    with pytest.raises(errors.LoweringError, match=message):
        tf2jax.convert_functional(tf.function(fn, autograph=False), tf.TensorSpec([4, 3]))(X)
