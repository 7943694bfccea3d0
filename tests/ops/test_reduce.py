"""Reductions against TensorFlow."""

import numpy as np
import pytest

from .harness import case, check

CASES = [
    case("Sum", np.arange(6.0).reshape(2, 3), np.array([0]), keep_dims=True).using(symbolic=("b, 3",)),
    case("Sum", np.float32([[1, np.nan]]), np.array([-1])).using(name="nan"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case):
    check(case)
