"""Partial evaluation in NumPy: the budget of folding loops."""

import pytest

from tf2jax_lite.lowering.interpreter.constant_folding import BudgetSpent, FoldingBudget


def test_budget_is_shared_by_nested_loops():
    budget = FoldingBudget(total=10)
    with budget.loop(6):
        budget.spend(4)
        with budget.loop(6):
            budget.spend(1)
        assert budget.left == 1
    assert (budget.total, budget.left) == (5, None)


@pytest.mark.full
def test_budget_of_a_loop_is_what_the_trace_has_left():
    budget = FoldingBudget(total=5)
    with budget.loop(6):
        assert budget.left == 5
        with pytest.raises(BudgetSpent):
            budget.spend(6)
    assert (budget.total, budget.left) == (0, None)
