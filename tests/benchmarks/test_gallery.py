"""The gallery's page shows what its records say, and errors are measured."""

import numpy as np
import pytest

from benchmarks import gallery, render_gallery
from benchmarks.render import read


def test_page_is_that_of_the_stored_records():
    records = read([gallery.RESULTS])
    assert [r["name"] for r in records] == list(gallery.CASES) and len(records) >= 12
    assert all(r["error"] < 1e-3 for r in records)
    assert render_gallery.PAGE.read_text() == render_gallery.page(records)


def test_times_are_shown_where_they_were_measured():
    plain = read([gallery.RESULTS])[0]
    plain.pop("ratios", None)
    timed = {**plain, "name": "other", "times": {}, "ratios": {"tensorflow": 0.5}}
    rows = [line for line in render_gallery.page([plain, timed]).splitlines() if line.startswith("| ")]
    assert rows[2].endswith(" |  |") and rows[3].endswith("| 0.50 |")


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
    record = gallery.measure("LSTM", times=True, budget=0.0)
    assert record["params"] == 4 * 256 * (64 + 256 + 1) and record["error"] < 1e-5
    assert set(record["ratios"]) == {"tensorflow"}
