"""Comparison of shapes whose dimensions may be symbolic."""

import jax
import numpy as np
import pytest

from tf2jax_lite.ops.common.broadcasting import MAX_FOLDED, compatible, is_int, is_small, is_zero

(B,) = jax.export.symbolic_shape("b")


@pytest.mark.parametrize(
    ("shape", "other", "skip", "expected"),
    [
        ((2, 3), (2, 3), None, True),
        ((2, 3), (2, 4), None, False),
        ((2, 3), (2,), None, False),
        ((2, 3), (2, 4), 1, True),
        ((B, 3), (5, 3), None, True),
        ((B, 3), (5, 4), None, False),
        ((2, 3), (None, 3), None, True),
        ((), (), None, True),
    ],
    ids=str,
)
def test_compatible(shape, other, skip, expected):
    assert compatible(shape, other, skip) == expected


def test_static_dimensions():
    assert [is_int(d) for d in (3, np.int64(3), B, None)] == [True, True, False, False]
    assert [is_zero(d) for d in (0, np.int32(0), 1, B)] == [True, True, False, False]


@pytest.mark.full
def test_small_shapes():
    assert is_small((MAX_FOLDED,)) and is_small(())
    assert not is_small((MAX_FOLDED, 2)) and not is_small((B,))
