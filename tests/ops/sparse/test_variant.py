"""Loops over the rows of sparse tensors against TensorFlow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import converted
from tests.compiling import fast_options
from tf2jax_lite.ops.sparse import variant as sv

TESTED_OTHERWISE = {"DeserializeSparse", "SerializeManySparse", "SerializeSparse"}

raw = tf.raw_ops
F32 = tf.float32
I = np.int64([[0, 1], [0, 3], [2, 0], [2, 2], [2, 3]])  # noqa: E741
V = np.float32([1, -2, 3, 4, 5])
X = np.float32([[1, 0, 2], [0, 0, 0], [3, 4, 0]])
ROW = tf.SparseTensorSpec([4], F32)


def of(v, i=I, shape=(3, 4)):
    return tf.SparseTensor(i, v, shape)


def rows(function, sparse, out=F32, *, loop):
    """Map over rows by a loop, or in Python with dense, differentiable results."""
    if loop:
        return tf.map_fn(function, sparse, fn_output_signature=out)
    if isinstance(sparse, tf.Tensor):
        return tf.stack([function(r) for r in tf.unstack(sparse)])
    count, *rest = sparse.shape
    parts = [tf.sparse.slice(sparse, [i] + [0] * len(rest), [1, *rest]) for i in range(count)]
    return tf.stack([dense(function(tf.sparse.reshape(part, rest))) for part in parts])


def dense(value):
    return tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value


def total(value, axis=None):
    return tf.reduce_sum(dense(value), axis)


def squared(r):
    return tf.SparseTensor(r.indices, r.values**2, r.dense_shape)


def positive(r):
    return tf.sparse.retain(r, r.values > 0)


def nested(sparse, loop):
    return rows(lambda r: rows(total, r, loop=loop), tf.sparse.reshape(sparse, [3, 2, 2]), loop=loop)


# Functions of values, indices, and whether to use a loop.
CASES_OF_ROWS = {
    "sums": lambda v, i, loop: rows(total, of(v, i), loop=loop),
    "dense": lambda v, i, loop: rows(tf.sparse.to_dense, of(v, i), loop=loop),
    "counts": lambda v, i, loop: rows(lambda r: total(r) * tf.cast(tf.size(r.values), F32), of(v, i), loop=loop),
    "indices": lambda v, i, loop: rows(
        lambda r: tf.reduce_sum(r.values * tf.cast(r.indices[:, 0], F32)), of(v, i), loop=loop
    ),
    "sparse reductions": lambda v, i, loop: (
        rows(tf.sparse.reduce_sum, of(v, i), loop=True) if loop else total(of(v, i), 1)
    ),
    "sparse": lambda v, i, loop: dense(rows(squared, of(v, i), ROW, loop=loop)),
    "fewer": lambda v, i, loop: dense(rows(positive, of(v, i), ROW, loop=loop)),
    "of rank 3": lambda v, i, loop: rows(
        lambda r: tf.sparse.sparse_dense_matmul(r, [[1.0], [2.0]]), tf.sparse.reshape(of(v, i), [3, 2, 2]), loop=loop
    ),
    "loops in loops": lambda v, i, loop: nested(of(v, i), loop),
    "branches": lambda v, i, loop: dense(
        rows(lambda r: tf.cond(total(r) > 5, lambda: squared(r), lambda: r), of(v, i), ROW, loop=loop)
    ),
    "sums of what a loop made": lambda v, i, loop: total(rows(squared, of(v, i), ROW, loop=loop), 1),
    "twice": lambda v, i, loop: rows(total, rows(squared, of(v, i), ROW, loop=loop), loop=loop),
}


def check(function, v, *args):
    """Compare values and the first argument's gradients, with and without jit."""
    expected = tf.function(lambda *a: function(*a, loop=True), autograph=False)(v, *args)
    values = tf.constant(v)
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(function(values, *args, loop=False) ** 2)
    gradient = tape.gradient(loss, values)
    jax_fn = converted(lambda *a: function(*a, loop=True), v, *args)

    def both(v, *args):
        return jax_fn(v, *args), jax.grad(lambda v: jnp.sum(jax_fn(v, *args) ** 2))(v)

    for run in (both, jax.jit(both, compiler_options=fast_options())):
        result, grad = run(v, *args)
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        assert result.shape == tuple(expected.shape)
        np.testing.assert_allclose(grad, tf.convert_to_tensor(gradient), rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES_OF_ROWS)
def test_static_indices(name):
    check(lambda v, loop: CASES_OF_ROWS[name](v, I, loop), V)


@pytest.mark.default_cases("sums of what a loop made")
@pytest.mark.parametrize("name", CASES_OF_ROWS)
def test_traced_indices(name):
    check(CASES_OF_ROWS[name], V, I)


