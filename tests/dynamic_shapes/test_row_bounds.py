"""Sparse and ragged arguments under ``jit`` with known row counts.

The lengths of rows are data-dependent.
"""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite import errors

RANDOM = np.random.default_rng(0)
TABLE = tf.Variable(RANDOM.normal(size=(11, 4)), dtype=tf.float32)
WEIGHTS = tf.constant(RANDOM.normal(size=(4, 3)), tf.float32)
SPARSE = {
    "some": tf.SparseTensor([[0, 0], [0, 1], [2, 0], [3, 4]], [3.0, -4.0, 9.0, 1.0], [4, 5]),
    "all": tf.SparseTensor([[0, 2], [1, 0], [2, 1], [3, 0]], [3.0, 4.0, 10.0, 1.0], [4, 3]),
    "one row": tf.SparseTensor([[1, 0], [1, 1], [1, 2], [1, 3]], [0.0, -1.0, 2.0, 2.0], [4, 4]),
}
RAGGED = {
    "some": tf.ragged.constant([[3, 4], [], [9], [1, 2, 5]], dtype=tf.int32),
    "one row": tf.ragged.constant([[], [], [1, 2, 3, 4, 5, 6], []], dtype=tf.int32),
    "one each": tf.ragged.constant([[3], [1], [9], [10]], dtype=tf.int32),
    "none": tf.RaggedTensor.from_row_splits(np.zeros(0, np.int32), np.zeros(5, np.int64)),
}


def ids(x):
    return tf.sparse.map_values(lambda values: tf.cast(tf.abs(values), tf.int64), x)


def looked_up(x, **options):
    return tf.nn.safe_embedding_lookup_sparse(TABLE, ids(x), **options)


OF_SPARSE = {
    "embedding": lambda x: looked_up(x, combiner="mean") @ WEIGHTS,
    "embedding, by roots": lambda x: looked_up(x, combiner="sqrtn"),
    "embedding, weighted": lambda x: looked_up(x, sparse_weights=tf.sparse.map_values(lambda v: tf.abs(v) + 0.1, x)),
    "embedding, default": lambda x: looked_up(x, default_id=2),
    "classes": lambda x: tf.argmax(looked_up(x) @ WEIGHTS, 1),
    "signs": lambda x: looked_up(x) > 0,
    "product": lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.reset_shape(x, [4, 6]), tf.ones([6, 2])),
    "sums": lambda x: tf.sparse.reduce_sum(x, 1),
    "maxima": lambda x: tf.sparse.reduce_max(x, 1),
    "softmax": lambda x: tf.sparse.softmax(x).values,
    "filled": lambda x: tf.sparse.fill_empty_rows(x, 7.0)[1],
    "counts": lambda x: tf.math.bincount(tf.cast(ids(x), tf.int32), minlength=11, maxlength=11, axis=-1),
    "number of rows": lambda x: tf.zeros([tf.shape(x)[0], 3]),
    "transposed": lambda x: tf.sparse.reduce_sum(tf.sparse.transpose(x), 0),
    "side by side": lambda x: tf.sparse.reduce_sum(tf.sparse.concat(1, [x, x * 2.0]), 1),
    "expanded": lambda x: tf.sparse.reduce_sum(tf.sparse.expand_dims(x, 0), 2),
    "retained": lambda x: tf.sparse.reduce_sum(tf.sparse.retain(x, x.values > 2), 1),
    "slice": lambda x: tf.sparse.reduce_sum(tf.sparse.slice(x, [0, 1], [4, 9]), 1),
    "reduced": lambda x: tf.sparse.reduce_sum(tf.sparse.reduce_sum(x, 1, keepdims=True, output_is_sparse=True), 1),
    "times dense": lambda x: tf.sparse.reduce_sum(x * tf.range(1.0, 5.0)[:, None], 1),
}


def lengths(x):
    return tf.cast(tf.sequence_mask(x.row_lengths(), tf.shape(x.to_tensor())[1]), tf.float32)[..., None]


def embedded(x):
    return tf.nn.embedding_lookup(TABLE, x.to_tensor())


