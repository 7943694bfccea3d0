"""Errors of the gallery are measured."""

import numpy as np
import pytest

from benchmarks import gallery


def test_error_is_relative_to_the_largest_magnitude():
    a, b = np.array([0.0, 4.0], np.float32), np.array([1.0, 4.0], np.float32)
    assert gallery.error([a, np.arange(3)], [b, np.arange(3, dtype=np.int32)]) == 0.25
    with pytest.raises(ValueError, match="magnitude of a result is 0"):
        gallery.error([0 * a], [0 * b])
    with pytest.raises(ValueError, match="1 of 2 integers differ"):
        gallery.error([np.arange(2)], [np.zeros(2, np.int32)])
    with pytest.raises(ValueError, match=r"float32\(2,\) became float64"):
        gallery.error([a], [b.astype(float)])


@pytest.mark.full
def test_a_model_of_jax_is_measured():
    pytest.importorskip("flax")
    _, values = gallery.measure("LSTM", budget=0.0)
    assert values["params"] == 4 * 256 * (64 + 256 + 1) and values["error"] < 1e-5
    assert set(values["times"]) == {"tf2jax_lite", "tensorflow"}
