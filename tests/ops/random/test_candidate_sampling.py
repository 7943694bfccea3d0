"""Candidate samplers: distributions, expected counts, accidental hits."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import LoweringError

TRUE = np.array([[1, 2], [3, 4], [0, 7]], np.int64)
CASES = [
    case("AllCandidateSampler", TRUE, num_true=2, num_sampled=9, unique=True),
    case("AllCandidateSampler", TRUE, num_true=2, num_sampled=5, unique=True).using(error="must be in [0, 5)"),
    # Under jit the results are padded: see test_accidental_hits_under_jit.
    *(
        case("ComputeAccidentalHits", true, sampled, num_true=2).using(name=name, jit=False, vmap=False)
        for name, true, sampled in (
            ("some", TRUE, np.array([4, 1, 9], np.int64)),
            ("candidates repeat", TRUE, np.array([4, 7, 4, 0, 7], np.int64)),
            ("classes repeat", TRUE // 7, np.array([1, 0], np.int64)),
            ("none", TRUE, np.array([8, -1], np.int64)),
            ("no candidates", TRUE, np.zeros(0, np.int64)),
            ("no rows", TRUE[:0], np.array([4, 1], np.int64)),
        )
    ),
    case("ComputeAccidentalHits", TRUE, TRUE[0], num_true=1).using(error="a matrix of 1 columns"),
    case("ComputeAccidentalHits", TRUE, TRUE, num_true=2).using(error="must be a vector"),
]
TESTED_OTHERWISE = {
    "UniformCandidateSampler",
    "LogUniformCandidateSampler",
    "FixedUnigramCandidateSampler",
}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def draw(fn, seed=0, args=()):
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in args]
    return jax.jit(tf2jax.convert_functional(tf.function(fn), *specs))(*args, rng=jax.random.key(seed))


@pytest.mark.full
@pytest.mark.parametrize("op", ["UniformCandidateSampler", "LogUniformCandidateSampler"])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("x64", [False, True])
def test_candidates(op, unique, x64):
    def fn(classes, seed=0):
        return getattr(tf.raw_ops, op)(
            true_classes=classes, num_true=2, num_sampled=6, unique=unique, range_max=8, seed=seed, seed2=seed
        )

    with jax.enable_x64(x64):
        sampled, true_count, sampled_count = map(np.asarray, draw(fn, args=(TRUE,)))
        assert sampled.dtype == (np.int64 if x64 else np.int32) and sampled.shape == (6,)
        assert np.all((sampled >= 0) & (sampled < 8))
        assert true_count.dtype == sampled_count.dtype == np.float32 and true_count.shape == TRUE.shape
        assert not unique or len(set(sampled.tolist())) == 6
        # Expected counts depend on the number of tries only: the same number gives TensorFlow's.
        tables = [fn(TRUE, seed)[1].numpy() for seed in range(1, 80 if unique else 1)] or [fn(TRUE)[1].numpy()]
        assert any(np.allclose(true_count, table, rtol=1e-5) for table in tables)
        table = dict(zip(TRUE.reshape(-1).tolist(), true_count.reshape(-1), strict=True))
        for value, count in zip(sampled.tolist(), sampled_count, strict=True):
            assert np.isclose(count, table.get(value, count))
        other = np.asarray(draw(fn, seed=1, args=(TRUE,))[0])
        assert not np.array_equal(sampled, other)


def test_log_uniform_distribution():
    fn = lambda x: tf.raw_ops.LogUniformCandidateSampler(  # noqa: E731
        true_classes=x, num_true=2, num_sampled=20_000, unique=False, range_max=6
    )[0]
    drawn = np.asarray(draw(fn, args=(TRUE % 6,)))
    expected = np.diff(np.log1p(np.arange(7))) / np.log1p(6)
    np.testing.assert_allclose(np.bincount(drawn, minlength=6) / 20_000, expected, atol=0.015)


def test_too_few_classes_raise():
    with pytest.raises(LoweringError, match="too few"):
        draw(
            lambda x: tf.raw_ops.UniformCandidateSampler(
                true_classes=x, num_true=2, num_sampled=9, unique=True, range_max=8
            ),
            args=(TRUE,),
        )


@pytest.mark.full
@pytest.mark.parametrize(
    "attributes",
    [
        {"range_max": 5, "unigrams": [1.0, 2.0, 3.0, 0.0, 5.0], "distortion": 0.5},
        {"range_max": 7, "unigrams": [1.0, 2.0, 3.0, 4.0, 5.0], "num_reserved_ids": 2},
        {"range_max": 3, "unigrams": [1.0, 2.0, 3.0, 4.0, 5.0], "num_shards": 2},
        {"range_max": 4, "unigrams": [1.0, 2, 3, 4, 5], "num_shards": 2, "shard": 1, "num_reserved_ids": 3},
    ],
)
def test_fixed_unigrams(attributes):
    def fn(x):
        return tf.raw_ops.FixedUnigramCandidateSampler(
            true_classes=x, num_true=1, num_sampled=20_000, unique=False, **attributes
        )

    classes = np.arange(attributes["range_max"])[:, None]
    try:
        expected = fn(classes)
    except tf.errors.InvalidArgumentError:
        with pytest.raises(LoweringError, match="weights"):
            draw(fn, args=(classes,))
        return
    sampled, true_count, sampled_count = map(np.asarray, draw(fn, args=(classes,)))
    np.testing.assert_allclose(true_count, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(sampled_count, true_count[sampled, 0])
    np.testing.assert_allclose(np.bincount(sampled, minlength=len(classes)), true_count[:, 0], atol=300)


def test_unique_fixed_unigrams():
    def fn(x):
        return tf.raw_ops.FixedUnigramCandidateSampler(
            true_classes=x, num_true=2, num_sampled=3, unique=True, range_max=4, unigrams=[1.0, 2.0, 0.0, 1.0]
        )

    assert sorted(np.asarray(draw(fn, args=(TRUE % 4,))[0]).tolist()) == [0, 1, 3]


@pytest.mark.default_cases("none-False-3", "no candidates-False-9")
@pytest.mark.parametrize("bound", [3, 9])
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("sampled", [[4, 7, 4, 0], [9], []], ids=["hits", "none", "no candidates"])
def test_accidental_hits_under_jit(sampled, x64, bound):
    """Results that leave jit are padded to the bound; their sizes are not."""
    candidates = np.array(sampled, np.int64)
    function = tf.function(lambda t, c: tuple(tf.nn.compute_accidental_hits(t, c, 2)), autograph=False)
    expected = function(TRUE, candidates)
    with jax.enable_x64(x64), tf2jax.override_config("dynamic_shape_bound", bound):
        actual = jax.jit(
            tf2jax.convert_functional(function, *(tf.TensorSpec(a.shape, a.dtype) for a in (TRUE, candidates)))
        )(TRUE, candidates)
        sized = jax.jit(tf2jax.convert_functional(tf.function(lambda c: tf.size(function(TRUE, c)[0])), candidates))(
            candidates
        )
    for padded, hits, fill in zip(actual, expected, (-1, -1, 0), strict=True):
        hits = np.concatenate([hits, np.full(9, fill)])[:bound]
        np.testing.assert_array_equal(padded, hits)
    assert sized == min(bound, len(expected[0]))


@pytest.mark.full
@pytest.mark.parametrize("removed", [True, False])
def test_sampled_softmax(removed):
    """A sampled true class counts once. Samples are constants here."""
    rng = np.random.default_rng(0)
    weights, biases = (tf.Variable(rng.normal(size=s).astype(np.float32)) for s in ((12, 4), (12,)))
    x, y, sampled = rng.normal(size=(6, 4)).astype(np.float32), rng.integers(0, 12, (6, 2)), np.array([3, 1, 7, 0])

    @tf.function(autograph=False)
    def loss(x, y, sampled):
        expected = tf.fill([6, 2], 0.1), tf.fill([4], 0.2)
        return tf.reduce_sum(
            tf.nn.sampled_softmax_loss(
                weights, biases, y, x, 4, 12, 2, sampled_values=(sampled, *expected), remove_accidental_hits=removed
            )
        )

    assert np.isin(y, sampled).any()
    converted, params = tf2jax.convert(loss, x, y, sampled)
    value, grads = jax.jit(jax.value_and_grad(lambda p: converted(p, x, y, sampled)[0]))(params)
    traced = jax.jit(lambda p, *a: converted(p, *a)[0])(params, x, y, sampled)
    with tf.GradientTape() as tape:
        expected = loss(x, y, sampled)
    np.testing.assert_allclose([value, traced], [expected] * 2, rtol=1e-5)
    for ours, theirs in zip(grads.values(), tape.gradient(expected, [weights, biases]), strict=True):
        np.testing.assert_allclose(ours, tf.convert_to_tensor(theirs), rtol=1e-4, atol=1e-5)