def attended(x):
    rows = embedded(x)
    return tf.reduce_sum(tf.nn.softmax(tf.einsum("btd,bsd->bts", rows, rows)) @ rows, 1)


def recurrent(x):
    rows, state = embedded(x), tf.zeros([4, 3])
    return tf.while_loop(
        lambda i, _: i < tf.shape(rows)[1], lambda i, s: (i + 1, tf.tanh(s + rows[:, i] @ WEIGHTS)), (0, state)
    )[1]


OF_RAGGED = {
    "masked mean": lambda x: tf.math.divide_no_nan(
        tf.reduce_sum(embedded(x) * lengths(x), 1), tf.reduce_sum(lengths(x))
    ),
    "maximum": lambda x: tf.reduce_max(tf.concat([tf.zeros([4, 1, 4]), embedded(x)], 1), 1) @ WEIGHTS,
    "attention": attended,
    "recurrent": recurrent,
    "convolution": lambda x: tf.reduce_sum(tf.nn.conv1d(embedded(x), tf.ones([3, 4, 2]), 1, "SAME"), 1),
    "lengths": lambda x: tf.reduce_sum(tf.cast(x.to_tensor(-1) >= 0, tf.int32), 1),
    "longest": lambda x: tf.shape(x.to_tensor())[1],
    "of floats": lambda x: tf.reduce_sum(tf.sin(tf.nn.embedding_lookup(TABLE, x).to_tensor(1.0)), 1),
    "in the shape": lambda x: tf.reduce_sum(x.to_tensor(shape=[4, None]), 1),
}


def weights(x):
    """Ragged numbers, one for each id."""
    return x.with_flat_values(tf.gather(TABLE[:, 0] * 2, x.flat_values))


def dense(x, *inner):
    return x.to_tensor(0.5, shape=[4, 8, *inner])


OF_RAGGED |= {
    "added": lambda x: dense(weights(x) + weights(x) * 2),
    "added to rows": lambda x: dense(weights(x) * tf.range(1.0, 5.0)[:, None]),
    "ragged softmax": lambda x: dense(tf.nn.softmax(weights(x))),
    "with a row before": lambda x: tf.reduce_mean(tf.concat([tf.ones([4, 1]), weights(x)], 1), 1),
    "twice": lambda x: tf.reduce_sum(tf.cumsum(tf.concat([weights(x), tf.reverse(weights(x), [1])], 1).values) / 20),
    "stacked": lambda x: tf.reduce_sum(tf.stack([weights(x), weights(x) ** 2], 1), 2).to_tensor(shape=[4, 2]),
    "rows gathered": lambda x: dense(tf.gather(weights(x), [2, 0, 3, 3])),
    "rows gathered by data": lambda x: dense(tf.gather(weights(x), tf.cast(x.row_lengths() % 4, tf.int32))),
    "rows left out": lambda x: tf.reduce_sum(tf.ragged.boolean_mask(weights(x), [True, False, True, True])),
    "elements left out": lambda x: tf.reduce_sum(tf.ragged.boolean_mask(weights(x), weights(x) > 0), 1),
    "first two": lambda x: tf.reduce_sum(weights(x)[:, :2], 1),
    "all but the last": lambda x: tf.reduce_sum(weights(x)[:, :-1] ** 2, 1),
    "the last": lambda x: tf.reduce_sum(weights(x)[:, -1:], 1),
    "every second": lambda x: dense(weights(x)[:, ::2]),
    "backwards": lambda x: dense(tf.reverse(weights(x), [1])),
    "sum of rows": lambda x: tf.reduce_sum(tf.square(tf.reduce_sum(weights(x), 0))),
    "numbered": lambda x: tf.reduce_sum(tf.ragged.range(tf.cast(x.row_lengths(), tf.int32)), 1),
    "tiled": lambda x: tf.reduce_sum(tf.tile(weights(x), [1, 2]), 1),
    "spread": lambda x: tf.reduce_sum(tf.gather(tf.reduce_sum(weights(x), 1), x.value_rowids()) * weights(x).values),
    "attention in rows": lambda x: tf.reduce_sum(tf.nn.softmax(weights(x))[..., None] * embedded_rows(x), 1),
    "in groups": lambda x: tf.reduce_sum(tf.RaggedTensor.from_row_lengths(weights(x), [1, 3]), [1, 2]),
    "as a sparse tensor": lambda x: tf.sparse.reduce_sum(weights(x).to_sparse(), 1),
}


