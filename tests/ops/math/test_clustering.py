"""Initial centers for k-means against TensorFlow, by seed."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tests.ops import batches
from tests.ops.harness import case
from tf2jax_lite.errors import Tf2JaxError

TESTED_OTHERWISE = {"KMC2ChainInitialization", "KmeansPlusPlusInitialization"}
RNG = np.random.default_rng(0)
F = np.float32
SEEDS = np.array([0, 1, 7, 2**40 + 5, -3, -(2**40)])


def begin(count, retries):
    return lambda points, seed: tf.raw_ops.KmeansPlusPlusInitialization(
        points=points, num_to_sample=count, seed=seed, num_retries_per_sample=retries
    )


def chain(distances, seed):
    return tf.raw_ops.KMC2ChainInitialization(distances=distances, seed=seed)


def check(op, array, seeds=SEEDS):
    """Compare results for each seed, one by one and under vmap."""
    with jax.enable_x64(True):
        call = tf2jax.convert_functional(tf.function(op, autograph=False), array, seeds[0])
        found = jax.jit(jax.vmap(call, (None, 0)), compiler_options=fast_options())(array, seeds)
        for actual, seed in zip(np.asarray(found), seeds, strict=True):
            expected = op(tf.constant(array), tf.constant(seed)).numpy()
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.default_cases("93-1-0")
@pytest.mark.parametrize(("count", "retries"), [(1, 0), (4, 0), (3, 2), (5, -1)])
@pytest.mark.parametrize("number", [64, 93])
def test_points(number, count, retries):
    check(begin(count, retries), RNG.normal(size=(number, 3)).astype(F))


@pytest.mark.full
@pytest.mark.parametrize("distinct", [1, 4])
def test_equal_points(distinct):
    check(begin(4, 1), np.repeat(np.arange(distinct), 12 // distinct)[:, None].astype(F))


@pytest.mark.full
@pytest.mark.parametrize("zeros", [0, 5])
def test_chains(zeros):
    distances = RNG.uniform(0, 10, 40).astype(F)
    distances[:zeros] = 0
    check(chain, distances)


def test_a_chain_of_one():
    check(chain, np.array([2], F))


@pytest.mark.full
@pytest.mark.parametrize("distances", [np.zeros(5), [0, 0, 2, 0, 0], [3, 0, 0, np.nan, 1]], ids=str)
def test_chains_over_points_at_distance_zero(distances):
    # A candidate is taken if its distance is above a random fraction of the present one, here 0.
    function = tf.function(chain, autograph=False)
    distances = np.asarray(distances, F)
    call = tf2jax.convert_functional(function, tf.TensorSpec([5]), tf.TensorSpec([], tf.int64))
    for seed in range(5):
        assert call(distances, np.int64(seed)) == function(distances, np.int64(seed)).numpy()


@pytest.mark.full
def test_without_x64():
    """A static seed under jit."""
    points = RNG.normal(size=(200, 3)).astype(F)

    def fn(x):
        return begin(4, 2)(x, 2**40 + 7), chain(tf.abs(x[:, 0]), -5)

    function = tf.function(fn, autograph=False)
    call = jax.jit(tf2jax.convert_functional(function, points), compiler_options=fast_options())
    for a, e in zip(call(points), function(points), strict=True):
        np.testing.assert_array_equal(a, e.numpy())


@pytest.mark.parametrize(
    ("op", "shape", "said"),
    [
        (begin(4, 0), (3, 2), "between 1 and the number of points, 3, got 4"),
        (begin(0, 0), (3, 2), "got 0"),
        (begin(1, 0), (None,), "rows of a matrix"),
        (begin(1, 0), (None, 2), "must be static"),
        (chain, (0,), "static length"),
    ],
)
def test_invalid_inputs_raise(op, shape, said):
    function = tf.function(op, autograph=False)
    known = tuple(0 if d is None else d for d in shape)
    try:
        call = tf2jax.convert_functional(function, tf.TensorSpec(shape), tf.TensorSpec([], tf.int64))
    except Tf2JaxError as error:  # TensorFlow may raise in its shape inference
        assert "could not trace" in str(error)
        return
    with pytest.raises(Tf2JaxError, match=said if None not in shape else f"{said}|between 1 and|rows of"):
        call(np.zeros(known, F), np.int64(0))


CASES = [
    case("NearestNeighbors", RNG.normal(size=(5, 3)).astype(F), RNG.normal(size=(6, 3)).astype(F), np.int64(k)).using(
        rtol=1e-4, atol=1e-4, name=str(k)
    )
    for k in (1, 3, 6, 9)
]


@pytest.mark.parametrize("case", batches.tiered(CASES))
def test_case(case):
    batches.check(case)
