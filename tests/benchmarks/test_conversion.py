"""The page's conversion section: shares add up; failed rows are marked."""

import cProfile

import pytest

from benchmarks import conversion


def _inner():
    return sum(range(20_000))


def _outer():
    return _inner() + sum(range(60_000))


@pytest.mark.full
def test_shares_add_up():
    profile = cProfile.Profile()
    profile.runcall(_outer)
    found = conversion.shares(profile, {"inner": ("_inner", "test_conversion.py"), "none": ("unknown", "test.py")})
    assert sum(found.values()) == pytest.approx(1)
    assert 0 < found["inner"] < 1 and found["none"] == 0


@pytest.mark.full
def test_rows():
    """Ours 10 ms, tf2jax's 30 ms after 70 ms of tracing: 1/3, or 80/100 with it."""
    record = {"model": "m", "nodes": 7, "tracing": 0.07, "first": 0.02, "ratios": {"tf2jax": 1 / 3}}
    record["times"] = {"tf2jax_lite": {"median": 0.01}, "tf2jax": {"median": 0.03}}
    failed = {**record, "ratios": {}, "times": {"tf2jax_lite": {"median": 0.01}}, "peer_failed": "ValueError: no"}
    assert conversion.rows([record, failed]) == [
        ("m", 7, "70", "10", "20", "30", "0.33", "0.80"),
        ("m", 7, "70", "10", "20", "fails", "", ""),
    ]
