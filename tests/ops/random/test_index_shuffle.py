"""RandomIndexShuffle: permutations equal TensorFlow's."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

SEED = np.array([1, 2, 3], np.int32)
CASES = [
    case("RandomIndexShuffle", np.arange(7, dtype=np.int32), SEED, np.int32(6)),
    case("RandomIndexShuffle", np.int32(3), SEED, np.int32(1000), rounds=6),
    case("RandomIndexShuffle", np.int64(2**40), np.array([-1, 2**35 + 7, 5]), np.int64(2**50 - 3), rounds=14),
    case("RandomIndexShuffle", np.uint64(2**63 + 5), np.array([9, 8, 7], np.uint64), np.uint64(2**64 - 1)),
    case("RandomIndexShuffle", np.uint32([5, 2**32 - 1]), np.uint32([2**32 - 1, 0, 4]), np.uint32([2**20, 2**32 - 1])),
    case("RandomIndexShuffle", np.int32(3), np.array([[1, 2, 3], [4, 5, 6]]), np.int32([65536, 65535])),
    case("RandomIndexShuffle", np.int64([0, 0, 1, 4]), SEED, np.int64([0, 1, 1, 131072])),
    case("RandomIndexShuffle", np.int32(3), SEED, np.int32(9), rounds=5).using(error="rounds must be even"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_permutation(x64):
    def fn(index):
        return tf.random.experimental.index_shuffle(index, seed=SEED[:2], max_index=99)

    with jax.enable_x64(x64):
        shuffled = np.asarray(
            tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([100], tf.int32))(np.arange(100))
        )
    assert sorted(shuffled.tolist()) == list(range(100))
    np.testing.assert_array_equal(shuffled, fn(np.arange(100)))
