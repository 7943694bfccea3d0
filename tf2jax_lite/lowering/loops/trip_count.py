"""Which loop variables evolve in ways known while tracing, and for how many iterations.

A loop variable is *static* if it starts static and its next value needs only static loop variables and ops with a
numpy twin. Running those on the host, the condition with them, tells the number of iterations: exactly, if the
condition needs nothing else, or at most, if what it needs of them alone ends it (``i < n and loss > limit``). Of
tensor lists the host knows the length, and the elements too as long as they are static.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.dynamic_shapes.tracker import is_found
from tf2jax_lite.lowering.interpreter.trace import HostBudget, HostBudgetSpent, Trace
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values import static as values
from tf2jax_lite.values.static import UNKNOWN
from tf2jax_lite.values.tensor_list import TensorList

__all__ = ["HostLoop", "host_value", "invariants", "known_results", "run_on_host"]

# Steps run in numpy to count one loop's iterations, loops inside it included: a few seconds' work.
_MAX_HOST_STEPS = 1_000_000
# Steps run while only an upper bound can come out.
_MAX_BOUND_STEPS = 100_000
_MAX_STATIC_SIZE = 1024


@dataclasses.dataclass
class HostLoop:
    """What the host found out.

    Attributes:
      trips: number of iterations; at most so many if not ``exact``.
      exact: whether nothing else can end the loop earlier.
      history: for each static variable its value at the start of each iteration; lists are not among them.
      final: for each static variable its value after ``trips`` iterations.
      capacity: for each list of known length the most elements it ever has, within iterations, too.
      longest: for each list of known length the most elements that it has at the start of an iteration.
      lists: for each list of known length what is known of it after ``trips`` iterations.
      resizing: lists whose length changes between iterations.
      uneven: static variables whose shape or dtype changes between iterations.
      by_data: whether it may run for as many elements as data decides (`ops.extents`).
    """

    trips: int = 0
    exact: bool = True
    history: dict[int, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    final: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    capacity: dict[int, int] = dataclasses.field(default_factory=dict)
    longest: dict[int, int] = dataclasses.field(default_factory=dict)
    lists: dict[int, TensorList] = dataclasses.field(default_factory=dict)
    resizing: set[int] = dataclasses.field(default_factory=set)
    uneven: set[int] = dataclasses.field(default_factory=set)
    by_data: bool = False


def invariants(body: ir.Function) -> set[int]:
    """Returns the loop variables that the body hands on unchanged."""
    nodes = {node.name: node for node in body.nodes}
    found = set()
    for index, (arg, ref) in enumerate(zip(body.args, body.outputs, strict=True)):
        while ref.node in nodes and nodes[ref.node].op == "Identity":
            ref = nodes[ref.node].inputs[0]
        if ref.node == arg.name:
            found.add(index)
    return found


def host_value(value: Any) -> Any:
    """Returns what numpy can know of a value: itself (a TensorArray's handle, too), a list's length, or nothing."""
    if isinstance(value, TensorList):
        if value.is_host:
            return value
        return value.forgotten() if isinstance(value.length, int) else UNKNOWN
    return value if values.is_host(value) else UNKNOWN


def run_on_host(
    trace: Trace,
    cond: ir.Function,
    body: ir.Function,
    start: Sequence[Any],
    constant: set[int],
    growing: Mapping[int, tuple[Any, Any]] | None = None,
) -> HostLoop | None:
    """Runs the static part of a loop in numpy; None if that does not tell how long it can last.

    Args:
      trace: the call.
      cond: the condition.
      body: the body.
      start: what the loop variables are at first.
      constant: the loop variables that never change.
      growing: the shapes in the first two iterations of arrays that change their size as much with each, by number.
    """
    program = trace.program
    known = [_as_at_first(host_value(v)) for v in start]
    static = {i for i, v in enumerate(known) if v is not UNKNOWN and i not in constant and _is_small(v)}
    test = program.slice(cond, [cond.outputs[0]])
    shapes = _Shapes({i: start[i] for i in constant if isinstance(start[i], jax.Array)}, growing or {})
    with _budget(trace):
        while True:
            order = sorted(static)
            advance = program.slice(body, [body.outputs[i] for i in order])
            try:
                result = _iterate(trace, test, advance, known, shapes, constant, order)
            except HostBudgetSpent:
                return None
            if not isinstance(result, set):
                return result
            if not result:
                return None
            static -= result  # these turned out to depend on traced values: without them, perhaps others do too


def known_results(trace: Trace, cond: ir.Function, body: ir.Function, start: Sequence[Any]) -> list[Any]:
    """Returns what numpy can know of a loop's results: the rest are `values.UNKNOWN`."""
    constant = invariants(body)
    found = run_on_host(trace, cond, body, start, constant)
    out = [v if i in constant else UNKNOWN for i, v in enumerate(start)]
    if found is not None and found.exact:
        for i, value in found.final.items():
            out[i] = value
        for i, lst in found.lists.items():
            out[i] = dataclasses.replace(lst, most=max(lst.most, found.capacity[i], start[i].most))
    return out


@contextmanager
def _budget(trace: Trace) -> Iterator[None]:
    """Gives the outermost of nested loops its steps, as far as the trace has some left; those inside share them."""
    if trace.host_budget is not None:
        yield
        return
    allowed = min(_MAX_HOST_STEPS, trace.host_steps)
    trace.host_budget = budget = HostBudget(allowed)
    try:
        yield
    finally:
        trace.host_budget = None
        trace.host_steps -= allowed - max(budget.left, 0)


def _as_at_first(value: Any) -> Any:
    """A loop needs no room for what a list held before it."""
    return dataclasses.replace(value, most=0) if isinstance(value, TensorList) else value


def _is_small(value: Any) -> bool:
    return isinstance(value, TensorList) or (values.is_static(value) and np.size(value) <= _MAX_STATIC_SIZE)


def _bounded(value: Any) -> Any:
    """Lists of many elements are kept by their length alone."""
    if isinstance(value, TensorList) and value.buffer is not UNKNOWN and value.length > _MAX_STATIC_SIZE:
        return value.forgotten()
    return value


def _iterate(
    trace: Trace,
    test: Plan,
    advance: Plan,
    known: list[Any],
    shapes: _Shapes,
    constant: set[int],
    order: list[int],
) -> HostLoop | set[int] | None:
    """Runs the loop with variables ``order`` known; returns the outcome, or those that did not stay known."""
    current: list[Any] = [v if i in constant or i in order else UNKNOWN for i, v in enumerate(known)]
    loop = HostLoop(history={i: [] for i in order if not isinstance(known[i], TensorList)})
    loop.capacity = {i: known[i].length for i in order if isinstance(known[i], TensorList)}
    loop.longest = dict(loop.capacity)
    budget = trace.host_budget
    assert budget is not None
    least = budget.left - _MAX_BOUND_STEPS
    test, of_test, in_test = _with_shapes(test, shapes)
    advance, of_advance, in_advance = _with_shapes(advance, shapes)
    test, advance = _hopeful(test, current), _hopeful(advance, current)
    can_be_decided = _can_be_decided(test, [*order, *in_test])
    test, tested = _settled(trace, test, current, of_test, [*order, *in_test])
    loop.by_data = any(values.is_symbolic(v) and any(map(is_found, v.flat)) for v in tested)
    decidable = loop.by_data or can_be_decided
    advance, advanced = _settled(trace, advance, current, of_advance, [*order, *in_advance])
    while True:
        for slots, asked in ((tested, in_test), (advanced, in_advance)):
            for slot, answer in asked.items():
                slots[slot] = answer(loop.trips)
        (go,) = trace.run_partially(test, current, tested)
        if go is UNKNOWN:
            if loop.trips == 0 and not decidable:
                return None
            loop.exact = False
            if budget.left < least:
                return None
        elif not bool(go):
            loop.final = {i: current[i] for i in loop.history}
            loop.lists = {i: current[i] for i in loop.capacity}
            return loop
        results = trace.run_partially(advance, current, advanced)
        lost = {i for i, v in zip(order, results, strict=True) if v is UNKNOWN or not _is_small(v)}
        if lost:
            return lost
        following = list(current)
        for i, value in zip(order, results, strict=True):
            if i in loop.history:
                loop.history[i].append(current[i])
                if np.shape(value) != np.shape(current[i]) or value.dtype != current[i].dtype:
                    loop.uneven.add(i)
            else:
                loop.capacity[i] = max(loop.capacity[i], value.length, value.most)
                loop.longest[i] = max(loop.longest[i], current[i].length)
                if value.length != current[i].length:
                    loop.resizing.add(i)
            following[i] = _bounded(value)
        current = following
        loop.trips += 1


class _Shapes(NamedTuple):
    """What is known of the shapes of loop variables that are arrays, by number.

    Attributes:
      same: those that no iteration changes.
      growing: of those that change their size as much with each iteration, the shapes in the first two.
    """

    same: Mapping[int, Any]
    growing: Mapping[int, tuple[Any, Any]]

    def at(self, number: int, trip: int) -> Any:
        """Returns a loop variable's form in an iteration."""
        if number in self.same:
            return self.same[number]
        first, second = self.growing[number]
        return jax.ShapeDtypeStruct([n + (m - n) * trip for n, m in zip(first, second, strict=True)], np.float32)


def _with_shapes(plan: Plan, shapes: _Shapes) -> tuple[Plan, list[Any], dict[int, Callable[[int], Any]]]:
    """Answers what a plan asks for the shapes of arguments that are arrays.

    Returns:
      The plan of what is left, what its slots hold before it runs, and what some hold in each iteration, by slot.
    """
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
    """Returns a result of a step that asks for the shapes of loop variables, in one iteration."""
    inputs = [shapes.at(number, trip) for number in numbers]
    assert step.op.fold is not None
    found = step.op.fold(inputs if step.node.groups[0] is not None else inputs[0], **step.kwargs)
    return found[position] if isinstance(found, list) else found


def _hopeful(plan: Plan, args: Sequence[Any]) -> Plan:
    """Returns the plan without the steps that numpy cannot do anything about, given which arguments are unknown."""
    hopeless = {slot for slot, value in enumerate(args) if value is UNKNOWN}
    steps = []
    for step in plan.steps:
        if step.op.fold is None or (not step.op.folds_partially and not hopeless.isdisjoint(step.inputs)):
            hopeless.update(step.outputs)
        else:
            steps.append(step)
    used = set(plan.outputs)
    for step in reversed(steps):
        if not used.isdisjoint(step.outputs):
            used.update(step.inputs)
    return dataclasses.replace(plan, steps=tuple(step for step in steps if not used.isdisjoint(step.outputs)))


def _settled(
    trace: Trace, plan: Plan, args: Sequence[Any], slots: Sequence[Any], changing: Sequence[int]
) -> tuple[Plan, list[Any]]:
    """Runs the steps of a plan that need none of the arguments that change; others that give their input are left out.

    Returns:
      The plan of what is left, and what its slots hold before it runs.
    """
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
            left.append(dataclasses.replace(step, inputs=inputs))
    slots = trace.run_partially(
        dataclasses.replace(plan, steps=tuple(once), outputs=tuple(range(plan.size))), args, slots
    )
    outputs = tuple(same.get(i, i) for i in plan.outputs)
    return dataclasses.replace(plan, steps=tuple(left), outputs=outputs), slots


def _can_be_decided(test: Plan, order: Sequence[int]) -> bool:
    """Whether static variables can decide a condition: it uses some, and ends in an op such as LogicalAnd or If."""
    if not any(slot in order for step in test.steps for slot in step.inputs):
        return False
    made = {slot: step for step in test.steps for slot in step.outputs}
    step = made.get(test.outputs[0])
    while step is not None and len(step.inputs) == 1 and not step.op.needs_context:
        step = made.get(step.inputs[0])
    return step is not None and step.op.folds_partially
