"""Codes: read back, unbiased where they say so, and as many bits as they say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators.compression import rotate, rotate_back, walsh_hadamard
from tf2jax_lite.learning.process import ClientUpdates

from .cohort import MASK, TEMPLATE, aggregate, flat, make, vector

SIZE = 50
RNG = np.random.default_rng(0)
# Each value is far enough from zero that 3,000 draws contain both of its roundings.
X = (RNG.uniform(0.3, 2.0, SIZE) * RNG.choice([-1, 1], SIZE)).astype(np.float32)
KEYS = jax.random.split(jax.random.key(1), 3000)


def round_trips(codec, shared=None):
    """Return decoded vectors (3000, 50) and bits, with a key for each.

    The shared key varies, too, unless it is given.
    """

    @jax.jit
    @jax.vmap
    def one(key):
        both = key, jax.random.fold_in(key, 1) if shared is None else shared
        sent = codec.encode(jnp.asarray(X), *both)
        return codec.decode(sent, SIZE, *both), codec.bits(sent, SIZE)

    decoded, bits = one(KEYS)
    return np.asarray(decoded, np.float64), np.asarray(bits)


@pytest.mark.default_cases("1")
@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_hadamard(size):
    x = np.random.default_rng(size).normal(size=size).astype(np.float32)
    expected = scipy.linalg.hadamard(size).astype(float) @ x / math.sqrt(size)
    np.testing.assert_allclose(walsh_hadamard(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_rotations_keep_lengths_and_turn_back():
    key = jax.random.key(3)
    rotated = rotate(jnp.asarray(X), key)
    assert rotated.shape == (64,)
    np.testing.assert_allclose(jnp.linalg.norm(rotated), np.linalg.norm(X), rtol=1e-6)
    np.testing.assert_allclose(rotate_back(rotated, SIZE, key), X, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("codec", "bits"),
    [
        pytest.param(agg.UniformQuantizer(4), 64 + 2 * SIZE, marks=pytest.mark.full),
        (agg.UniformQuantizer(5), 64 + 3 * SIZE),
        (agg.RotatedUniformQuantizer(16), 64 + 4 * 64),
        (agg.Drive(), 64 + 32),
        (agg.TernGrad(), 8 * 10 + 32),
    ],
)
def test_unbiased_codes_have_the_right_mean_and_the_stated_bits(codec, bits):
    decoded, sent = round_trips(codec)
    error = decoded.std(0) / math.sqrt(len(KEYS))
    # DRIVE is unbiased over uniform rotations; the Hadamard transform is near to one, not quite.
    allowed = 5 * error + (0.01 * np.abs(X).max() if isinstance(codec, agg.Drive) else 1e-6)
    assert (np.abs(decoded.mean(0) - X) < allowed).all()
    np.testing.assert_array_equal(sent, bits)


def test_uniform_levels_are_the_two_next_to_each_number():
    decoded, _ = round_trips(agg.UniformQuantizer(9))
    levels = np.linspace(X.min(), X.max(), 9)
    step = levels[1] - levels[0]
    assert np.abs(decoded[:, :, None] - levels).min(-1).max() < 1e-5 * step + 1e-5
    assert (np.abs(decoded - X) < step * (1 + 1e-5)).all()


@pytest.mark.full
def test_a_shared_rotation_alone_leaves_no_bias():
    """Rounding after any rotation is unbiased, so clients may share it."""
    decoded, _ = round_trips(agg.RotatedUniformQuantizer(8), shared=jax.random.key(9))
    assert (np.abs(decoded.mean(0) - X) < 5 * decoded.std(0) / math.sqrt(len(KEYS)) + 1e-6).all()


@pytest.mark.full
def test_drive_errs_as_its_paper_says():
    """The squared error is 1 - 2/pi at the best scale, else pi/2 - 1.

    This holds for large vectors.
    """
    x = np.random.default_rng(2).normal(size=4096).astype(np.float32)
    for unbiased, share in [(False, 1 - 2 / math.pi), (True, math.pi / 2 - 1)]:
        codec = agg.Drive(unbiased=unbiased)
        sent = codec.encode(jnp.asarray(x), jax.random.key(0), None)
        found = np.asarray(codec.decode(sent, 4096, jax.random.key(0), None))
        np.testing.assert_allclose(((found - x) ** 2).sum() / (x**2).sum(), share, rtol=0.08)


def test_terngrad_clips_to_standard_deviations():
    decoded, _ = round_trips(agg.TernGrad(clip_stddevs=1.0))
    clipped = np.clip(X, -X.std(), X.std())
    assert (np.abs(decoded.mean(0) - clipped) < 5 * decoded.std(0) / math.sqrt(len(KEYS)) + 1e-6).all()
    np.testing.assert_allclose(np.unique(np.abs(decoded)), [0, np.abs(clipped).max()], rtol=1e-6)


def gamma_code(number):
    """Return an Elias gamma code: a zero for each digit after the first, the digits."""
    digits = f"{number:b}"
    return "0" * (len(digits) - 1) + digits


def run_length_code(levels):
    """Return the bits of TensorFlow Compression's run_length_gamma_encode."""
    found, zeros = "", 0
    for level in levels:
        if level:
            found += gamma_code(zeros + 1) + str(int(level > 0)) + gamma_code(abs(level))
        zeros = 0 if level else zeros + 1
    return found + (gamma_code(zeros + 1) if zeros else "")


