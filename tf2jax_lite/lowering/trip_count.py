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

from .plan import Plan
from .trace import UNKNOWN, Trace

__all__ = ["HostLoop", "invariants", "run_on_host"]

# Steps run in numpy to count one loop's iterations: about a second's work.
_MAX_HOST_STEPS = 1_000_000
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


def run_on_host(
    trace: Trace, cond: ir.Function, body: ir.Function, start: Sequence[Any], constant: set[int]
) -> HostLoop | None:
    """Runs the static part of a loop in numpy; None if the condition depends on anything traced."""
    program = trace.program
    known: list[Any] = [v if values.is_static(v) else UNKNOWN for v in start]
    static = {
        i for i, v in enumerate(known) if v is not UNKNOWN and i not in constant and np.size(v) <= _MAX_STATIC_SIZE
    }
    test = program.slice(cond, [cond.outputs[0]])
    while True:
        order = sorted(static)
        advance = program.slice(body, [body.outputs[i] for i in order])
        steps = max(1, len(advance.steps) + len(test.steps))
        result = _iterate(trace, test, advance, known, constant, order, _MAX_HOST_STEPS // steps)
        if not isinstance(result, set):
            return result
        if not result:
            return None
        static -= result  # these turned out to depend on traced values: without them, perhaps others do too


def _iterate(
    trace: Trace, test: Plan, advance: Plan, known: list[Any], constant: set[int], order: list[int], limit: int
) -> HostLoop | set[int] | None:
    """Runs the loop with variables ``order`` known; returns the outcome, or those that did not stay known."""
    current: list[Any] = [v if i in constant or i in order else UNKNOWN for i, v in enumerate(known)]
    history: dict[int, list[np.ndarray]] = {i: [] for i in order}
    forms = {i: (np.shape(known[i]), np.asarray(known[i]).dtype) for i in order}
    trips = 0
    while True:
        (go,) = trace.run_partially(test, current)
        if go is UNKNOWN:
            # Perhaps a variable is known now that is not later: then the test says so only once that one is dropped.
            return None if trips == 0 else _unstable(trace, advance, current, order)
        if not bool(go):
            return HostLoop(trips, history, {i: current[i] for i in order})
        if trips >= limit:
            return None
        results = trace.run_partially(advance, current)
        lost = {
            i
            for i, v in zip(order, results, strict=True)
            if v is UNKNOWN or (np.shape(v), np.asarray(v).dtype) != forms[i]
        }
        if lost:
            return lost
        following = list(current)
        for i, value in zip(order, results, strict=True):
            history[i].append(current[i])
            following[i] = value
        current = following
        trips += 1


def _unstable(trace: Trace, advance: Plan, current: list[Any], order: list[int]) -> set[int] | None:
    results = trace.run_partially(advance, current)
    return {i for i, v in zip(order, results, strict=True) if v is UNKNOWN} or None
