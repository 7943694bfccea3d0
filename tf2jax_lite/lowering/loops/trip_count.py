"""Trip counts of loops, by folding their static part in NumPy.

A loop variable is *static* if it starts static and its next value depends on static loop variables alone, through ops
with a constant folder. Folding those and the condition gives the trip count: exactly, if the condition depends on
them alone, or an upper bound, if they suffice to end the loop (``i < n and loss > limit``). Of tensor lists the
length is static, and the elements as long as they are.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.lowering.interpreter.constant_folding import BudgetSpent, run_partially
from tf2jax_lite.lowering.interpreter.trace import Trace
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.passes.analysis.static_values import loop_invariants
from tf2jax_lite.values import static as values
from tf2jax_lite.values.static import UNKNOWN
from tf2jax_lite.values.tensor_list import TensorList

# Steps that folding one loop may take, loops inside it included: a few seconds' work.
_MAX_STEPS = 1_000_000
# Steps it may take if only an upper bound can result.
_MAX_BOUND_STEPS = 100_000
_MAX_STATIC_SIZE = 1024


@dataclasses.dataclass
class FoldedLoop:
    """The static part of a loop.

    Attributes:
      trips: the trip count; an upper bound if not ``exact``.
      exact: whether traced values cannot end the loop earlier.
      history: for each static variable its value at the start of each iteration; lists are not among them.
      final: for each static variable its value after ``trips`` iterations.
      capacity: for each list of static length the greatest length it ever has, within iterations, too.
      longest: for each list of static length the greatest length at the start of an iteration.
      lists: for each list of static length its static part after ``trips`` iterations.
      resizing: lists whose length changes between iterations.
      changing_types: static variables whose shape or dtype changes between iterations.
      by_data: whether the trip count may be a data-dependent size (`dynamic_shapes.tracker`).
    """

    trips: int = 0
    exact: bool = True
    history: dict[int, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    final: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    capacity: dict[int, int] = dataclasses.field(default_factory=dict)
    longest: dict[int, int] = dataclasses.field(default_factory=dict)
    lists: dict[int, TensorList] = dataclasses.field(default_factory=dict)
    resizing: set[int] = dataclasses.field(default_factory=set)
    changing_types: set[int] = dataclasses.field(default_factory=set)
    by_data: bool = False


def static_part(value: Any) -> Any:
    """Return a value's static part: itself, a list's length, or `UNKNOWN`."""
    if isinstance(value, TensorList):
        if value.is_foldable:
            return value
        return value.abstracted() if isinstance(value.length, int) else UNKNOWN
    return value if values.is_foldable(value) else UNKNOWN


def fold_loop(
    trace: Trace,
    cond: ir.Function,
    body: ir.Function,
    start: Sequence[Any],
    constant: set[int],
    growing: Mapping[int, tuple[Any, Any]] | None = None,
) -> FoldedLoop | None:
    """Fold the static part of a loop; None if it does not bound the trip count.

    Args:
      constant: indices of the loop variables that never change.
      growing: by index, the shapes in the first two iterations of arrays whose sizes change by a constant.
    """
    program = trace.program
    known = [_without_peak(static_part(v)) for v in start]
    static = {i for i, v in enumerate(known) if v is not UNKNOWN and i not in constant and _is_small(v)}
    test = program.plan_of(cond, [cond.outputs[0]], effects=False)
    shapes = _Shapes({i: start[i] for i in constant if isinstance(start[i], jax.Array)}, growing or {})
    with trace.budget.loop(_MAX_STEPS):
        while True:
            order = sorted(static)
            advance = program.plan_of(body, [body.outputs[i] for i in order], effects=False)
            try:
                result = _Folding(trace, test, advance, known, shapes, constant, order).run()
            except BudgetSpent:
                return None
            if not isinstance(result, set):
                return result
            if not result:
                return None
            static -= result  # these depend on traced values; without them, perhaps others do, too


def static_results(trace: Trace, cond: ir.Function, body: ir.Function, start: Sequence[Any]) -> list[Any]:
    """Return the static part of a loop's results; the rest are `values.UNKNOWN`."""
    constant = loop_invariants(body)
    found = fold_loop(trace, cond, body, start, constant)
    out = [v if i in constant else UNKNOWN for i, v in enumerate(start)]
    if found is not None and found.exact:
        for i, value in found.final.items():
            out[i] = value
        for i, lst in found.lists.items():
            out[i] = dataclasses.replace(lst, max_length=max(lst.max_length, found.capacity[i], start[i].max_length))
    return out


