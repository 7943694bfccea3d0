"""The suite convert: shares of a profile add up."""

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