def test_elias_gamma_has_the_bits_of_its_codes():
    codec, rng = agg.EliasGamma(0.25), np.random.default_rng(3)
    trip = jax.jit(lambda x: (sent := codec.encode(x, jax.random.key(0), None), codec.bits(sent, SIZE)))
    scales = np.float32([[0], [0.05], [3], [1e4], [3e38]])
    for x in np.where(rng.random((5, SIZE)) < 0.3, scales * rng.uniform(-1, 1, (5, SIZE)), 0).astype(np.float32):
        sent, bits = trip(x)
        levels = np.asarray(sent["level"])
        kept = np.abs(x) < 1e6
        assert (np.abs(levels[kept] * 0.25 - x[kept]) < 0.25).all() and (np.sign(levels) * np.sign(x) >= 0).all()
        assert float(bits) == 8 * math.ceil(len(run_length_code(levels.tolist())) / 8)
        assert np.isfinite(codec.decode(sent, SIZE, None, None)).all()


@pytest.mark.full
def test_entropy_compression_sums_weighted_levels():
    """As TFF's: steps of 0.5 of the weighted updates, after zeroing and clipping."""
    updates = make()
    found = aggregate(agg.entropy_compression_aggregator(zeroing=False, clipping=False).create(TEMPLATE), updates)
    weights = updates.weight[MASK].astype(float)
    levels = vector(found.result) * weights.sum() / 0.5
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-4)
    assert (np.abs(levels * 0.5 - (flat(updates) * weights[:, None]).sum(0)) < 0.5 * len(weights)).all()
    whole = aggregate(agg.entropy_compression_aggregator(step_size=0.1).create(TEMPLATE), updates)
    assert float(whole.measurements["zeroing"]["clipping"]["mean_value"]["compression_ratio"]) > 0


@pytest.mark.full
@pytest.mark.parametrize(("fraction", "kept", "index_bits"), [(0.1, 5, 30), (0.5, 25, 50)])
def test_top_k(fraction, kept, index_bits):
    codec = agg.TopK(fraction)
    sent = codec.encode(jnp.asarray(X), None, None)
    expected = np.where(np.abs(X) >= np.sort(np.abs(X))[-kept], X, 0)
    np.testing.assert_array_equal(codec.decode(sent, SIZE, None, None), expected)
    assert float(codec.bits(sent, SIZE)) == 32 * kept + index_bits


@pytest.mark.full
@pytest.mark.parametrize(
    ("fraction", "size", "number"),
    [(0.07, 100, 7), (0.14, 50, 7), (0.55, 100, 55), (1 / 3, 3, 1), (0.071, 100, 8), (1e-9, 5, 1), (1.0, 5, 5)],
)
def test_top_k_sends_the_share_that_was_meant(fraction, size, number):
    """Not one more because 0.07 * 100 is 7.000000000000001."""
    sent = agg.TopK(fraction).encode(jnp.arange(size, dtype=jnp.float32), None, None)
    assert sent["value"].shape == (number,)


CODECS = [agg.UniformQuantizer(2), agg.RotatedUniformQuantizer(4), agg.Drive(), agg.Drive(False), agg.TopK(0.5)]


@pytest.mark.default_cases(
    "RotatedUniformQuantizer(num_levels=4, coding='fixed')", "Drive(unbiased=True)", "TernGrad(clip_stddevs=None)"
)
@pytest.mark.parametrize("codec", [*CODECS, agg.TernGrad(), agg.TernGrad(2.5)], ids=repr)
def test_codes_are_as_good_for_any_size_of_numbers(codec):
    """Differences and squares of numbers near 3e38 overflow, of 1e-30 vanish."""
    keys = jax.random.key(0), jax.random.key(1)
    x = np.float32([3, -3, 0, 1, -2, 0.5, 2.5, -1])

    @jax.jit
    def trip(x):
        return codec.decode(codec.encode(x, *keys), 8, *keys)

    expected = trip(x)
    for power in (-110, 60, 100, 124):
        np.testing.assert_allclose(trip(x * np.float32(2) ** power) / np.float32(2) ** power, expected, rtol=1e-5)
    most = np.finfo(np.float32).max
    for extreme in ([most] * 7 + [-most], [most, -most] * 4, [most] + [0] * 7, [most, -most, *x[2:]]):
        found = trip(np.float32(extreme))
        assert np.isfinite(found).all() and np.abs(found).max() > 1e37


