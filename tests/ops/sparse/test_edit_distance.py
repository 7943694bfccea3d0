"""Edit distances of sequences of dynamic lengths: label error rates, under jit."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(3, 6, 5)).astype(np.float32)
LABELS = RNG.integers(0, 4, (3, 4)).astype(np.int64)
LENGTHS = np.array([2, 0, 4], np.int32)


def label_error_rate(logits, labels, lengths):
    """Edit distance after greedy CTC decoding; labels are padded with 0."""
    del lengths
    decoded = tf.nn.ctc_greedy_decoder(tf.transpose(logits, [1, 0, 2]), tf.fill([tf.shape(logits)[0]], 6))[0][0]
    return tf.edit_distance(decoded, tf.sparse.from_dense(labels))


def of_ragged(logits, labels, lengths):
    ours = tf.RaggedTensor.from_tensor(tf.argmax(logits, -1), lengths=lengths).to_sparse()
    theirs = tf.RaggedTensor.from_tensor(labels, lengths=tf.reverse(lengths, [0])).to_sparse()
    return tf.edit_distance(ours, theirs, normalize=False)


def of_parts(logits, labels, lengths):
    """Sequences in two dimensions."""
    del lengths
    ours = tf.reshape(tf.argmax(logits, -1), [3, 2, 3])
    return tf.edit_distance(tf.sparse.from_dense(ours), tf.sparse.from_dense(tf.reshape(labels, [3, 2, 2])))


@pytest.mark.full
@pytest.mark.parametrize("function", [label_error_rate, of_ragged, of_parts], ids=lambda f: f.__name__)
def test_edit_distance_of_dynamic_lengths(function):
    graph = tf.function(function, autograph=False)
    args = (LOGITS, LABELS, LENGTHS)
    own = tf2jax.convert_functional(graph, *(tf.TensorSpec(x.shape, x.dtype) for x in args))
    others = [x[[2, 0, 1]] for x in args]
    batches = [np.stack([a, b]) for a, b in zip(args, others, strict=True)]
    many = jax.jit(jax.vmap(own))(*batches)
    for i, given in enumerate((args, others)):
        expected = graph(*map(tf.constant, given))
        np.testing.assert_allclose(jax.jit(own)(*given), expected, rtol=1e-6)
        np.testing.assert_allclose(many[i], expected, rtol=1e-6)