def embedded_rows(x):
    return tf.nn.embedding_lookup(TABLE, x)


CASES = [("sparse", name) for name in OF_SPARSE] + [("ragged", name) for name in OF_RAGGED]


def components(x):
    return tuple(part.numpy() for part in tf.nest.flatten(x, expand_composites=True))


@pytest.mark.default_cases("sparse-transposed")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_values_and_gradients(kind, name):
    if kind == "sparse":
        function, inputs, spec = OF_SPARSE[name], SPARSE, tf.SparseTensorSpec([4, None], tf.float32)
    else:
        function, inputs, spec = OF_RAGGED[name], RAGGED, tf.RaggedTensorSpec([4, None], tf.int32)
    graph = tf.function(function, input_signature=[spec], autograph=False)
    with jax.enable_x64(True):
        own, params = tf2jax.convert(graph, spec)
        run = jax.jit(lambda params, x: own(params, x)[0])
        gradient_of = jax.jit(jax.grad(lambda params, x: jnp.sum(jnp.sin(own(params, x)[0]))))
        for case, x in inputs.items():
            with tf.GradientTape() as tape:
                expected = graph(x)
                loss = tf.reduce_sum(tf.sin(tf.cast(expected, tf.float32)))
            found = run(params, components(x))
            assert found.dtype == expected.dtype.as_numpy_dtype
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5, err_msg=case)
            gradient = tape.gradient(loss, TABLE) if expected.dtype.is_floating else None
            if gradient is not None:
                (actual,) = jax.tree.leaves(gradient_of(params, components(x)))
                np.testing.assert_allclose(actual, tf.convert_to_tensor(gradient), rtol=2e-5, atol=1e-5, err_msg=case)


@pytest.mark.full
def test_a_number_of_rows_that_meets_labels():
    """The row count is known from labels alone; if it differs, the loss is NaN."""

    @tf.function(input_signature=[tf.SparseTensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32)])
    def loss(x, labels):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, looked_up(x) @ WEIGHTS))

    own, params = tf2jax.convert(loss, tf.SparseTensorSpec([None, None], tf.float32), tf.TensorSpec([None], tf.int32))
    labels, x = np.int32([0, 2, 1, 1]), SPARSE["some"]
    run = jax.jit(lambda *args: own(params, *args)[0])
    np.testing.assert_allclose(run(components(x), labels), loss(x, labels), rtol=1e-6)
    assert np.isnan(run((*components(x)[:2], np.int64([6, 5])), labels))


@pytest.mark.parametrize(
    "combiner", ["mean", pytest.param("sum", marks=pytest.mark.full), pytest.param("sqrtn", marks=pytest.mark.full)]
)
def test_weighted_embeddings_of_any_number_of_rows(combiner):
    """Rows of ids and of weights are filled up to one number, which labels tell."""

    def function(x, scale):
        weights = tf.sparse.map_values(lambda v: tf.abs(v) + 0.1, x)
        return looked_up(x, sparse_weights=weights, combiner=combiner) * scale[:, None]

    specs = tf.SparseTensorSpec([None, None], tf.float32), tf.TensorSpec([None])
    own, params = tf2jax.convert(tf.function(function), *specs)
    scale = np.arange(1, 5, dtype=np.float32)
    run = jax.jit(lambda *args: own(params, *args)[0])
    for x in SPARSE.values():
        np.testing.assert_allclose(run(components(x), scale), function(x, scale), rtol=1e-5, atol=1e-6)
    more = *components(SPARSE["some"])[:2], np.int64([6, 5])
    assert np.isnan(run(more, scale)).all()