@pytest.mark.full
@pytest.mark.parametrize("entries", [0, 2])
def test_rows_without_entries(entries):
    check(lambda v, loop: rows(tf.sparse.to_dense, of(v, I[:entries]), loop=loop), V[:entries])


@pytest.mark.full
def test_entries_computed_in_a_loop():
    """The number of nonzero elements of a dense row is dynamic."""

    def found(x, loop):
        made = tf.map_fn(tf.sparse.from_dense, x, fn_output_signature=tf.SparseTensorSpec([3], F32)) if loop else None
        return tf.sparse.to_dense(made) * 2 if loop else x * tf.cast(x != 0, F32) * 2

    check(found, X)


@pytest.mark.full
@pytest.mark.parametrize("by_data", [False, True])
def test_many_rows(by_data):
    """More rows than a loop unrolls."""
    indices = np.int64([[i, j] for i in range(300) for j in range(i % 3)])
    v = np.linspace(-1, 1, len(indices), dtype=np.float32)

    def summed(v, i=indices, *, loop):
        sparse = of(v, i, (300, 2))
        return rows(lambda r: total(squared(r)), sparse, loop=True) if loop else total(squared(sparse), 1)

    check(summed, v, *([indices] if by_data else []))


@pytest.mark.full
def test_export_for_any_number_of_entries():
    specs = [tf.TensorSpec([None]), tf.TensorSpec([None, 2], tf.int64)]
    function = tf.function(lambda v, i: CASES_OF_ROWS["sums"](v, i, True), autograph=False)
    (n,) = jax.export.symbolic_shape("n")
    shapes = [jax.ShapeDtypeStruct((n,), np.float32), jax.ShapeDtypeStruct((n, 2), np.int32)]
    exported = jax.export.export(jax.jit(tf2jax.convert_functional(function, *specs)))(*shapes)
    for count in (5, 3):
        np.testing.assert_array_equal(exported.call(V[:count], np.int32(I[:count])), function(V[:count], I[:count]))


@pytest.mark.full
@pytest.mark.parametrize("v2", [False, True])
def test_graphs_of_tensorflow_1(v2):
    tf1 = tf.compat.v1
    (tf1.enable_control_flow_v2 if v2 else tf1.disable_control_flow_v2)()
    try:
        with tf1.Graph().as_default() as graph, tf1.Session() as session:
            v, i = tf1.placeholder(F32, [5], "v"), tf1.placeholder(tf.int64, [5, 2], "i")
            for name in ("sums", "sparse"):
                tf.identity(CASES_OF_ROWS[name](v, i, True), name)
            expected = session.run(["sums:0", "sparse:0"], {v: V, i: I})
    finally:
        tf1.enable_control_flow_v2()
    jax_fn, params = tf2jax.convert_graph_def(graph.as_graph_def(), ["v", "i"], ["sums", "sparse"])
    for run in (jax_fn, jax.jit(jax_fn)):
        for e, a in zip(expected, jax.tree.leaves(run(params, V, I)[0]), strict=True):
            np.testing.assert_array_equal(a, e)


def backwards(v, i):
    array = tf.TensorArray(tf.variant, 3, element_shape=[3]).unstack(many(v, i))
    return tf.while_loop(
        lambda k, _: k < 3, lambda k, out: (k + 1, out * 2 + tf.reduce_sum(read(array.read(2 - k))[1])), (0, 0.0)
    )[1]


def vectorized(v, i):
    return dense(tf.vectorized_map(lambda x: tf.SparseTensor(i, x, np.int64([3, 4])), tf.stack([v, 2 * v])))


@pytest.mark.full
@pytest.mark.parametrize("function", [backwards, vectorized])
def test_other_loops(function):
    jax_fn = converted(function, V, I)
    for run in (jax_fn, jax.jit(jax_fn)):
        np.testing.assert_array_equal(run(V, I), function(V, I))


@pytest.mark.full
def test_sparse_arguments_and_batches():
    spec = tf.SparseTensorSpec([3, 4], F32)
    function = tf.function(lambda s: rows(total, s, loop=True), input_signature=[spec], autograph=False)
    jax_fn = tf2jax.convert_functional(function, spec)
    np.testing.assert_array_equal(jax.jit(lambda i, v: jax_fn((i, v, np.array([3, 4]))))(I, V), [-1, 0, 12])
    by_data = converted(lambda v, i: CASES_OF_ROWS["sparse"](v, i, True), V, I)
    both = jax.jit(jax.vmap(by_data), compiler_options=fast_options())
    other = np.int64([[0, 0], [1, 1], [1, 3], [2, 1], [2, 2]])
    np.testing.assert_array_equal(both(np.stack([V, V]), np.stack([I, other])), [by_data(V, I), by_data(V, other)])