def _without_peak(value: Any) -> Any:
    """Return a value, without the capacity that a list needed before the loop."""
    return dataclasses.replace(value, max_length=0) if isinstance(value, TensorList) else value


def _is_small(value: Any) -> bool:
    return isinstance(value, TensorList) or (values.is_static(value) and np.size(value) <= _MAX_STATIC_SIZE)


def _bounded(value: Any) -> Any:
    """Return a value, of lists of many elements their length alone."""
    if isinstance(value, TensorList) and value.buffer is not UNKNOWN and value.length > _MAX_STATIC_SIZE:
        return value.abstracted()
    return value


class _Folding:
    """One attempt to fold a loop.

    Args:
      advance: the plan of the body, restricted to the results in ``order``.
      start: the initial loop variables; `UNKNOWN` where they are not static.
      constant: indices of the loop variables that never change.
      order: indices of the loop variables that are taken to be static.
    """

    def __init__(
        self,
        trace: Trace,
        test: Plan,
        advance: Plan,
        start: Sequence[Any],
        shapes: _Shapes,
        constant: set[int],
        order: list[int],
    ):
        self._trace, self._order = trace, order
        self._current: list[Any] = [v if i in constant or i in order else UNKNOWN for i, v in enumerate(start)]
        lists = {i: start[i].length for i in order if isinstance(start[i], TensorList)}
        self._loop = FoldedLoop(history={i: [] for i in order if i not in lists}, capacity=lists, longest=dict(lists))
        test, of_test, in_test = _with_shapes(test, shapes)
        advance, of_advance, in_advance = _with_shapes(advance, shapes)
        test, advance = _foldable(test, self._current), _foldable(advance, self._current)
        can_be_decided = _can_be_decided(test, [*order, *in_test])
        self._test, tested = _without_invariants(trace, test, self._current, of_test, [*order, *in_test])
        self._loop.by_data = any(values.is_symbolic(v) and any(map(is_data_dependent, v.flat)) for v in tested)
        self._is_decidable = self._loop.by_data or can_be_decided
        changing = [*order, *in_advance]
        self._advance, advanced = _without_invariants(trace, advance, self._current, of_advance, changing)
        self._tested, self._advanced = tested, advanced
        self._asked = ((tested, in_test), (advanced, in_advance))

    def run(self) -> FoldedLoop | set[int] | None:
        """Fold the loop.

        Returns:
          The outcome; or the indices of the loop variables that did not stay static; or None, if the condition depends
          on traced values and no other part of the condition bounds the trip count.

        Raises:
          BudgetSpent: it takes too long.
        """
        budget, loop = self._trace.budget, self._loop
        assert budget.left is not None
        least = budget.left - _MAX_BOUND_STEPS
        while True:
            for slots, asked in self._asked:
                for slot, answer in asked.items():
                    slots[slot] = answer(loop.trips)
            (go,) = run_partially(self._trace, self._test, self._current, self._tested)
            if go is UNKNOWN:
                if loop.trips == 0 and not self._is_decidable:
                    return None
                loop.exact = False
                if budget.left < least:
                    return None
            elif not bool(go):
                loop.final = {i: self._current[i] for i in loop.history}
                loop.lists = {i: self._current[i] for i in loop.capacity}
                return loop
            results = run_partially(self._trace, self._advance, self._current, self._advanced)
            lost = {i for i, v in zip(self._order, results, strict=True) if v is UNKNOWN or not _is_small(v)}
            if lost:
                return lost
            self._record(results)

    def _record(self, results: Sequence[Any]) -> None:
        """Record an iteration, and use its results for the next one."""
        loop, following = self._loop, list(self._current)
        for i, value in zip(self._order, results, strict=True):
            before = self._current[i]
            if i in loop.history:
                loop.history[i].append(before)
                if np.shape(value) != np.shape(before) or value.dtype != before.dtype:
                    loop.changing_types.add(i)
            else:
                loop.capacity[i] = max(loop.capacity[i], value.length, value.max_length)
                loop.longest[i] = max(loop.longest[i], before.length)
                if value.length != before.length:
                    loop.resizing.add(i)
            following[i] = _bounded(value)
        self._current = following
        loop.trips += 1


