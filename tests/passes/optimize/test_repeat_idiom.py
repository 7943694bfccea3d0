"""`tf.repeat` and ragged rows of dynamic lengths get sizes from users."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import LoweringError

VALUES = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
SPLITS = np.array([0, 3, 3, 7, 12], np.int32)
OTHER = np.array([0, 0, 11, 12, 12], np.int32)
INT = np.arange(12, dtype=np.int32)


def ragged(values, splits):
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def lengths(splits):
    return splits[1:] - splits[:-1]


def centred(values, splits):
    """Values without the mean of their row."""
    rows = ragged(values, splits)
    return values - tf.gather(tf.reduce_mean(rows, 1), rows.value_rowids())


def doubled_after(values, splits):
    """Row ids are made, and read, before the values that they number."""
    ids = ragged(values, splits).value_rowids()
    first = tf.math.unsorted_segment_sum(values, ids, 4)
    return first + tf.math.unsorted_segment_max(tf.sin(values) * 2, ids, 4)


def branch(values, splits):
    return tf.cond(splits[1] > 2, lambda: tf.reduce_sum(ragged(values, splits), 1), lambda: values[:4])


def of_each_other(values, splits):
    """Repeat the value that determines another one's length."""
    column = values[:, 0]
    ids = ragged(values, splits).value_rowids()
    first = tf.cast(ids, tf.float32) + column
    late = tf.repeat(values[:4], lengths(splits), axis=0)
    return tf.math.unsorted_segment_sum(late, ids, 4) + first[0]


def the_other_way(values, splits):
    late = tf.repeat(values[:4], lengths(splits), axis=0)
    ids = ragged(values, splits).value_rowids()
    return tf.math.unsorted_segment_sum(late + values, ids, 4)


def counted(number):
    return lambda v, s: v[:, 0] + tf.cast(tf.repeat(tf.constant(number), lengths(s)), tf.float32)


ROWS = {
    **{f"reduce_{k}": lambda v, s, k=k: getattr(tf, f"reduce_{k}")(ragged(v, s), 1) for k in ("sum", "max", "min")},
    "reduce_mean": lambda v, s: tf.reduce_mean(ragged(v, s), 1),
    "reduce_prod": lambda v, s: tf.reduce_prod(ragged(v, s), 1),
    "int64 splits": lambda v, s: tf.reduce_sum(ragged(v, tf.cast(s, tf.int64)), 1),
    "row lengths": lambda v, s: tf.reduce_sum(tf.RaggedTensor.from_row_lengths(v, lengths(s), validate=False), 1),
    "numbers": lambda v, s: tf.reduce_max(ragged(tf.cast(v * 10, tf.int32), s), 1),
    "centred": centred,
    "doubled after": doubled_after,
    "in a branch": branch,
    "of each other": of_each_other,
    "the other way": the_other_way,
    "added": lambda v, s: v + tf.repeat(v[:4], lengths(s), axis=0),
    "added before": lambda v, s: tf.repeat(v[:4] * 2, lengths(s), axis=0) - v,
    "bytes": counted(np.arange(4, dtype=np.uint8)),
    "integers": counted(np.arange(4, dtype=np.int64)),
}


def close(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("splits", [SPLITS, OTHER], ids=["rows", "others"])
@pytest.mark.parametrize("function", ROWS.values(), ids=ROWS)
def test_rows(function, splits):
    graph = tf.function(function, autograph=False)
    expected = graph(VALUES, splits)
    converted = tf2jax.convert_functional(graph, *(tf.TensorSpec(a.shape, a.dtype) for a in (VALUES, splits)))
    close(converted(VALUES, splits), expected)
    close(jax.jit(converted)(VALUES, splits), expected)
    many = jax.jit(jax.vmap(converted, (None, 0)))(VALUES, np.stack([SPLITS, OTHER]))
    for row, own in zip(many, (SPLITS, OTHER), strict=True):
        close(row, graph(VALUES, own))


@pytest.mark.full
@pytest.mark.parametrize("name", ["reduce_sum", "reduce_mean", "reduce_max", "centred", "doubled after", "added"])
def test_gradients(name):
    graph = tf.function(ROWS[name], autograph=False)
    converted = tf2jax.convert_functional(graph, *(tf.TensorSpec(a.shape, a.dtype) for a in (VALUES, SPLITS)))
    x = tf.constant(VALUES)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.sin(tf.where(tf.abs(y := graph(x, SPLITS)) < 1e3, y, 0)))
    ours = jax.grad(lambda v: jnp.sum(jnp.sin(jnp.where(jnp.abs(y := converted(v, SPLITS)) < 1e3, y, 0))))
    close(jax.jit(ours)(VALUES), tf.convert_to_tensor(tape.gradient(loss, x)))


@pytest.mark.full
def test_values_past_the_last_row_belong_to_none():
    """So values may be padded to one length, which TensorFlow rejects."""
    converted = tf2jax.convert_functional(
        tf.function(ROWS["reduce_sum"]), tf.TensorSpec((None, 3)), tf.TensorSpec((None,), tf.int32)
    )
    padded = np.concatenate([VALUES, np.full((4, 3), np.nan, np.float32)])
    close(jax.jit(converted)(padded, SPLITS), ROWS["reduce_sum"](VALUES, SPLITS))


