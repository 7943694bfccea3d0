"""Each metric over several batchings against numpy, and against Keras's."""

import dataclasses

import jax
import numpy as np
import pytest

from tf2jax_lite.errors import InputError
from tf2jax_lite.learning import metrics as m

N, CLASSES, LENGTH = 37, 5, 6
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(N, CLASSES)).astype(np.float32) * 2
Y = RNG.integers(0, CLASSES, N).astype(np.int32)
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
ONE_HOT = np.eye(CLASSES, dtype=np.float32)[Y]
BINARY = RNG.integers(0, 2, N).astype(np.int32)
SCORE = RNG.normal(size=N).astype(np.float32)
SIGMOID = (1 / (1 + np.exp(-SCORE))).astype(np.float32)
VALUES, GUESS = RNG.normal(size=(2, N, 3)).astype(np.float32)
TOKENS = RNG.integers(0, CLASSES, (N, LENGTH)).astype(np.int32)
TOKENS[np.arange(LENGTH) >= RNG.integers(0, LENGTH + 1, N)[:, None]] = 0
TOKENS[3] = 0
TOKEN_LOGITS = RNG.normal(size=(N, LENGTH, CLASSES)).astype(np.float32)
DOMAINS = RNG.integers(0, 4, N).astype(np.int32)  # one of four is outside num_domains below


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def cross_entropy(rows=slice(None)):
    return float(np.mean([-log_softmax(LOGITS)[i, Y[i]] for i in np.arange(N)[rows]]))


def binary_cross_entropy(smoothing=0.0):
    t, p = BINARY * (1 - smoothing) + smoothing / 2, 1 / (1 + np.exp(-SCORE.astype(np.float64)))
    return float(np.mean(-(t * np.log(p) + (1 - t) * np.log(1 - p))))


def confusion(y=Y):
    table = np.zeros((CLASSES, CLASSES), int)
    for target, guess in zip(y, LOGITS.argmax(-1), strict=True):
        table[target, guess] += 1
    return table


def top(k, scores, targets):
    order = np.argsort(-scores, axis=-1, kind="stable")[..., :k]
    return (order == targets[..., None]).any(-1)


def by_position(values, real):
    return [values[real[:, i], i].mean() if real[:, i].any() else 0 for i in range(LENGTH)]


REAL = TOKENS != 0
TOKEN_LOSS = -np.take_along_axis(log_softmax(TOKEN_LOGITS), TOKENS[..., None], -1)[..., 0]
HIT = TOKEN_LOGITS.argmax(-1) == TOKENS
SOME = REAL.any(1)
NEVER_TWO = TOKEN_LOGITS + np.array([0, 0, -np.inf, 0, 0])

