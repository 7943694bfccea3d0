"""Sizes compared at run time are assumed equal; otherwise results are NaN."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError

X = np.array([1.5, -2.0, 3.0, -0.5, 5.0, 0.25], np.float32)
INPUTS = {
    "some": X,
    "all": np.abs(X),
    "one": np.array([-1, -2, -3, 4, -5, -6], np.float32),
    "none": -np.abs(X),
}


def grid(x):
    return tf.reshape(x, [2, 3])


def kept(x):
    return tf.boolean_mask(x, x > 0)


def others(x):
    """As many as `kept`, but nothing tells."""
    return tf.boolean_mask(x * 2 + 1, tf.logical_not(x <= 0))


def asserted(x):
    a, b = kept(x), others(x)
    with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(a), tf.shape(b))]):
        return tf.reduce_sum(a * b)


def ragged(x):
    return tf.RaggedTensor.from_tensor(grid(x), lengths=tf.reduce_sum(tf.cast(grid(x) > 0, tf.int32), 1))


def weighted(x):
    return tf.reduce_sum(tf.gather([2.0, 3.0], ragged(x).value_rowids()) * ragged(x).values)


def again_and_again(x):
    def step(i, total):
        y = x - tf.cast(i, tf.float32) / 2
        return i + 1, total + tf.reduce_sum(kept(y) * others(y))

    return tf.while_loop(lambda i, total: i < 3, step, (0, 0.0))[1]


def in_a_branch(x):
    return tf.cond(x[0] > 0, lambda: tf.reduce_sum(kept(x) * others(x)), lambda: x[1] * 2)


CASES = {
    "positions beside values": lambda x: tf.reduce_sum(
        tf.cast(tf.where(grid(x) > 0)[:, 1], tf.float32) * tf.boolean_mask(grid(x), grid(x) > 0)
    ),
    "two masks": lambda x: tf.reduce_sum(kept(x) * others(x)),
    "three masks": lambda x: tf.reduce_sum(kept(x) * others(x) + tf.boolean_mask(x, tf.sign(x) > 0.5)),
    "product": lambda x: tf.tensordot(kept(x), others(x), 1),
    "chosen": lambda x: tf.reduce_sum(tf.where(kept(x) > 1, others(x), 0.0)),
    "side by side": lambda x: tf.reduce_max(tf.concat([kept(x)[:, None], others(x)[:, None]], 1), 0),
    "a count": lambda x: tf.reduce_sum(kept(x) * tf.ones([tf.math.count_nonzero(x > 0)])),
    "a count at first": lambda x: tf.reduce_sum(tf.ones([tf.math.count_nonzero(x > 0)]) * 2 * kept(x)),
    "numbered": lambda x: tf.reduce_sum(kept(x) * tf.cast(tf.range(tf.math.count_nonzero(x > 0)), tf.float32)),
    "entries of a sparse tensor": lambda x: tf.reduce_sum(tf.sparse.from_dense(tf.nn.relu(grid(x))).values * kept(x)),
    "rows of a ragged tensor": weighted,
    "broadcast to the shape of others": lambda x: tf.reduce_sum(
        tf.broadcast_to(kept(x)[:, None], tf.shape(tf.stack([others(x), others(x)], 1)))
    ),
    "asserted": asserted,
    "in a loop": again_and_again,
    "in a branch": in_a_branch,
}


def converted(function, x=X):
    return tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec(x.shape, x.dtype))


def with_gradient(graph, x):
    with tf.GradientTape() as tape:
        x = tf.constant(x)
        tape.watch(x)
        value = graph(x)
    return value.numpy(), tf.convert_to_tensor(tape.gradient(value, x)).numpy()


def both(own):
    return lambda x: (own(x), jax.grad(lambda x: own(x).sum())(x))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    graph, own = tf.function(CASES[name], autograph=False), both(converted(CASES[name]))
    expected = [with_gradient(graph, x) for x in INPUTS.values()]
    one = jax.jit(own)
    for (case, x), wanted in zip(INPUTS.items(), expected, strict=True):
        for found, right in zip(one(x), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=3e-5, atol=1e-6, err_msg=case)
    gradients = jax.jit(jax.vmap(own))(np.stack(list(INPUTS.values())))[1]
    np.testing.assert_allclose(gradients, [g for _, g in expected], rtol=1e-4, atol=1e-5)


UNEQUAL = {
    "two masks": lambda x: tf.reduce_sum(kept(x) * tf.boolean_mask(x, x < 1)),
    "a count": lambda x: tf.reduce_sum(kept(x) * tf.ones([tf.math.count_nonzero(x < 1)])),
    "in a branch": lambda x: tf.cond(x[0] > 0, lambda: tf.reduce_sum(kept(x) * tf.boolean_mask(x, x < 1)), lambda: 0.0),
    "in a loop": lambda x: tf.while_loop(
        lambda i, t: i < 2, lambda i, t: (i + 1, t + tf.reduce_sum(kept(x) * tf.boolean_mask(x, x < 1))), (0, 0.0)
    )[1],
}


@pytest.mark.full
@pytest.mark.parametrize("name", UNEQUAL)
def test_sizes_that_are_not_equal_give_nan(name):
    own = both(converted(UNEQUAL[name]))
    x = np.array([2, -1, 3, 4, -2, 0.5], np.float32)
    value, gradient = jax.jit(own)(x)
    assert np.isnan(value) and np.isnan(np.asarray(gradient)[x > 1]).all()
    equal = np.array([2, -1, 3, 4, -2, -5], np.float32)
    value, gradient = jax.jit(own)(equal)
    np.testing.assert_allclose(value, (2 if name == "in a loop" else 1) * (-2 - 6 - 20 if name != "a count" else 9))
    assert np.isfinite(gradient).all()
    batch = jax.vmap(own)(np.stack([x, equal]))[0]
    assert np.isnan(batch).tolist() == [True, False]


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "sign"), [("int32", -(2**31)), ("uint8", 255), ("int16", -(2**15))])
def test_violated_assumptions_fill_integers_as_jnp_take_does(dtype, sign):
    def function(x):
        return tf.cast(tf.abs(kept(x) * tf.boolean_mask(x, x < 1)), dtype)[:1] + tf.constant([1], dtype)

    def total(x):
        return tf.reduce_max(function(x))

    own = jax.jit(converted(total))
    fits = np.array([2, -1, 3, 4, -2, -5], np.float32)  # as many above 0 as below 1
    np.testing.assert_array_equal(own(fits), total(tf.constant(fits)))
    assert own(np.array([2, -1, 3, 4, -2, 0.5], np.float32)) == sign
    assert own(fits).dtype == dtype


def test_booleans_without_a_fill_value_are_refused():
    with pytest.raises(Tf2JaxError, match=r"assumed to be equal.*bool"):
        jax.jit(converted(lambda x: tf.reduce_any(kept(x) * others(x) > 1)))(X)


@pytest.mark.full
def test_a_shape_that_only_one_size_fits():
    """A reshape keeps the element count, the only source of one dimension."""

    def function(x, size):
        return tf.reshape(x, [size, 3]) @ tf.ones([3, 1]), tf.reduce_sum(tf.reshape(x, [3, size, 1]), 1)

    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([6]), tf.TensorSpec([], tf.int32)))
    for found, wanted in zip(own(X, np.int32(2)), function(tf.constant(X), 2), strict=False):
        np.testing.assert_allclose(found, wanted)
    assert np.isnan(own(X, np.int32(3))[0]).all()


def test_a_size_that_meets_none_is_refused():
    own = tf2jax.convert_functional(
        tf.function(lambda n: tf.reduce_sum(tf.ones([n]) * 2), autograph=False), tf.TensorSpec([], tf.int32)
    )
    with pytest.raises(Tf2JaxError, match="known while tracing"):
        jax.jit(own)(np.int32(3))


@pytest.mark.full
def test_a_size_that_data_gives_meets_one_that_is_known():
    own = jax.jit(converted(lambda x: x * tf.ones([tf.cast(x[0], tf.int32)])))
    np.testing.assert_array_equal(own(np.full(6, 6, np.float32)), np.full(6, 6))
    assert np.isnan(own(np.full(6, 5, np.float32))).all()


RAGGED = {
    "sum of two": lambda x: tf.reduce_sum(ragged(x) + ragged(x * 1.0), 1),
    "of other splits": lambda x: tf.reduce_sum(
        ragged(x) * tf.RaggedTensor.from_row_splits(ragged(x).values * 3, ragged(x).row_splits), 1
    ),
    "softmax": lambda x: tf.nn.softmax(ragged(x)).to_tensor(shape=[2, 3]),
    "divided by rows": lambda x: tf.reduce_sum(ragged(x) / tf.reduce_sum(ragged(x), 1, keepdims=True), 1),
    "concatenated": lambda x: tf.reduce_sum(tf.concat([ragged(x), ragged(x)], 1) ** 2, 1),
}


@pytest.mark.full
@pytest.mark.parametrize("name", RAGGED)
def test_ragged_tensors_with_a_bound(name):
    graph = tf.function(RAGGED[name], autograph=False)
    with tf2jax.override_config("dynamic_shape_bound", 12):
        own = jax.jit(both(converted(RAGGED[name])))
    for case, x in INPUTS.items():
        for found, right in zip(own(x), with_gradient(graph, x), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5, err_msg=case)


@pytest.mark.full
def test_ranges_that_are_not_as_many_as_what_they_meet():
    @tf.function(autograph=False)
    def function(x, lengths):
        return tf.reduce_sum(x * tf.cast(tf.ragged.range(lengths).flat_values, tf.float32))

    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([6]), tf.TensorSpec([3], tf.int32)))
    np.testing.assert_allclose(own(X, np.int32([2, 0, 4])), function(X, np.int32([2, 0, 4])), rtol=1e-6)
    assert np.isnan(own(X, np.int32([2, 1, 4]))) and np.isnan(own(X, np.int32([2, 0, 3])))


@pytest.mark.full
def test_values_past_the_last_row():
    """TensorFlow has none; where somebody pads them, they are in no row."""

    @tf.function(autograph=False)
    def function(x):
        return tf.reduce_sum(tf.gather(tf.reduce_sum(x, 1), x.value_rowids()) * x.values)

    own = jax.jit(tf2jax.convert_functional(function, tf.RaggedTensorSpec([2, None], tf.float32)))
    for values, splits in ((X, [0, 2, 6]), (X[:5], [0, 2, 5])):
        expected = function(tf.RaggedTensor.from_row_splits(values, splits))
        np.testing.assert_allclose(own((X, np.int64(splits))), expected, rtol=1e-6)


def filled(found, size):
    """As Mask R-CNN fills up its proposals: with zeros, and with none less than none."""
    return tf.pad(found, [[0, tf.maximum(size - tf.shape(found)[0], 0)], [0, 0]])


def joined(found, size, *, cut=None, first=False):
    """As detectors are exported: filled up to a fixed number by concatenation."""
    zeros = tf.zeros([tf.maximum(size - tf.shape(found)[0], 0) if cut else size - tf.shape(found)[0]], found.dtype)
    return tf.concat([zeros, found] if first else [found[:cut], zeros], 0)


def triangle(x):
    """DLRM's interactions: the mask is static, but too large to fold."""
    ones = tf.ones_like(x)
    return tf.boolean_mask(x, tf.cast(ones - tf.linalg.band_part(ones, 0, -1), tf.bool))