@pytest.mark.full
def test_symbolic_sizes():
    function = tf.function(ROWS["reduce_mean"])
    converted = tf2jax.convert_functional(function, tf.TensorSpec((None, 3)), tf.TensorSpec((None,), tf.int32))
    n, r = jax.export.symbolic_shape("n, r")
    structs = jax.ShapeDtypeStruct((n, 3), np.float32), jax.ShapeDtypeStruct((r + 1,), np.int32)
    exported = jax.export.export(jax.jit(converted))(*structs)
    for splits in (SPLITS, np.array([0, 7], np.int32), np.array([0, 5, 12], np.int32)):
        values = VALUES[: splits[-1]]
        close(exported.call(values, splits), function(values, splits))


def repeated(axis):
    return tf.function(lambda v, c: tf.repeat(v, c, axis=axis), autograph=False)


@pytest.mark.default_cases("floats-1")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("data", [VALUES, INT.reshape(4, 3)], ids=["floats", "ints"])
def test_length_from_the_bound(axis, data):
    """No other tensor has the length: results are padded only under jit."""
    counts = np.array([2, 0, 3, 1] * 3)[: data.shape[axis]].astype(np.int32)
    graph = repeated(axis)
    expected = graph(data, counts).numpy()
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in (data, counts)]
    close(tf2jax.convert_functional(graph, *specs)(data, counts), expected)
    with pytest.raises(LoweringError, match=r"'Repeat/.*depends on traced counts.*dynamic_shape_bound"):
        jax.jit(tf2jax.convert_functional(graph, *specs))(data, counts)
    with tf2jax.override_config("dynamic_shape_bound", expected.shape[axis] + 2 if axis == 0 else expected.size // 3):
        if axis == 0:
            actual = np.asarray(jax.jit(tf2jax.convert_functional(graph, *specs))(data, counts))
            close(actual[:-2], expected)
            np.testing.assert_array_equal(actual[-2:], -1 if data.dtype == np.int32 else 0)


@pytest.mark.full
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("data", [VALUES, INT.reshape(4, 3)], ids=["floats", "ints"])
def test_static_counts_need_no_bound(axis, data):
    """Constants say how many come out, whatever is repeated."""
    counts = np.array([2, 0, 3, 1] * 3)[: data.shape[axis]].astype(np.int32)
    graph = tf.function(lambda v: tf.repeat(v, counts, axis=axis), autograph=False)
    converted = tf2jax.convert_functional(graph, data)
    close(jax.jit(converted)(data), graph(data))
    close(jax.vmap(converted)(data[None]), graph(data)[None])
    if data.dtype == np.float32:
        with tf.GradientTape() as tape:
            tape.watch(variable := tf.constant(data))
            loss = tf.reduce_sum(graph(variable) ** 2)
        gradient = jax.jit(jax.grad(lambda v: (converted(v) ** 2).sum()))(data)
        close(gradient, tape.gradient(loss, variable))


@pytest.mark.full
def test_bound_along_an_inner_axis():
    counts = np.array([2, 0, 3], np.int32)
    graph = repeated(1)
    with tf2jax.override_config("dynamic_shape_bound", 5 * 4):  # of all rows together
        converted = tf2jax.convert_functional(graph, tf.TensorSpec((4, 3), tf.int32), tf.TensorSpec((3,), tf.int32))
    known = jax.jit(lambda v: converted(v, counts))(INT.reshape(4, 3))
    close(known, graph(INT.reshape(4, 3), counts))


@pytest.mark.default_cases("counts0")
@pytest.mark.parametrize("counts", [[0, 0, 0], [-2, 3, 1], [5, 0, 0]])
def test_counts_below_one(counts):
    counts = np.array(counts, np.int32)
    graph = tf.function(lambda v, c: tf.math.unsorted_segment_sum(v, tf.repeat(tf.range(3), c), 3), autograph=False)
    values = VALUES[: np.maximum(counts, 0).sum()]
    converted = tf2jax.convert_functional(graph, *(tf.TensorSpec(a.shape, a.dtype) for a in (values, counts)))
    close(jax.jit(converted)(values, counts), graph(values, counts))


@pytest.mark.full
def test_similar_graphs_are_not_replaced():
    """A mask over values tiled more often than counts is no repeat."""

    def function(v, c):
        most = tf.maximum(0, tf.reduce_max(c))
        mask = tf.sequence_mask(c - 1, most)
        return tf.boolean_mask(tf.tile(v[:, None], tf.stack([1, most])), mask)

    graph = tf.function(function, autograph=False)
    counts = np.array([2, 1, 3], np.int32)
    converted = tf2jax.convert_functional(graph, tf.TensorSpec((3,)), tf.TensorSpec((3,), tf.int32))
    close(converted(VALUES[:3, 0], counts), graph(VALUES[:3, 0], counts))


@pytest.mark.full
def test_a_ragged_model(tmp_path):
    class Bag(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.Variable(np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int64)])
        def __call__(self, words, splits):
            embedded = tf.ragged.map_flat_values(lambda w: tf.gather(self.table, w), ragged(words, splits))
            return tf.reduce_mean(embedded, axis=1)

    bag = Bag()
    tf.saved_model.save(bag, str(tmp_path / "bag"))
    converted, params = tf2jax.convert_saved_model(str(tmp_path / "bag"))
    splits = SPLITS.astype(np.int64)
    (actual,) = jax.tree.leaves(jax.jit(lambda p, w, s: converted(p, words=w, splits=s)[0])(params, INT, splits))
    close(actual, bag(INT, splits))