CASES = [
    ("cross entropy", m.CrossEntropyLoss(), Y, LOGITS, cross_entropy()),
    ("cross entropy, column of targets", m.CrossEntropyLoss(), Y[:, None], LOGITS, cross_entropy()),
    ("cross entropy of probabilities", m.CrossEntropyLoss(from_logits=False), Y, PROBS * 3, cross_entropy()),
    ("one-hot", m.CategoricalCrossEntropyLoss(), ONE_HOT, LOGITS, cross_entropy()),
    ("one-hot, probabilities", m.CategoricalCrossEntropyLoss(from_logits=False), ONE_HOT, PROBS, cross_entropy()),
    (
        "smoothed",
        m.CategoricalCrossEntropyLoss(label_smoothing=0.2),
        ONE_HOT,
        LOGITS,
        -np.mean(((ONE_HOT * 0.8 + 0.2 / CLASSES) * log_softmax(LOGITS)).sum(-1)),
    ),
    ("binary", m.BinaryCrossEntropyLoss(), BINARY, SCORE, binary_cross_entropy()),
    ("binary, column", m.BinaryCrossEntropyLoss(), BINARY, SCORE[:, None], binary_cross_entropy()),
    ("binary, smoothed", m.BinaryCrossEntropyLoss(label_smoothing=0.1), BINARY, SCORE, binary_cross_entropy(0.1)),
    ("binary, probabilities", m.BinaryCrossEntropyLoss(from_logits=False), BINARY, SIGMOID, binary_cross_entropy()),
    ("accuracy", m.Accuracy(), Y, LOGITS, np.mean(LOGITS.argmax(-1) == Y)),
    ("accuracy, one-hot", m.Accuracy(), ONE_HOT, LOGITS, np.mean(LOGITS.argmax(-1) == Y)),
    ("binary accuracy", m.BinaryAccuracy(), BINARY, SIGMOID, np.mean((SIGMOID > 0.5) == BINARY)),
    ("top 2", m.TopKAccuracy(k=2), Y, LOGITS, top(2, LOGITS, Y).mean()),
    ("confusion", m.ConfusionMatrix(num_classes=CLASSES), Y, LOGITS, confusion()),
    ("mse", m.MeanSquaredError(), VALUES, GUESS, np.mean((VALUES.astype(float) - GUESS) ** 2)),
    ("mae", m.MeanAbsoluteError(), VALUES, GUESS, np.mean(np.abs(VALUES.astype(float) - GUESS))),
    ("token loss", m.SequenceTokenCrossEntropyLoss(), TOKENS, TOKEN_LOGITS, TOKEN_LOSS[REAL].mean()),
    (
        "token loss by position",
        m.SequenceTokenCrossEntropyLoss(per_position=True),
        TOKENS,
        TOKEN_LOGITS,
        by_position(TOKEN_LOSS, REAL),
    ),
    (
        "token accuracy by position and domain",
        m.PerDomainMetric(m.SequenceTokenAccuracy(per_position=True), num_domains=3),
        TOKENS,
        TOKEN_LOGITS,
        [by_position(HIT, REAL & (d == DOMAINS)[:, None]) for d in range(3)],
    ),
    ("perplexity", m.Perplexity(), TOKENS, TOKEN_LOGITS, np.exp(TOKEN_LOSS[REAL].mean())),
    (
        "sequence loss",
        m.SequenceCrossEntropyLoss(),
        TOKENS,
        TOKEN_LOGITS,
        np.mean([loss[real].sum() for loss, real in zip(TOKEN_LOSS, REAL, strict=True) if real.any()]),
    ),
    ("token accuracy", m.SequenceTokenAccuracy(), TOKENS, TOKEN_LOGITS, HIT[REAL].mean()),
    (
        "token accuracy, one token barred",
        m.SequenceTokenAccuracy(logits_mask=(0.0, 0.0, -np.inf, 0.0, 0.0)),
        TOKENS,
        TOKEN_LOGITS,
        (NEVER_TWO.argmax(-1) == TOKENS)[REAL].mean(),
    ),
    (
        "token top 3",
        m.SequenceTokenTopKAccuracy(k=3),
        TOKENS,
        TOKEN_LOGITS,
        top(3, TOKEN_LOGITS, TOKENS)[REAL].mean(),
    ),
    ("token count", m.SequenceTokenCount(), TOKENS, TOKEN_LOGITS, REAL.sum()),
    ("sequence count", m.SequenceCount(), TOKENS, TOKEN_LOGITS, SOME.sum()),
    ("length", m.SequenceLength(), TOKENS, TOKEN_LOGITS, REAL.sum() / SOME.sum()),
    (
        "oov",
        m.SequenceTokenOOVRate(oov_target_values=(3, 4)),
        TOKENS,
        TOKEN_LOGITS,
        np.isin(TOKENS, [3, 4])[REAL].mean(),
    ),
    (
        "truncation",
        m.SequenceTruncationRate(eos_target_value=4),
        TOKENS,
        TOKEN_LOGITS,
        np.mean([4 not in row for row, some in zip(TOKENS, SOME, strict=True) if some]),
    ),
    (
        "by domain",
        m.PerDomainMetric(m.CrossEntropyLoss(), num_domains=3),
        Y,
        LOGITS,
        [cross_entropy(d == DOMAINS) for d in range(3)],
    ),
    (
        "confusion by domain",
        m.PerDomainMetric(m.ConfusionMatrix(num_classes=CLASSES), num_domains=3),
        Y,
        LOGITS,
        None,
    ),
    ("auc", m.AUC(), BINARY, SIGMOID, None),
]


def batches(y, predictions, size):
    """Return batches of ``size``, padded with rows that would spoil results."""
    for begin in range(0, N, size):
        rows = slice(begin, begin + size)
        batch, guess = {"y": y[rows], "domain_id": DOMAINS[rows]}, predictions[rows]

        def pad(x, value, short=N - guess.shape[0]):
            return np.concatenate([x, np.full((short, *x.shape[1:]), value, x.dtype)])

        batch = {name: pad(x, 1) for name, x in batch.items()}
        yield batch | {m.MASK_KEY: np.arange(N) < len(guess)}, pad(guess, np.nan)