FIXED = {
    "boxes": lambda x: filled(tf.gather(x, tf.image.non_max_suppression(x, x[:, 0], 6, 0.7)), 6),
    "mask": lambda x: tf.ensure_shape(filled(tf.boolean_mask(x, x[:, 0] > 0.5), 20), [20, 4]),
    "stacked": lambda x: tf.stack([filled(tf.boolean_mask(x, m), 20) for m in (x[:, 0] > 0.5, x[:, 0] < 0.2)]),
    "boxes and zeros": lambda x: joined(tf.image.non_max_suppression(x, x[:, 0], 6, 0.7), 6),
    "zeros and positions": lambda x: joined(tf.where(x[:, 0] > 0.5)[:4, 0], 4, first=True),
    "cut and filled": lambda x: joined(tf.unique(tf.cast(x[:, 0] * 9, tf.int32))[0], 5, cut=5),
    "booleans": lambda x: joined(tf.boolean_mask(x[:, 0], x[:, 0] > 0.5) > 0.7, 20),
    "triangles": lambda x: tf.reshape(triangle(tf.tile(x[:, :, None], [1, 8, 32])), [tf.shape(x)[0], 496]),
    "known mask": lambda x: triangle(tf.tile(x[:3, :, None], [1, 1, 4])),
}


