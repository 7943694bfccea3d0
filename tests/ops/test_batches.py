"""Batches of op cases: the default tier's, and failures by case."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.ops import registry

from . import batches, harness
from .harness import case

X = np.array([[-1.5, 0.25], [2.0, 3.0]])


@pytest.fixture
def alone(monkeypatch):
    """Return the list of the cases that are checked one by one."""
    found = []
    check = harness.check

    def recorded(case):
        found.append(case)
        check(case)

    monkeypatch.setattr(harness, "check", recorded)
    return found


@pytest.mark.full
def test_batch_agreeing_cases_are_compiled_once(alone):
    cases = [case("Neg", X), case("Square", X), case("Abs", X.astype(np.float32))]
    batches.plan(cases)
    for each in cases:
        batches.check(each)
    assert not alone


@pytest.mark.full
def test_batch_wrong_case_fails_alone(alone):
    cases = [case("Neg", X), case("Abs", X)]
    batches.plan(cases)
    with registry.override_op("Abs", lambda x: jnp.abs(x) + 1e-3):
        batches.check(cases[0])
        with pytest.raises(AssertionError, match="result 0"):
            batches.check(cases[1])
    assert alone == cases


@pytest.mark.full
def test_batch_wrong_gradient_fails():
    wrong = case("Square", X)
    batches.plan([wrong, case("Neg", X)])
    replaced = registry.override_op("Square", lambda x: x * lax.stop_gradient(x))
    with replaced, pytest.raises(AssertionError, match="gradient 0"):
        batches.check(wrong)


@pytest.mark.full
def test_tiered_keeps_the_case_with_most_features():
    plain, low, symbolic = case("Neg", X), case("Neg", X.astype(np.float16)), case("Neg", X)
    symbolic = symbolic.using(symbolic=("b, 2",))
    error, named = case("Neg", X).using(error="no such"), case("Neg", X).using(name="more", tier="default")
    marks = [[mark.name for mark in param.marks] for param in batches.tiered([plain, low, symbolic, error, named])]
    assert marks == [["full"], ["full"], [], [], []]
