"""Sizes of results, known before these are computed."""

import numpy as np
import pytest

from tf2jax_lite.ops.common import result_size


@pytest.mark.parametrize(
    ("start", "limit", "delta", "elements"),
    [(2, 11, 3, 3), (-2, 5, 2, 4), (5, -1, -2, 3), (5, 2, 1, None), (0, 1, 0, None), (0, float("inf"), 1, None)],
)
def test_range_elements(start, limit, delta, elements):
    found = result_size.range_elements(*(np.float64(v) for v in (start, limit, delta)))
    assert found == elements