@pytest.mark.default_cases("triangles")
@pytest.mark.parametrize("name", FIXED)
def test_sizes_are_what_they_are_whatever_the_data(name):
    function = tf.function(FIXED[name], autograph=False)
    own = jax.jit(tf2jax.convert_functional(function, tf.TensorSpec([None, 4])))
    x = np.random.default_rng(5).uniform(size=(20, 4)).astype(np.float32)
    np.testing.assert_allclose(own(x), function(x), rtol=1e-6)


def pooled(x, start, neighbours):
    """Nodes beside the largest of their neighbours: of a given number of rows."""
    own = tf.slice(x, tf.stack([start[0], 0]), tf.stack([start[1], -1]))
    return tf.reduce_sum(tf.maximum(own, tf.reduce_max(tf.gather(x, neighbours), 1)), 0)


@pytest.mark.full
def test_a_size_that_data_gives_meets_one_of_an_argument():
    specs = tf.TensorSpec([None, 2]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([None, 2], tf.int32)
    function = tf.function(pooled, autograph=False)
    own = jax.jit(tf2jax.convert_functional(function, *specs))
    x, neighbours = np.arange(14, dtype=np.float32).reshape(7, 2) % 5, np.int32([[0, 1], [2, 6], [3, 4]])
    for first in (0, 3):
        args = x, np.int32([first, 3]), neighbours
        np.testing.assert_allclose(own(*args), function(*args))
    assert np.isnan(own(x, np.int32([0, 4]), neighbours)).all()


def part(x, size):
    return tf.slice(x, [0, 0], size)


# Nodes that need some of their operands' sizes to be equal, and not others that face each other.
MEETING = {
    "concat": lambda x, y, s: tf.concat([part(x, s), y[:2]], 1),
    "concat of two": lambda x, y, s: tf.concat([part(x, s), part(y, s * [1, 2])], 1),
    "concat with one": lambda x, y, s: tf.concat([part(x, s // 2), y[:1]], 1),
    "product": lambda x, y, s: part(x, s) @ y[:3, :2],
    "product of transposed": lambda x, y, s: tf.matmul(part(x, s), y[:2], transpose_a=True),
    "einsum": lambda x, y, s: tf.einsum("ij,ik->jk", part(x, s), y[:2, :2]),
    "gather": lambda x, y, s: tf.gather(y[:2], tf.cast(part(x, s), tf.int32) % 3, batch_dims=1),
    "bias": lambda x, y, s: tf.nn.bias_add(part(x, s), y[0, :3]),
    "scatter": lambda x, y, s: tf.tensor_scatter_nd_update(x[:, 0], tf.range(4)[: s[0], None], y[:2, 0]),
    "cross product": lambda x, y, s: tf.linalg.cross(part(x, s), y[:2, :3]),
}
FIXED_SIZE = {"scatter", "cross product"}
TABLES = np.arange(16, dtype=np.float32).reshape(4, 4), np.arange(30, dtype=np.float32).reshape(5, 6) / 7
SPECS = tf.TensorSpec([4, 4]), tf.TensorSpec([5, 6]), tf.TensorSpec([2], tf.int32)


@pytest.mark.default_cases("einsum")
@pytest.mark.parametrize("name", MEETING)
def test_agreement_of_sizes_a_node_needs_gives_tf_values(name):
    def total(*args):
        return tf.reduce_sum(tf.sin(MEETING[name](*args)))

    args = *TABLES, np.int32([2, 3])
    own = jax.jit(tf2jax.convert_functional(tf.function(total, autograph=False), *SPECS))
    np.testing.assert_allclose(own(*args), total(*map(tf.constant, args)), rtol=1e-5)


@pytest.mark.default_cases("concat", "einsum")
@pytest.mark.parametrize("name", MEETING)
def test_returned_shape_is_never_one_that_tf_does_not_give(name):
    own = jax.jit(tf2jax.convert_functional(tf.function(MEETING[name], autograph=False), *SPECS))
    args = *TABLES, np.int32([2, 3])
    if name in FIXED_SIZE:
        np.testing.assert_allclose(own(*args), MEETING[name](*map(tf.constant, args)), rtol=1e-6)
        return
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        own(*args)


def test_stitched_rows_are_as_many_as_the_largest_index_says():
    def stitched(x, indices):
        return tf.dynamic_stitch([indices], [x])

    specs = tf.TensorSpec([6]), tf.TensorSpec([6], tf.int32)
    own = tf2jax.convert_functional(tf.function(lambda x, i: tf.reduce_mean(stitched(x, i)), autograph=False), *specs)
    indices = np.int32([0, 1, 1, 2, 3, 0])
    np.testing.assert_allclose(jax.jit(own)(X, indices), np.mean(stitched(X, indices)), rtol=1e-6)
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(tf2jax.convert_functional(tf.function(stitched, autograph=False), *specs))(X, indices)


def looked_up(segments, empty):
    """As `tf.nn.safe_embedding_lookup_sparse` masks the rows of examples without ids."""
    rows = tf.sparse.segment_mean(tf.constant(TABLES[1]), tf.range(tf.size(segments)) % 5, segments)
    mask = tf.tile(empty[:, None], [1, 6])
    return tf.where(mask, tf.zeros_like(rows), rows)


@pytest.mark.full
def test_batch_of_one_gives_segments_their_number():
    specs = tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.bool)
    own = jax.jit(tf2jax.convert_functional(tf.function(looked_up, autograph=False), *specs))
    for segments, size in (([0, 0, 1], 2), ([0, 0, 0], 1)):
        args = np.int32(segments), np.zeros(size, bool)
        np.testing.assert_allclose(own(*args), looked_up(*args), rtol=1e-6)
    assert np.isnan(own(np.int32([0, 0, 1]), np.zeros(1, bool))).all()


def test_batch_of_one_is_no_size_of_a_mask():
    """TensorFlow broadcasts it: the result is as long as the mask has true values."""
    specs = tf.TensorSpec([None]), tf.TensorSpec([6])
    own = tf2jax.convert_functional(tf.function(lambda x, y: x + kept(y), autograph=False), *specs)
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(own)(X[:1], X)
