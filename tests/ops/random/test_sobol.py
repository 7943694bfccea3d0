"""SobolSample: points and direction numbers equal TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.ops.random.sobol import direction_numbers


def sobol(dimensions, count, skip, dtype=tf.float32):
    return case("SobolSample", np.int32(dimensions), np.int32(count), np.int32(skip), dtype=dtype)


CASES = [
    sobol(1, 9, 0),
    sobol(3, 40, 0, tf.float64).using(baked=("skip",)),
    sobol(1111, 3, 12345),
    sobol(7, 20, 2**28 + 3, tf.float64),
    sobol(5, 1, 0).using(name="one"),
    sobol(2, 1, 2**29 - 5),
    sobol(1112, 1, 0).using(error="dim must be between"),
    sobol(2, 0, 0).using(error="num_results must be at least one"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
def test_direction_numbers():
    """Point 2^k is the xor of direction numbers k and k - 1 (Gray code)."""
    found = np.zeros(1111, np.uint32)
    for k in range(28):
        point = tf.raw_ops.SobolSample(dim=1111, num_results=1, skip=2**k - 1, dtype=tf.float64)[0].numpy()
        found = found ^ (point * 2.0**32).astype(np.uint32)
        np.testing.assert_array_equal(direction_numbers()[:, k], found)
