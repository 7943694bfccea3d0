"""Connectionist temporal classification against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
TIME, BATCH, CLASSES = 6, 4, 4
LOGITS = RNG.normal(size=(TIME, BATCH, CLASSES)) * 2
LENGTHS = np.array([6, 4, 5, 0], np.int32)


SOME = np.array([6, 4, 5, 1], np.int32)


def labels(*rows):
    """Return indices and values of a sparse tensor."""
    indices = [[b, i] for b, row in enumerate(rows) for i in range(len(row))]
    return np.array(indices, np.int64).reshape(-1, 2), np.array([v for row in rows for v in row], np.int32)


PLAIN = labels([0, 1, 2], [2], [1, 1, 0], [2])
MANY = labels([0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1], [1], [2])
STATIC = ("labels_indices", "labels_values", "sequence_length")
SKIPPING = {"ignore_longer_outputs_than_inputs": True}


# TensorFlow computes in float32 in between.
def loss(name, logits=LOGITS, sparse=PLAIN, lengths=SOME, baked=(), **attrs):
    return case("CTCLoss", logits, *sparse, lengths, **attrs).using(
        name=name,
        baked=baked,
        rtol=1e-6,
        atol=1e-7,
        grad=name in ("traced", "longer", "impossible", "float32"),
        grad_rtol=1e-5,
        vmap=name == "traced",
    )


def decode(op, name, logits=LOGITS, lengths=LENGTHS, **attrs):
    """Return a case without jit, as shapes depend on values."""
    return case(op, logits, lengths, **attrs).using(name=name, jit=False, rtol=1e-5)


CLEAR = np.eye(4)[[[3, 3, 0, 1], [0, 3, 0, 1], [0, 3, 3, 1], [3, 3, 0, 2], [1, 3, 0, 2], [1, 3, 2, 2]]]
CASES = [
    loss("traced"),
    loss("symbolic").using(symbolic=("t, b, 4", "n, 2", "n", "b")),
    loss("known", baked=STATIC),
    loss("float32", LOGITS.astype(np.float32)).using(rtol=1e-5, atol=1e-5, grad_rtol=1e-4, grad_atol=1e-5),
    loss("collapse", preprocess_collapse_repeated=True),
    loss("keep", ctc_merge_repeated=False),
    loss("collapse-keep", baked=STATIC, preprocess_collapse_repeated=True, ctc_merge_repeated=False),
    # Only null labels would crash TensorFlow.
    loss("ended", sparse=labels([0, 1, 3, 3], [2, 5, 3], [0, 3], [2])),
    loss("none", sparse=labels([], [], [], []), baked=STATIC).using(error="has no labels"),
    # Three labels fit three steps, but two equal ones need a blank between them: no path.
    loss("impossible", sparse=labels([1, 1, 1, 1], [0], [1, 2], [2]), lengths=np.array([5, 4, 5, 1], np.int32)),
    loss("longer", sparse=MANY, lengths=LENGTHS, **SKIPPING),
    # More labels than steps: traced ones are truncated.
    loss("much longer", sparse=labels([0, 1, 2] * 4, [2], [1, 1, 0], [2]), **SKIPPING),
    loss("one class", LOGITS[..., :2], sparse=labels([0, 0], [0], [0], [0])),
    loss("too long", sparse=labels([0], [0, 1, 2, 0, 1], [1], [2]), baked=STATIC).using(error="5 labels, but 4 steps"),
    loss("negative", sparse=labels([0], [-1], [1], [2]), baked=STATIC).using(error="negative"),
    loss("after the end", sparse=labels([0, 3, 1], [1], [1], [2]), baked=STATIC).using(error="follows a null label"),
    loss("order", sparse=(PLAIN[0][::-1].copy(), PLAIN[1]), baked=STATIC).using(error="out of order"),
    loss("lengths", lengths=SOME + 1, baked=STATIC).using(error="is longer than"),
    *(
        decode("CTCGreedyDecoder", f"{n}-{m}-{b}", v, merge_repeated=m, blank_index=b)
        for n, v in (("x", LOGITS), ("clear", CLEAR), ("float32", LOGITS.astype(np.float32)))
        for m, b in ((False, -1), (True, -1), (True, 0))
    ),
    decode("CTCGreedyDecoder", "ties", np.round(LOGITS), merge_repeated=True),
    decode("CTCGreedyDecoder", "none", lengths=LENGTHS * 0),
    decode("CTCGreedyDecoder", "blank", blank_index=4).using(error="blank_index"),
    *(
        decode("CTCBeamSearchDecoder", f"{n}-{w}-{k}-{m}", v, lengths, beam_width=w, top_paths=k, merge_repeated=m)
        for n, v, w, k, m in (
            ("x", LOGITS[:, :3], 10, 3, False),
            ("x", LOGITS[:, :3], 10, 3, True),
            ("x", LOGITS[:, :3], 2, 2, False),
            ("x", LOGITS[:, :3] / 3, 4, 3, False),
            ("x", LOGITS[:, :3] / 3, 1, 1, False),
            ("float32", LOGITS[:, :3].astype(np.float32), 5, 2, True),
            ("long", RNG.normal(size=(30, 3, 5)), 6, 4, False),
            ("long", RNG.normal(size=(30, 3, 5)) / 4, 3, 3, False),
        )
        for lengths in [np.array([30, 17, 25] if n == "long" else [6, 4, 5], np.int32)]
    ),
    decode("CTCBeamSearchDecoder", "empty", beam_width=3, top_paths=1),
    decode("CTCBeamSearchDecoder", "few", beam_width=3, top_paths=2).using(error="fewer than top_paths"),
    decode("CTCBeamSearchDecoder", "width", beam_width=1, top_paths=2).using(error="must not exceed beam_width"),
]
TESTED_OTHERWISE = {"CTCLossV2"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("merge", [False, True])
def test_loss_v2(merge):
    """TensorFlow has a GPU kernel only: as CTCLoss with the blank at the end."""
    logits = LOGITS.astype(np.float32)
    indices, values = PLAIN

    @tf.function
    def fn(x):
        return tf.raw_ops.CTCLossV2(
            inputs=x,
            labels_indices=indices,
            labels_values=values + 1,
            sequence_length=SOME,
            ctc_merge_repeated=merge,
        )

    expected, gradient = tf.raw_ops.CTCLoss(
        inputs=np.roll(logits, -1, 2),
        labels_indices=indices,
        labels_values=values,
        sequence_length=SOME,
        ctc_merge_repeated=merge,
    )
    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(logits.shape, tf.float32))
    actual = jax.jit(jax_fn)(logits)
    np.testing.assert_allclose(actual[0], expected, rtol=1e-5)
    np.testing.assert_allclose(actual[1], np.roll(gradient, 1, 2), rtol=1e-4, atol=1e-5)
    summed = jax.grad(lambda x: jax_fn(x)[0].sum())(logits)
    np.testing.assert_allclose(summed, np.roll(gradient, 1, 2), rtol=1e-4, atol=1e-5)


DENSE = np.array([[1, 1, 2, 0], [3, 0, 0, 0], [2, 2, 2, 1]], np.int32)
LOSSES = {
    "keras": lambda y, x, n: tf.nn.ctc_loss(tf.sparse.from_dense(y), x, None, n, blank_index=-1),
    "blank first": lambda y, x, n: tf.nn.ctc_loss(tf.sparse.from_dense(y), x, None, n, blank_index=0),
    "collapse": lambda y, x, n: tf.compat.v1.nn.ctc_loss(
        tf.sparse.from_dense(y), x, n, preprocess_collapse_repeated=True
    ),
    "keep": lambda y, x, n: tf.compat.v1.nn.ctc_loss(tf.sparse.from_dense(y), x, n, ctc_merge_repeated=False),
}


@pytest.mark.full
@pytest.mark.parametrize("name", LOSSES)
def test_loss_of_dynamic_labels_under_jit(name):
    """The number of labels is dynamic, its upper bound with a path is static."""
    logits, lengths = np.float32(RNG.normal(size=(7, 3, 5))), np.array([7, 5, 7], np.int32)
    weights = np.array([1, 2, 3], np.float32)

    @tf.function(autograph=False)
    def function(y, x):
        return LOSSES[name](y, x, lengths)

    own = tf2jax.convert_functional(function, tf.TensorSpec(DENSE.shape, tf.int32), tf.TensorSpec(logits.shape))
    with tf.GradientTape() as tape:
        x = tf.constant(logits)
        tape.watch(x)
        expected = function(DENSE, x)
        total = tf.reduce_sum(expected * weights)
    np.testing.assert_allclose(jax.jit(own)(DENSE, logits), expected, rtol=1e-5)
    gradient = jax.jit(jax.grad(lambda x: (own(DENSE, x) * weights).sum()))(logits)
    np.testing.assert_allclose(gradient, tape.gradient(total, x), rtol=1e-4, atol=1e-5)
    batch = np.stack([DENSE, np.where(DENSE > 1, DENSE, 0)])  # the same number of labels, and fewer
    batched = jax.jit(jax.vmap(own, in_axes=(0, None)))(batch, logits)
    np.testing.assert_allclose(batched, [function(y, logits) for y in batch], rtol=1e-5)


@pytest.mark.default_cases("True")
@pytest.mark.parametrize("merge", [False, True])
def test_greedy_decoder_under_jit(merge):
    @tf.function
    def fn(x, lengths):
        return tf.raw_ops.CTCGreedyDecoder(inputs=x, sequence_length=lengths, merge_repeated=merge)

    specs = tf.TensorSpec(CLEAR.shape, tf.float64), tf.TensorSpec(LENGTHS.shape, tf.int32)
    expected = [t.numpy() for t in fn(CLEAR, LENGTHS)]
    count = len(expected[0])
    with jax.enable_x64(True):
        with pytest.raises(tf2jax.errors.LoweringError, match="dynamic_shape_bound"):
            jax.jit(tf2jax.convert_functional(fn, *specs))(CLEAR, LENGTHS)
        with tf2jax.override_config("dynamic_shape_bound", count + 3):
            jax_fn = tf2jax.convert_functional(fn, *specs)
        indices, values, shape, score = map(np.asarray, jax.jit(jax_fn)(CLEAR, LENGTHS))
    np.testing.assert_array_equal(indices[:count], expected[0])
    np.testing.assert_array_equal(values[:count], expected[1])
    assert (indices[count:] == -1).all() and not values[count:].any()
    np.testing.assert_array_equal(shape, expected[2])
    np.testing.assert_allclose(score, expected[3])


@pytest.mark.full
def test_beam_search_needs_static_inputs():
    @tf.function
    def fn(x):
        return tf.raw_ops.CTCBeamSearchDecoder(inputs=x, sequence_length=LENGTHS, beam_width=3, top_paths=1)

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(LOGITS.shape, tf.float64))
    with pytest.raises(tf2jax.errors.LoweringError, match="outside jit"):
        jax.jit(jax_fn)(LOGITS)


@pytest.mark.full
@pytest.mark.parametrize("merge", [True, False])
def test_greedy_decoder_under_jit_into_a_dense_tensor(merge):
    """As Keras decodes: the number of labels is dynamic, its upper bound static."""

    @tf.function(autograph=False)
    def function(x, lengths):
        (decoded,), scores = tf.nn.ctc_greedy_decoder(x, lengths, merge_repeated=merge)
        dense = tf.SparseTensor(decoded.indices, decoded.values, [x.shape[1], x.shape[0]])
        rows = tf.sparse.to_dense(decoded, default_value=-1)
        counts = tf.reduce_sum(tf.cast(rows >= 0, tf.int32), 1)
        return tf.sparse.to_dense(dense, default_value=-1), scores, decoded.dense_shape, counts

    with jax.enable_x64(True):
        own = jax.jit(
            tf2jax.convert_functional(function, tf.TensorSpec(LOGITS.shape), tf.TensorSpec([BATCH], tf.int32))
        )
        for lengths in (LENGTHS, LENGTHS * 0):
            found = own(np.float32(LOGITS), np.int32(lengths))
            for e, a in zip(function(np.float32(LOGITS), np.int32(lengths)), found, strict=True):
                np.testing.assert_allclose(a, e, rtol=1e-6)
                assert a.dtype == e.dtype.as_numpy_dtype