@pytest.mark.full
def test_a_product_has_as_many_rows_as_what_it_is_added_to():
    """The sparse matrix's other size is unknown and unread; the check remains."""
    specs = tf.SparseTensorSpec([None, None], tf.float32), tf.TensorSpec([None, 2])
    own = jax.jit(tf2jax.convert_functional(lambda x, y: tf.sparse.sparse_dense_matmul(x, tf.ones([5, 2])) + y, *specs))
    indices, values, shape = components(SPARSE["some"])
    np.testing.assert_allclose(own((indices, values, shape), np.ones([4, 2], np.float32))[:, 0], [0, 1, 10, 2])
    assert np.isnan(own((indices, values, np.int64([6, 5])), np.ones([4, 2], np.float32))).all()


@pytest.mark.full
def test_a_shape_known_in_part_is_checked():
    own = tf2jax.convert_functional(OF_SPARSE["sums"], tf.SparseTensorSpec([4, None], tf.float32))
    indices, values, shape = components(SPARSE["some"])
    np.testing.assert_array_equal(own((indices, values, shape)), [-1, 0, 9, 1])
    with pytest.raises(errors.ShapeMismatchError, match=r"\[2\] is \(6, 5\).*converted for \(4, None\)"):
        own((indices, values, np.int64([6, 5])))
    with tf2jax.override_config("strict_shape_check", False):
        loose = tf2jax.convert_functional(OF_SPARSE["sums"], tf.SparseTensorSpec([4, None], tf.float32))
    assert loose((indices, values, np.int64([6, 5]))).shape == (6,)


BATCHES = {
    "sparse": [components(x) for x in SPARSE.values()],
    "ragged": [
        (np.int32([3, 4, 9, 1, 2, 5]), np.int64(splits))
        for splits in ([0, 2, 2, 3, 6], [0, 0, 0, 6, 6], [0, 1, 2, 3, 6])
    ],
}


@pytest.mark.default_cases("sparse-filled", "sparse-number of rows", "ragged-the last", "ragged-numbered")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_batches(kind, name):
    """Clients of federated learning have sizes of their own."""
    function = (OF_SPARSE if kind == "sparse" else OF_RAGGED)[name]
    spec = tf.SparseTensorSpec([4, None], tf.float32) if kind == "sparse" else tf.RaggedTensorSpec([4, None], tf.int32)
    own, params = tf2jax.convert(tf.function(function, input_signature=[spec], autograph=False), spec)
    batch = jax.tree.map(lambda *parts: np.stack(parts), *BATCHES[kind])
    found = jax.jit(jax.vmap(lambda x: own(params, x)[0]))(batch)
    for row, x in zip(found, BATCHES[kind], strict=True):
        np.testing.assert_allclose(row, own(params, x)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("sparse", "embedding"),
        ("sparse", "slice"),
        ("ragged", "attention"),
        ("ragged", "sum of rows"),
        ("ragged", "spread"),
    ],
)
def test_exported_for_any_number_of_values(kind, name):
    sparse = kind == "sparse"
    function = (OF_SPARSE if sparse else OF_RAGGED)[name]
    spec = tf.SparseTensorSpec([4, None], tf.float32) if sparse else tf.RaggedTensorSpec([4, None], tf.int32)
    own, params = tf2jax.convert(tf.function(function, input_signature=[spec], autograph=False), spec)
    (count,) = jax.export.symbolic_shape("count")
    shapes = [((count, 2), "int32"), ((count,), "float32"), ((2,), "int32")]
    shapes = shapes if sparse else [((count,), "int32"), ((5,), "int32")]
    exported = jax.export.export(jax.jit(lambda *x: own(params, x)[0]))(*(jax.ShapeDtypeStruct(*s) for s in shapes))
    for x in (SPARSE if sparse else RAGGED).values():
        given = [part.astype(dtype) for part, (_, dtype) in zip(components(x), shapes, strict=True)]
        if given[0].shape[0]:  # jax.export takes sizes to be 1 at least
            np.testing.assert_allclose(exported.call(*given), own(params, given)[0], rtol=1e-5, atol=1e-5)
