"""Post-dominator analysis of plans."""

from types import SimpleNamespace

import pytest

from tf2jax_lite.lowering.planning.materialize import ArgumentUses, PostDominatorTree, analyze_uses
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.xla_cpu import cost_model


def step(inputs, outputs, *, barrier=False, separates=False, callee=None, shape_only=False):
    op = SimpleNamespace(pattern=Pattern.SHAPE_ONLY if shape_only else Pattern.ELEMENTWISE)
    return SimpleNamespace(inputs=inputs, outputs=outputs, op=op, barrier=barrier, separates=separates, callee=callee)


def analyze(*steps, outputs):
    size = 1 + max(slot for s in steps for slot in (*s.inputs, *s.outputs))
    uses = analyze_uses(
        steps,
        outputs,
        size,
        is_barrier=lambda s: s.barrier,
        separates=lambda s: s.separates,
        callee=lambda s: s.callee,
    )
    return [i for i in range(size) if uses.diverge[i]], [i for i in range(size) if uses.reach_barrier[i]]


def test_uses_that_reconverge():
    """x * sigmoid(x)"""
    assert analyze(step([0], [1]), step([0, 1], [2]), outputs=[2]) == ([], [])


def test_uses_by_two_barriers_diverge():
    steps = step([0], [1], barrier=True), step([0], [2], barrier=True)
    assert analyze(*steps, outputs=[1, 2]) == ([0], [0])


def test_uses_by_a_barrier_and_another_step_diverge_unless_they_meet_before():
    assert analyze(step([0], [1], barrier=True), step([0], [2]), outputs=[1, 2]) == ([0], [0])
    assert analyze(step([0], [1]), step([0], [2]), step([1, 2], [3], barrier=True), outputs=[3]) == ([], [0, 1, 2])


def test_result_that_is_also_used_diverges():
    assert analyze(step([0], [1]), step([1], [2]), outputs=[1, 2]) == ([1], [])


def test_dead_and_shape_only_steps_are_no_users():
    steps = step([0], [1]), step([0], [2], shape_only=True), step([0], [3])
    assert analyze(*steps, outputs=[2, 3]) == ([], [])


def test_operands_that_a_step_separates():
    """A concatenation of a value and its sine: each use is a loop of its own."""
    assert analyze(step([0], [1]), step([0, 1], [2], separates=True, barrier=True), outputs=[2]) == ([0], [0, 1])


def test_uses_within_a_callee():
    inside = ArgumentUses(diverge=(True, False), reach_barrier=(True, False))
    assert analyze(step([0, 1], [2], callee=inside), outputs=[2]) == ([0], [0])


def test_lowest_common_ancestor(monkeypatch):
    tree = PostDominatorTree()
    a = tree.add()
    b, c = tree.add(a), tree.add(a)
    d = tree.add(b)
    assert (tree.lca(d, c), tree.lca(d, b), tree.lca(d, d), tree.lca(d, tree.add())) == (a, b, d, 0)
    monkeypatch.setattr(cost_model, "MAX_POST_DOMINATOR_STEPS", 1)
    assert tree.lca(d, c) == 0


@pytest.mark.parametrize("length", [3, 400])
def test_long_paths(length):
    """Uses that meet late count as diverging; the analysis takes linear time."""
    steps = [step([0], [1]), step([0], [2]), *(step([i], [i + 2]) for i in range(1, 2 * length - 1))]
    end = step([2 * length - 1, 2 * length], [2 * length + 1])
    found, _ = analyze(*steps, end, outputs=[2 * length + 1])
    assert found == ([0] if length > cost_model.MAX_POST_DOMINATOR_STEPS else [])