@pytest.mark.full
def test_an_attacker_leaves_the_measurements_numbers():
    updates = make()
    updates.update["w"][0] = 3e38
    found = aggregate(agg.CompressionFactory(agg.Drive(), agg.CoordinateMedianFactory()).create(TEMPLATE), updates)
    assert all(np.isfinite(v) for v in (*found.measurements.values(), *vector(found.result)))
    assert 0 < float(found.measurements["distortion"]) < 1


@pytest.mark.full
def test_entropy_coding_counts_the_levels_that_came():
    codec = agg.UniformQuantizer(3, coding="entropy")
    x = np.zeros(4000, np.float32)
    x[:10], x[10:15] = 1, -1
    sent = codec.encode(jnp.asarray(x), jax.random.key(0), None)
    share = np.array([10, 5, 3985]) / 4000
    expected = 64 + 3 * 32 + math.ceil(-4000 * (share * np.log2(share)).sum())
    assert abs(float(codec.bits(sent, 4000)) - expected) <= 1
    # Short vectors are not worth a table.
    assert float(codec.bits(codec.encode(jnp.asarray(X), jax.random.key(0), None), SIZE)) == 64 + 2 * SIZE


@pytest.mark.full
@pytest.mark.parametrize("codec", [agg.UniformQuantizer(), agg.Drive(), agg.TernGrad()])
def test_a_vector_of_equal_numbers(codec):
    for value in (0.0, 2.5):
        x = jnp.full((8,), value)
        found = codec.decode(codec.encode(x, jax.random.key(0), jax.random.key(1)), 8, jax.random.key(0), None)
        if not (isinstance(codec, agg.Drive) and value):
            np.testing.assert_allclose(found, value, rtol=1e-6)
        assert np.isfinite(found).all()


@pytest.mark.full
def test_the_aggregation_measures_what_was_sent():
    updates = make()
    x, w = flat(updates), updates.weight[MASK].astype(float)
    exact = agg.CompressionFactory(agg.TopK(1.0))
    found = aggregate(exact.create(TEMPLATE), updates, whole=True)
    np.testing.assert_allclose(vector(found.result), (x * w[:, None]).sum(0) / w.sum(), rtol=1e-5, atol=1e-6)
    assert float(found.measurements["distortion"]) == 0

    factory = agg.CompressionFactory(agg.UniformQuantizer(16), agg.UnweightedMeanFactory(), threshold=6)
    found = aggregate(factory.create(TEMPLATE), updates)
    bits = 5 * 32 + 64 + 12 * 4  # the bias is below the threshold
    assert float(found.measurements["bits_per_client"]) == bits
    np.testing.assert_allclose(found.measurements["compression_ratio"], 17 * 32 / bits, rtol=1e-6)
    np.testing.assert_allclose(found.result["b"], x[:, :5].mean(0), rtol=1e-5, atol=1e-6)
    # Each number is within one step of its own, and the mean within the mean step.
    steps = (x[:, 5:].max(1) - x[:, 5:].min(1)) / 15
    assert np.abs(vector(found.result)[5:] - x[:, 5:].mean(0)).max() <= steps.mean()
    assert 0 < float(found.measurements["distortion"]) < 0.01


@pytest.mark.full
def test_the_recommended_combination_runs_whole():
    found = aggregate(agg.compression_aggregator().create(TEMPLATE), make())
    inner = found.measurements["zeroing"]["clipping"]["mean_value"]
    assert set(inner) == {"bits_per_client", "compression_ratio", "distortion"}
    assert float(found.measurements["zeroing_norm"]) == 21.0


@pytest.mark.full
def test_recommended_quantizes_large_weighted_tensors():
    """As TFF's: only tensors of more than 20,000 numbers, after the weighting."""
    shapes = {"large": (20_001,), "small": (20_000,)}
    template = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    factory = agg.compression_aggregator(zeroing=False, clipping=False)
    update = {name: np.linspace(-1, 1, shape[0], dtype=np.float32)[None].repeat(2, 0) for name, shape in shapes.items()}
    given = ClientUpdates(update, np.float32([1, 3]), np.ones(2, bool), np.arange(2, dtype=np.int32))
    process = factory.create(template)
    found = process.next(process.initialize(), given, jax.random.key(0))
    assert float(found.measurements["mean_value"]["bits_per_client"]) == 32 * 20_000 + 64 + 8 * 20_001
    np.testing.assert_allclose(found.result["small"], update["small"][0], atol=1e-6)
    # A level of the weighted update is 3 * 2 / 255 for the second client, a quarter of whose sum is the mean's.
    error = np.abs(found.result["large"] - update["large"][0]).max()
    assert 1e-4 < error <= (1 + 3) * 2 / 255 / 4 + 1e-6
