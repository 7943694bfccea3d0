"""Find results and variables that depend on random numbers.

These differ between TensorFlow and JAX. `random_results` finds those that may depend on them, in any branch;
`varying_values` those that do for some inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.lowering import Program

_Name = TypeVar("_Name")
# A boolean that is drawn in each call is the same in all calls of one side, and another in all of the other side, with
# a probability of at most 2**-9.
_CALLS = 5


@dataclasses.dataclass(frozen=True)
class _Fact:
    random: bool = False
    variable: str | None = None


def random_results(program: Program) -> tuple[list[bool], set[str]]:
    """Return for results whether they are random, and names of such variables."""
    graph = program.graph
    if not program.random_nodes:
        return [False] * len(graph.main.outputs), set()
    captured = {c.index: c.value for c in graph.captures}
    variables: set[str] = set()
    facts = []
    for index in range(len(graph.main.args)):
        value = captured.get(index)
        facts.append(_Fact(variable=value.name if isinstance(value, ir.Variable) else None))
    results = _propagate(program, graph.main, facts, variables)
    return [f.random for f in results], variables


def _propagate(program: Program, function: ir.Function, args: Sequence[_Fact], variables: set[str]) -> list[_Fact]:
    plan = program.plan(function)
    env: list[_Fact] = [_Fact()] * plan.size
    env[: len(args)] = args
    for step in plan.steps:
        inputs = [env[i] for i in step.inputs]
        named = {f.variable for f in inputs if f.variable}
        if step.node.op in CALLS:
            results = _propagate(program, program.function(step.kwargs["f"].name), inputs, variables)
        else:
            inner = any(program.effects(program.function(r.name)).needs_key for r in step.node.functions)
            random = step.op.draws_random(step.node.attrs) or inner or any(f.random for f in inputs)
            random = random or bool(named & variables)
            if random and (step.op.writes or step.node.functions):
                variables |= named
            handle = inputs[0].variable if len(inputs) == 1 and step.node.op in ("Identity", "EnsureShape") else None
            results = [_Fact(random, handle)] * len(step.outputs)
        for slot, fact in zip(step.outputs, results, strict=True):
            env[slot] = fact
    return [env[i] for i in plan.outputs]


def varying_values(
    names: set[_Name], first: Mapping[_Name, np.ndarray], call: Callable[[int], Mapping[_Name, np.ndarray]]
) -> set[_Name]:
    """Return the names of the values that are not the same in each call.

    Args:
      call: returns the values of a further call, given its number from 1.
    """
    varying: set[_Name] = set()
    for number in range(1, _CALLS):
        if varying == names:
            break
        values = call(number)
        varying |= {n for n in names - varying if not _equal(first[n], values[n])}
    return varying


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