@pytest.mark.default_cases(
    "binary, probabilities",
    "perplexity",
    "sequence loss",
    "token accuracy, one token barred",
    "token top 3",
    "token count",
    "length",
    "oov",
    "truncation",
    "confusion by domain",
)
@pytest.mark.parametrize(("metric", "y", "predictions", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_agrees_with_numpy_over_any_batching(metric, y, predictions, expected):
    found = []
    step = jax.jit(lambda b, p: m.evaluate_batch(metric, b, p))
    for size in (N, 8, 5):
        total = metric.zero()
        for batch, guess in batches(y, predictions, size):
            total = total.merge(step(batch, guess))
        found.append(total)
        if expected is not None:
            np.testing.assert_allclose(total.result(), expected, rtol=2e-6, atol=1e-7)
    # Integer leaves are exactly equal for all batchings.
    for other in found[1:]:
        for a, b in zip(jax.tree.leaves(found[0]), jax.tree.leaves(other), strict=True):
            if np.issubdtype(a.dtype, np.integer):
                np.testing.assert_array_equal(a, b)


@pytest.mark.default_cases("metric3-y3-predictions3")
@pytest.mark.parametrize(
    ("metric", "y", "predictions"),
    [c[1:4] for c in CASES if type(c[1]).evaluate_examples is not m.Metric.evaluate_examples],
)
def test_a_batch_is_its_examples(metric, y, predictions):
    """A metric's own evaluation of a batch equals that of its examples one by one."""
    batch, mask = {"y": y, "domain_id": DOMAINS}, np.arange(N) % 3 > 0
    ours = metric.evaluate_examples(batch, predictions, mask)
    plain = m.Metric.evaluate_examples(metric, batch, predictions, mask)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, plain)


@pytest.mark.full
def test_no_examples_give_zero():
    for name, metric in {type(c[1]): c[:2] for c in CASES}.values():
        result = np.asarray(metric.zero().result())
        np.testing.assert_array_equal(result, 1 if name == "perplexity" else 0, err_msg=name)


def test_domains_sum_to_the_whole_without_those_outside():
    metric = m.PerDomainMetric(m.ConfusionMatrix(num_classes=CLASSES), num_domains=3)
    found = m.evaluate_batch(metric, {"y": Y, "domain_id": DOMAINS}, LOGITS).result()
    for domain in range(3):
        table = np.zeros((CLASSES, CLASSES), int)
        for target, guess, d in zip(Y, LOGITS.argmax(-1), DOMAINS, strict=True):
            table[target, guess] += d == domain
        np.testing.assert_array_equal(found[domain], table)


@pytest.mark.full
def test_a_statistic_shows_its_result():
    assert str(m.MeanStat.new(2, 4)).startswith("MeanStat(accum=") and str(m.MeanStat.new(2, 4)).endswith("=> 0.5")
    assert str(m.SumStat.new(3)).endswith("=> 3")


def test_counts_stay_exact_where_float32_would_stop():
    metric = m.Accuracy()
    one = m.evaluate_batch(metric, {"y": Y[:1]}, np.eye(CLASSES)[Y[:1]])
    many = dataclasses.replace(one, accum=np.int32(2**24), weight=np.int32(2**24))
    assert int(many.merge(one).weight) == 2**24 + 1


@pytest.mark.full
def test_ties_and_classes_that_do_not_exist():
    flat = np.zeros((4, CLASSES), np.float32)
    batch = {"y": np.array([0, 4, 5, -1])}
    # tf.math.in_top_k: every class with the k-th highest score is in; a class out of range is not.
    for k, share in ((1, 0.5), (0, 0.0), (-5, 0.0)):
        np.testing.assert_allclose(m.evaluate_batch(m.TopKAccuracy(k=k), batch, flat).result(), share)
    assert int(m.evaluate_batch(m.ConfusionMatrix(num_classes=CLASSES), batch, flat).result().sum()) == 2
    assert np.isnan(m.evaluate_batch(m.CrossEntropyLoss(), batch, flat).result())
    # Padding outside the vocabulary counts for nothing.
    tokens = np.array([[1, -100]])
    loss = m.SequenceTokenCrossEntropyLoss(masked_target_values=(-100,))
    found = m.evaluate_batch(loss, {"y": tokens}, np.zeros((1, 2, CLASSES)))
    np.testing.assert_allclose(found.result(), np.log(CLASSES), rtol=1e-6)


@pytest.mark.full
def test_half_precision_is_summed_in_float32():
    import ml_dtypes

    rows = np.tile(LOGITS, (40, 1)).astype(ml_dtypes.bfloat16)
    y = np.tile(Y, 40)
    found = m.evaluate_batch(m.CrossEntropyLoss(), {"y": y}, rows).result()
    exact = -np.mean(log_softmax(rows.astype(np.float32))[np.arange(len(y)), y])
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.default_cases("interpolation-PR", "minoring-PR")
@pytest.mark.parametrize("curve", ["ROC", "PR"])
@pytest.mark.parametrize("method", ["interpolation", "minoring", "majoring"])
def test_auc_is_that_of_keras(curve, method):
    import keras

    theirs = keras.metrics.AUC(num_thresholds=50, curve=curve, summation_method=method)
    ours = m.AUC(num_thresholds=50, curve=curve, summation_method=method)
    logits = m.AUC(num_thresholds=50, curve=curve, summation_method=method, from_logits=True)
    stat, from_logits = ours.zero(), logits.zero()
    for begin in range(0, N, 10):
        rows = slice(begin, begin + 10)
        theirs.update_state(BINARY[rows], SIGMOID[rows])
        stat = stat.merge(m.evaluate_batch(ours, {"y": BINARY[rows]}, SIGMOID[rows]))
        from_logits = from_logits.merge(m.evaluate_batch(logits, {"y": BINARY[rows]}, SCORE[rows]))
    np.testing.assert_allclose(stat.result(), theirs.result(), rtol=1e-6)
    np.testing.assert_allclose(from_logits.result(), theirs.result(), rtol=1e-6)
    for name, counts in stat.confusion().items():
        np.testing.assert_array_equal(counts, np.asarray(getattr(theirs, name)))


@pytest.mark.full
@pytest.mark.parametrize("curve", ["ROC", "PR"])
def test_auc_where_classes_or_values_are_missing(curve):
    import keras

    for y, p in [([1, 1], [0.2, 0.9]), ([0, 0], [0.1, 0.3]), ([0, 1], [0.0, 1.0]), ([1, 0], [0.5, 0.5])]:
        theirs = keras.metrics.AUC(curve=curve)
        theirs.update_state(y, p)
        found = m.evaluate_batch(m.AUC(curve=curve), {"y": np.array(y)}, np.array(p, np.float32)).result()
        np.testing.assert_allclose(found, theirs.result(), rtol=1e-6)


KERAS = [
    ("SparseCategoricalCrossentropy", {"from_logits": True}, m.CrossEntropyLoss(), Y, LOGITS),
    ("SparseCategoricalCrossentropy", {}, m.CrossEntropyLoss(from_logits=False), Y, PROBS),
    (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        m.CategoricalCrossEntropyLoss(label_smoothing=0.1),
        ONE_HOT,
        LOGITS,
    ),
    ("CategoricalCrossentropy", {}, m.CategoricalCrossEntropyLoss(from_logits=False), ONE_HOT, PROBS.round()),
    (
        "BinaryCrossentropy",
        {"label_smoothing": 0.1},
        m.BinaryCrossEntropyLoss(from_logits=False, label_smoothing=0.1),
        BINARY,
        SIGMOID.round(),
    ),
    ("SparseCategoricalAccuracy", {}, m.Accuracy(), Y, LOGITS),
    ("SparseTopKCategoricalAccuracy", {"k": 3}, m.TopKAccuracy(k=3), Y, LOGITS.round()),
    ("BinaryAccuracy", {"threshold": 0.6}, m.BinaryAccuracy(threshold=0.6), BINARY, SIGMOID),
    ("MeanSquaredError", {}, m.MeanSquaredError(), VALUES, GUESS),
    ("MeanAbsoluteError", {}, m.MeanAbsoluteError(), VALUES, GUESS),
]


@pytest.mark.default_cases("CategoricalCrossentropy0", "BinaryAccuracy", "MeanAbsoluteError")
@pytest.mark.parametrize(("name", "options", "ours", "y", "predictions"), KERAS, ids=[k[0] for k in KERAS])
def test_agrees_with_keras(name, options, ours, y, predictions):
    import keras

    theirs = getattr(keras.metrics, name)(**options)
    rows = (lambda x: x[:, None]) if name.startswith("Binary") else (lambda x: x)
    theirs.update_state(rows(y), rows(predictions))
    np.testing.assert_allclose(m.evaluate_batch(ours, {"y": y}, predictions).result(), theirs.result(), rtol=2e-6)


@pytest.mark.full
def test_predictions_by_name():
    metric = m.Accuracy(target_key="label", pred_key="logits")
    found = m.evaluate_batch(metric, {"label": Y}, {"logits": LOGITS, "features": VALUES})
    np.testing.assert_allclose(found.result(), np.mean(LOGITS.argmax(-1) == Y))


@pytest.mark.default_cases(
    "<lambda>-'roc'",
    "<lambda>-5 classes",
    "<lambda>-a tuple of integers0",
    "<lambda>-a tuple of integers1",
    "<lambda>-integer",
    "<lambda>-at least 2",
    "<lambda>-base is a metric",
    "<lambda>-differ",
    "<lambda>-differ in the number of examples",
    "<lambda>-do not fit",
    "<lambda>-each of masked_target_values",
    "<lambda>-eos_target_value0",
    "<lambda>-eos_target_value1",
    "<lambda>-expected class numbers",
    "<lambda>-k is an integer",
    "<lambda>-name the array in it",
    "<lambda>-no key 'y'; it has ['x']",
    "<lambda>-no key 'z'",
    "<lambda>-num_classes",
    "<lambda>-num_classes is an integer",
    "<lambda>-num_domains",
    "<lambda>-num_thresholds is an integer",
    "<lambda>-oov_target_values",
    "<lambda>-the mask (3,)",
)
@pytest.mark.parametrize(
    ("run", "says"),
    [
        (lambda: m.evaluate_batch(m.Accuracy(), {"x": Y}, LOGITS), "no key 'y'; it has ['x']"),
        (lambda: m.evaluate_batch(m.Accuracy(), {"y": Y}, {"logits": LOGITS}), "name the array in it"),
        (lambda: m.evaluate_batch(m.Accuracy(pred_key="z"), {"y": Y}, LOGITS), "no key 'z'"),
        (lambda: m.evaluate_batch(m.Accuracy(), {"y": Y[:3]}, LOGITS), "differ in the number of examples"),
        (lambda: m.evaluate_batch(m.Accuracy(), {"y": Y}, LOGITS, np.ones(3, bool)), "the mask (3,)"),
        (lambda: m.evaluate_batch(m.CrossEntropyLoss(), {"y": VALUES}, LOGITS), "do not fit"),
        (lambda: m.evaluate_batch(m.MeanSquaredError(), {"y": VALUES}, LOGITS), "differ"),
        (lambda: m.evaluate_batch(m.ConfusionMatrix(num_classes=3), {"y": Y}, LOGITS), "5 classes"),
        (lambda: m.TopKAccuracy(k=0.5), "integer"),
        (lambda: m.ConfusionMatrix(), "num_classes"),
        (lambda: m.AUC(curve="roc"), "'roc'"),
        (lambda: m.AUC(num_thresholds=1), "at least 2"),
        (lambda: m.SequenceTokenOOVRate(), "oov_target_values"),
        (lambda: m.SequenceTruncationRate(), "eos_target_value"),
        (lambda: m.PerDomainMetric(m.Accuracy(), 0), "num_domains"),
        (lambda: m.PerDomainMetric(m.Accuracy, 2), "base is a metric"),
        (lambda: m.TopKAccuracy(k=1.5), "k is an integer"),
        (lambda: m.AUC(num_thresholds=2.5), "num_thresholds is an integer"),
        (lambda: m.ConfusionMatrix(num_classes="3"), "num_classes is an integer"),
        (lambda: m.SequenceTokenOOVRate(oov_target_values=3), "a tuple of integers"),
        (lambda: m.SequenceTokenTopKAccuracy(masked_target_values=[0]), "a tuple of integers"),
        (lambda: m.SequenceTokenCount(masked_target_values=("pad",)), "each of masked_target_values"),
        (lambda: m.SequenceTruncationRate(eos_target_value="end"), "eos_target_value"),
        (lambda: m.evaluate_batch(m.Accuracy(), {"y": Y}, Y), "expected class numbers"),
        (
            lambda: m.evaluate_batch(m.Accuracy(), {"y": Y, "s": np.array(["a"] * N)}, LOGITS),
            "'s' in the batch is text",
        ),
        (
            lambda: m.evaluate_batch(m.Accuracy(), {"y": np.ones((N, 1), np.float32)}, LOGITS[:, :1]),
            "scores of one class, which would always be right",
        ),
    ],
)
def test_errors_say_what_is_wrong(run, says):
    with pytest.raises(InputError) as caught:
        run()
    assert says in str(caught.value)


@pytest.mark.full
def test_metrics_are_static_arguments():
    assert hash(m.PerDomainMetric(m.AUC(), 3)) == hash(m.PerDomainMetric(m.AUC(), 3))
    assert m.TopKAccuracy(k=2) != m.TopKAccuracy(k=3)
