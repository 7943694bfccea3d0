"""Which loop variables evolve in ways known while tracing, and for how many iterations.

A loop variable is *static* if it starts static and its next value needs only static loop variables and ops with a
numpy twin. If the condition depends on static variables alone, running the two on the host gives the exact number
of iterations, and the value of each static variable in each of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops import values

from .trace import NotStatic, Trace

__all__ = ["HostLoop", "invariants", "run_on_host"]

MAX_HOST_ITERATIONS = 1_000_000
_MAX_STATIC_SIZE = 1024


@dataclasses.dataclass(frozen=True)
class HostLoop:
    """What the host found out: the trip count and each static variable's history.

    Attributes:
      trips: number of iterations.
      history: for each static variable its value at the start of each iteration.
      final: for each static variable its value after the loop.
    """

    trips: int
    history: dict[int, list[np.ndarray]]
    final: dict[int, np.ndarray]


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


def _dependencies(function: ir.Function, output: int, plan: Any) -> set[int]:
    used = {slot for step in plan.steps for slot in step.inputs} | set(plan.outputs)
    return {slot for slot in used if slot < len(function.args)}


def run_on_host(
    trace: Trace, cond: ir.Function, body: ir.Function, start: Sequence[Any], constant: set[int]
) -> HostLoop | None:
    """Runs the static part of a loop in numpy; None if the condition depends on anything traced."""
    program = trace.program
    candidates = {
        i for i, v in enumerate(start) if i not in constant and values.is_static(v) and np.size(v) <= _MAX_STATIC_SIZE
    }
    usable_constants = {i for i in constant if values.is_static(start[i])}
    plans = {i: program.slice(body, [body.outputs[i]]) for i in candidates}
    needs = {i: _dependencies(body, i, plan) for i, plan in plans.items()}
    hosted = {i for i, plan in plans.items() if all(step.op.host is not None for step in plan.steps)}
    static = candidates & hosted
    while True:
        kept = {i for i in static if needs[i] <= static | usable_constants}
        if kept == static:
            break
        static = kept
    test = program.slice(cond, [cond.outputs[0]])
    if any(step.op.host is None for step in test.steps):
        return None
    if not _dependencies(cond, 0, test) <= static | usable_constants:
        return None
    current = list(start)
    history: dict[int, list[np.ndarray]] = {i: [] for i in static}
    shapes = {i: (np.shape(start[i]), np.asarray(start[i]).dtype) for i in static}
    trips = 0
    try:
        while bool(trace.run_on_host(test, current)[0]):
            if trips >= MAX_HOST_ITERATIONS:
                return None
            following = list(current)
            for i in static:
                history[i].append(current[i])
                (following[i],) = trace.run_on_host(plans[i], current)
            if any((np.shape(following[i]), following[i].dtype) != shapes[i] for i in static):
                return None
            current = following
            trips += 1
    except NotStatic:
        return None
    except Exception:  # comparing symbolic dimensions may be inconclusive: then the count is not known here
        return None
    return HostLoop(trips, history, {i: current[i] for i in static})