def test_rows_of_strings():
    words = np.array([b"a", b"b", b"c", b"d", b"e"], object)
    jax_fn = converted(lambda: rows(lambda r: tf.size(r.values), of(words), tf.int32, loop=True))
    np.testing.assert_array_equal(jax_fn(), [2, 0, 3])


@pytest.mark.full
def test_results_with_dynamic_number_of_entries():
    def function(v, i):
        return tf.nest.flatten(rows(positive, of(v, i), ROW, loop=True), expand_composites=True)

    with pytest.raises(ValueError, match="dynamic_shape_bound"):
        jax.jit(converted(function, V, I))(V, I)
    for e, a in zip(function(V, I), converted(function, V, I)(V, I), strict=True):
        np.testing.assert_array_equal(a, e)
    with tf2jax.override_config("dynamic_shape_bound", 7):
        indices, values, shape = jax.jit(converted(function, V, I))(V, I)
    np.testing.assert_array_equal(indices, [*I[[0, 2, 3, 4]], *[[-1, -1]] * 3])
    np.testing.assert_array_equal(values, [1, 3, 4, 5, 0, 0, 0])
    np.testing.assert_array_equal(shape, [3, 4])


def serialized(v, i=I, shape=(3, 4), out=tf.variant):
    return raw.SerializeSparse(sparse_indices=i, sparse_values=v, sparse_shape=np.int64(shape), out_type=out)


def many(v, i=I, shape=(3, 4)):
    return raw.SerializeManySparse(sparse_indices=i, sparse_values=v, sparse_shape=np.int64(shape), out_type=tf.variant)


def read(variant, dtype=F32):
    return list(raw.DeserializeSparse(serialized_sparse=variant, dtype=dtype))


def listed(v):
    """Rows of different sizes: the result has the size of the largest."""
    array = tf.TensorArray(tf.variant, 2, element_shape=[3], infer_shape=False)
    array = array.write(0, serialized(v[:1], [[1]], [3])).write(1, serialized(v[3:], [[4], [0]], [5]))
    return read(array.stack())


THERE_AND_BACK = {"one": lambda v: read(serialized(v)), "many": lambda v: read(many(v)), "listed": listed}


@pytest.mark.parametrize("name", THERE_AND_BACK)
def test_serialize_and_deserialize(name):
    function = THERE_AND_BACK[name]
    jax_fn = converted(function, V)
    for run in (jax_fn, jax.jit(jax_fn)):
        for e, a in zip(function(V), run(V), strict=True):
            np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v: read(many(v), tf.int32), "sparse tensor of float32 is read as one of int32"),
        (lambda v: read(many(v, I[::-1])), "out of order"),
        (lambda v: read(many(v[:2], [[0], [2]], [3])), "rank 1 has no rows"),
        (lambda v: read(serialized(v, shape=[2, 4])), "out of bounds"),
        (lambda v: serialized(v, out=tf.string), "not into tensors of string"),
        (
            lambda v: raw.RaggedTensorFromVariant(
                encoded_ragged=many(v)[:, 0], input_ragged_rank=0, output_ragged_rank=1, Tvalues=F32
            ),
            "variant",
        ),
        (
            lambda v: read(
                raw.RaggedTensorToVariant(rt_nested_splits=[[0, 2, 2, 5]], rt_dense_values=v, batched_input=True)
            ),
            "expected a sparse tensor as a variant, got RaggedRows",
        ),
        (
            lambda v: rows(total, tf.SparseTensor(I, v, tf.cast(v[2:4] + v[0], tf.int64)), loop=True),
            "how many there are depends on data",
        ),
    ],
    ids=["dtype", "order", "rank", "range", "strings", "no ragged tensor", "a ragged tensor", "rows"],
)
def test_invalid_input_raises(function, message):
    with pytest.raises(ValueError, match=message):
        jax.jit(converted(function, V))(V)


def test_common_spec_has_the_larger_capacity():
    a, b = sv.Sparse((I[:1], V[:1]), None, (3, 4)), sv.Sparse((I[:3], V[:3]), None, (3, 5))
    spec = jax.eval_shape(lambda: a).common_spec(jax.eval_shape(lambda: b))
    assert spec.parts[0].shape == (3, 2) and spec.sizes[0] == 3 and spec.sizes[1].shape == ()
    coerced = a.coerce(spec).resolved()
    np.testing.assert_array_equal(coerced.parts[0], I[:1])
    assert coerced.sizes[0] == 3 and int(coerced.sizes[1]) == 4
    with pytest.raises(ValueError, match="sparse tensors of different kinds"):
        a.common_spec(sv.Sparse((I[:, :1], V), None, (3,)))
