"""Dynamic segment counts: graph pooling, embeddings, histograms, under jit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.errors import LoweringError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 5)).astype(np.float32)
W = tf.constant(RNG.normal(size=(5, 3)).astype(np.float32))
# As many parts as there are labels; the second leaves part 1 empty.
IDS = [np.array([0, 0, 0, 1, 1, 1, 2, 2]), np.array([0, 0, 0, 0, 2, 2, 2, 2]), np.array([0, 1, 2, 2, 2, 2, 2, 2])]
LABELS = np.array([0, 2, 1])
SOURCE, TARGET = np.array([0, 1, 2, 3, 4, 5, 6, 7]), np.array([1, 2, 0, 4, 5, 3, 7, 6])


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def graph_network(x, ids, labels):
    messages = tf.math.unsorted_segment_sum(tf.gather(x, SOURCE), TARGET, tf.shape(x)[0])
    return cross_entropy(tf.math.segment_mean(tf.nn.relu(messages), ids) @ W, labels)


def attention(x, ids, labels):
    """Gather by the ids of a reduction, which alone determine the size."""
    most = tf.math.segment_max(x, ids)
    scores = tf.exp(x - tf.gather(most, ids))
    weights = scores / tf.gather(tf.math.segment_sum(scores, ids), ids)
    return tf.reduce_mean(tf.math.segment_sum(weights * x, ids) ** 2)


def largest(x, ids, labels):
    scores = tf.tanh(x[:, 0])
    taken = tf.sort(tf.argsort(scores, direction="DESCENDING")[:5])
    pooled = tf.math.segment_sum(tf.gather(x * scores[:, None], taken), tf.gather(ids, taken))
    return tf.reduce_sum(tf.square(pooled))


def masked(x, ids, labels):
    kept = x[:, 0] > -0.5
    return tf.reduce_sum(tf.math.segment_mean(tf.boolean_mask(x, kept), tf.boolean_mask(ids, kept)) ** 2)


def safe_embedding(x, ids, labels):
    indices = tf.stack([tf.cast(ids, tf.int64), tf.range(8, dtype=tf.int64)], 1)
    values = tf.cast(labels[0], tf.int64) + tf.range(8, dtype=tf.int64) % 3
    found = tf.nn.safe_embedding_lookup_sparse(x[:5], tf.SparseTensor(indices, values, [3, 8]), combiner="mean")
    return tf.reduce_sum(found * tf.math.segment_sum(x, ids))


def offsets(x, ids, labels):
    """Return each row's index in its part: starts are exclusive sums."""
    counts = tf.math.segment_sum(tf.ones_like(ids), ids)
    starts = tf.concat([tf.zeros(1, tf.int64), tf.cumsum(counts)[:-1]], 0)
    place = tf.cast(tf.range(8, dtype=tf.int64) - tf.gather(starts, ids), tf.float32)
    ends = tf.cast(starts + counts, tf.float32)
    return tf.reduce_sum(tf.math.segment_sum(x * place[:, None], ids) * ends[:, None])


def best_of_parts(x, ids, labels):
    """Return each part's best row by a matrix, beside starts from counts."""
    counts = tf.math.segment_sum(tf.ones_like(ids), ids)
    starts = tf.concat([tf.zeros(1, tf.int64), tf.cumsum(counts)[:-1]], 0)
    most, parts = tf.reduce_max(counts), tf.shape(counts, tf.int64)[0]
    place = tf.range(8, dtype=tf.int64) - tf.gather(starts, ids) + ids * most
    wide = tf.tensor_scatter_nd_update(tf.zeros(parts * most) - 1e20, place[:, None], x[:, 0])
    order = tf.argsort(tf.reshape(wide, [parts, most]), direction="DESCENDING")
    first = tf.reshape(tf.cast(order, tf.int64) + starts[:, None], [parts, most])[:, 0]
    return tf.reduce_sum(tf.gather(x, first) ** 2)


def softmax_of_parts(x, ids, labels):
    """Parts that are joined again are as many as before."""
    parts = [tf.concat([part, [-1000.0]], 0) for part in tf.dynamic_partition(x[:, 0], tf.cast(ids, tf.int32), 3)]
    weights = tf.concat([tf.nn.softmax(part)[:-1] for part in parts], 0)
    return tf.reduce_sum(tf.math.segment_sum(weights[:, None] * x, ids) ** 2)


def split(x, ids, labels):
    """Split two arrays by data-dependent sizes, which agree in total."""
    counts = tf.math.unsorted_segment_sum(tf.ones_like(ids), ids, 3)
    parts = zip(tf.split(x, counts), tf.split(tf.tanh(x[:, :1]), counts), strict=True)
    first, second = tf.split(x, [counts[0], -1])
    joined = tf.concat([tf.nn.softmax(a * b, 0) for a, b in parts], 0)
    return tf.reduce_sum(joined * x) + tf.reduce_sum(first**2) - tf.reduce_sum(second[:, 0])


