"""Each row of docs/reference/custom-gradients.md holds."""

import pytest

from . import gradient_cases

# Saving takes long: these for every run, the others in the slow ones.
SAVED = {"captures", "recompute, custom", "in gradient", "outside constant"}


@pytest.mark.default_cases("recompute, closure")
@pytest.mark.parametrize("name", gradient_cases.CASES)
def test_row(name):
    case = gradient_cases.CASES[name]
    row = gradient_cases.measure(case, saved=name in SAVED)
    claimed = gradient_cases.claimed(case)
    assert row == {column: claimed[column] for column in row}


@pytest.mark.default_cases("gradient-only variable")
@pytest.mark.parametrize("name", sorted(set(gradient_cases.CASES) - SAVED))
def test_saved(name):
    case = gradient_cases.CASES[name]
    assert gradient_cases.measure(case, saved=True) == gradient_cases.claimed(case)