class _Shapes(NamedTuple):
    """The static shapes of loop variables that are arrays, by index.

    Attributes:
      same: the values or specs of those that no iteration changes.
      growing: of those whose sizes change by a constant, the shapes in the first two iterations.
    """

    same: Mapping[int, Any]
    growing: Mapping[int, tuple[Any, Any]]

    def at(self, number: int, trip: int) -> Any:
        """Return a loop variable's spec in an iteration."""
        if number in self.same:
            return self.same[number]
        first, second = self.growing[number]
        return jax.ShapeDtypeStruct([n + (m - n) * trip for n, m in zip(first, second, strict=True)], np.float32)


def _with_shapes(plan: Plan, shapes: _Shapes) -> tuple[Plan, list[Any], dict[int, Callable[[int], Any]]]:
    """Fold the steps of a plan that depend on the shapes of arguments alone."""
    # Returns the plan of the other steps, the values of its slots before it runs, and by slot functions of the
    # iteration for those that depend on it.
    given = {i: i for i in (*shapes.same, *shapes.growing)}
    steps, slots, asked = [], [UNKNOWN] * plan.size, {}
    for step in plan.steps:
        inputs = [given.get(slot) for slot in step.inputs]
        known = [i for i in inputs if i is not None]
        if not inputs or len(known) < len(inputs):
            steps.append(step)
        elif step.op.pattern is Pattern.SHAPE_ONLY and step.op.fold is not None:
            for position, slot in enumerate(step.outputs):
                asked[slot] = functools.partial(_answer, step, shapes, known, position)
                if shapes.growing.keys().isdisjoint(known):
                    slots[slot] = asked.pop(slot)(0)
        else:
            if step.node.op == "Identity":
                given[step.outputs[0]] = known[0]
            steps.append(step)
    return dataclasses.replace(plan, steps=tuple(steps)), slots, asked


def _answer(step: Step, shapes: _Shapes, numbers: Sequence[int], position: int, trip: int) -> Any:
    """Return a step's result that depends on loop variables' shapes."""
    inputs = [shapes.at(number, trip) for number in numbers]
    assert step.op.fold is not None
    found = step.op.fold(inputs if step.node.groups[0] is not None else inputs[0], **step.kwargs)
    return found[position] if isinstance(found, list) else found


def _foldable(plan: Plan, args: Sequence[Any]) -> Plan:
    """Return the plan's foldable steps; traced arguments are `UNKNOWN`."""
    unfoldable = {slot for slot, value in enumerate(args) if value is UNKNOWN}
    steps = []
    for step in plan.steps:
        if step.op.fold is None or (not step.op.folds_partially and not unfoldable.isdisjoint(step.inputs)):
            unfoldable.update(step.outputs)
        else:
            steps.append(step)
    used = set(plan.outputs)
    for step in reversed(steps):
        if not used.isdisjoint(step.outputs):
            used.update(step.inputs)
    return dataclasses.replace(plan, steps=tuple(step for step in steps if not used.isdisjoint(step.outputs)))


def _without_invariants(
    trace: Trace, plan: Plan, args: Sequence[Any], slots: Sequence[Any], changing: Sequence[int]
) -> tuple[Plan, list[Any]]:
    """Run loop-invariant steps of a plan, and omit those that return an input."""
    # Returns the plan of the other steps, and the values of its slots before it runs.
    varying, same = set(changing), {}
    once, left = [], []
    for step in plan.steps:
        inputs = tuple(same.get(i, i) for i in step.inputs)
        if varying.isdisjoint(inputs) and not step.op.needs_context:
            once.append(step)
            continue
        varying.update(step.outputs)
        if step.node.op == "Identity":
            same[step.outputs[0]] = inputs[0]
        else:
            left.append(step._replace(inputs=inputs))
    slots = run_partially(
        trace, dataclasses.replace(plan, steps=tuple(once), outputs=tuple(range(plan.size))), args, slots
    )
    outputs = tuple(same.get(i, i) for i in plan.outputs)
    return dataclasses.replace(plan, steps=tuple(left), outputs=outputs), slots


def _can_be_decided(test: Plan, order: Sequence[int]) -> bool:
    """Return whether static variables can decide a condition (LogicalAnd, If)."""
    if not any(slot in order for step in test.steps for slot in step.inputs):
        return False
    made = {slot: step for step in test.steps for slot in step.outputs}
    step = made.get(test.outputs[0])
    while step is not None and len(step.inputs) == 1 and not step.op.needs_context:
        step = made.get(step.inputs[0])
    return step is not None and step.op.folds_partially