FUNCTIONS = {
    "split": split,
    "split where a mask ends": lambda x, ids, labels: tf.reduce_sum(
        tf.split(x, [tf.math.count_nonzero(x[:, 0] > 0), -1])[0] * tf.boolean_mask(x, x[:, 0] > 0)
    ),
    "softmax of parts": softmax_of_parts,
    "offsets": offsets,
    "best of parts": best_of_parts,
    "graph network": graph_network,
    "attention": attention,
    "largest": largest,
    "masked": masked,
    "safe embedding": safe_embedding,
    "extremes": lambda x, ids, labels: tf.reduce_sum(
        tf.concat([tf.math.segment_max(x, ids), tf.math.segment_min(x, ids)], 1)[:, :6] * tf.one_hot(labels, 6)
    ),
    "products": lambda x, ids, labels: cross_entropy(tf.math.segment_prod(x, ids) @ W, labels),
    "sparse": lambda x, ids, labels: cross_entropy(tf.sparse.segment_sqrt_n(x, tf.range(8), ids) @ W, labels),
    "both kinds": lambda x, ids, labels: tf.reduce_sum(
        tf.math.segment_max(x, ids) * tf.math.unsorted_segment_sum(x, ids, tf.reduce_max(ids) + 1)
    ),
    "histogram": lambda x, ids, labels: tf.reduce_sum(
        tf.math.segment_sum(x, ids) / tf.cast(tf.math.bincount(ids) + 1, tf.float32)[:, None]
    ),
    "ragged": lambda x, ids, labels: cross_entropy(
        tf.reduce_sum(tf.RaggedTensor.from_value_rowids(x, ids), 1) @ W, labels
    ),
    "as many parts as classes": lambda x, ids, labels: cross_entropy(tf.math.segment_sum(x @ W, ids), labels),
}
SPECS = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64), tf.TensorSpec([3], tf.int64))


@pytest.mark.default_cases("split where a mask ends", "best of parts")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_gradients_and_batches(name):
    function = tf.function(FUNCTIONS[name])
    converted = tf2jax.convert_functional(function, *SPECS)
    both = jax.jit(jax.value_and_grad(converted), compiler_options=fast_options())
    expected = []
    for ids in IDS:
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            # Outside a graph, as TensorFlow has no gradients of a count there.
            value = FUNCTIONS[name](x, tf.constant(ids), tf.constant(LABELS))
        gradient = tf.convert_to_tensor(tape.gradient(value, x)).numpy()
        expected.append(value.numpy())
        own_value, own_gradient = both(X, ids, LABELS)
        np.testing.assert_allclose(own_value, value.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(own_gradient, gradient, rtol=1e-4, atol=1e-5)
    mapped = jax.jit(jax.vmap(converted, in_axes=(None, 0, None)), compiler_options=fast_options())
    np.testing.assert_allclose(mapped(X, np.stack(IDS), LABELS), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("graph network", [0, 0, 0, 1, 1, 1, 1, 1]),  # a part fewer than labels: TensorFlow raises
        ("graph network", [0, 0, 0, 1, 1, 1, 2, 3]),
        ("split", [0, 0, 0, 1, 1, 1, 2, 3]),
        ("attention", [0, 0, 0, 1, 1, 1, 2, 70]),  # most parts are empty: the capacity is too small for so many
    ],
)
def test_what_does_not_fit_is_nan(name, ids):
    converted = tf2jax.convert_functional(tf.function(FUNCTIONS[name]), *SPECS)
    assert np.isnan(jax.jit(converted)(X, np.array(ids), LABELS))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, ids, labels: tf.math.segment_sum(x, ids),
        lambda x, ids, labels: tf.reduce_sum(tf.math.bincount(ids, weights=x[:, 0]) ** 2),  # values may be large
    ],
    ids=["result", "histogram"],
)
def test_refusals(function):
    converted = tf2jax.convert_functional(tf.function(function), *SPECS)
    with pytest.raises(LoweringError, match="depends on traced"):
        jax.jit(converted)(X, IDS[0], LABELS)


@pytest.mark.full
@pytest.mark.parametrize(("ids", "expected"), [([0, 0, 0, 1, 1, 1, 2, 2], 7), ([0, 0, 0, 1, 1, 1, 2, 70], -(2**31))])
def test_integers_that_exceed_the_capacity_are_the_minimum(ids, expected):
    function = tf.function(lambda x, ids, labels: tf.reduce_sum(tf.math.segment_sum(tf.cast(ids, tf.int32), ids)))
    assert jax.jit(tf2jax.convert_functional(function, *SPECS))(X, np.array(ids), LABELS) == expected
