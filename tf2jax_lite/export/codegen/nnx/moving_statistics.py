"""Find the variables that hold moving means and variances of batches.

The computation of their updates identifies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from tf2jax_lite.export.codegen.block_ir import Block, Literal

_SAME = {
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "expand_dims",
    "materialize",
    "optimization_barrier",
    "reshape",
    "squeeze",
    "stop_gradient",
}
"""Primitives whose result has the elements of their first operand."""


def moving_statistics(block: Block, variables: Sequence[str], updates: Mapping[str, int]) -> set[str]:
    """Return the variables that hold statistics of batches.

    These are floating variables by which the function normalizes, ``1 / sqrt(variance + epsilon)``, those of the same
    scope and shape, and those that it updates to ``c * variable + f(inputs)`` for a number c between 0 and 1.

    Args:
      block: the function, before idioms rewrite it. Its first arguments are the variables.
      variables: names of the variables that may be statistics and of all others, in the order of the arguments.
      updates: variable name to the index of the result that is its new value.
    """
    shapes = {name: value.aval.shape for name, value in zip(variables, block.args, strict=False)}
    floating = {
        name
        for name, value in zip(variables, block.args, strict=False)
        if jnp.issubdtype(value.aval.dtype, jnp.floating)
    }
    found = _Search(block, variables)
    variances = found.variances & floating
    beside = {(_scope(name), shapes[name]) for name in variances}
    means = {name for name in floating if (_scope(name), shapes[name]) in beside}
    averages = {name for name, index in updates.items() if found.is_average(block.results[index], name)}
    return variances | means | (averages & floating)


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


class _Search:
    """One pass over a function's steps.

    Attributes:
      variances: variables of which the function takes the root after a number is added.
    """

    def __init__(self, block: Block, variables: Sequence[str]):
        self.variances: set[str] = set()
        self._same: dict[int, str] = {}  # values with the elements of a variable
        self._shifted: dict[int, str] = {}  # the same plus a number
        self._numbers: dict[int, float] = {}
        self._linear: dict[int, dict[str, float]] = {}  # coefficients of the variables in a value
        self._given: set[int] = set()  # values that depend on the inputs
        for position, value in enumerate(block.args):
            if position < len(variables):
                self._same[id(value)] = variables[position]
                self._linear[id(value)] = {variables[position]: 1.0}
            else:
                self._given.add(id(value))
        for name, inputs, outputs in _steps(block):
            self._step(name, inputs, outputs)

    def is_average(self, value: Any, name: str) -> bool:
        """Return whether a value is ``c * variable + f(inputs)``."""
        return 0 < self._linear.get(id(value), {}).get(name, 0) < 1 and id(value) in self._given

    def _number(self, item: Any) -> float | None:
        if isinstance(item, Literal):
            flat = item.array.reshape(-1)
            real = flat.size and jnp.issubdtype(item.array.dtype, jnp.number) and not jnp.iscomplexobj(flat)
            return float(flat[0]) if real and (flat == flat[0]).all() else None
        return self._numbers.get(id(item))

    def _step(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        if any(id(v) in self._given for v in inputs):
            self._given.update(map(id, outputs))
        if len(outputs) != 1 or not inputs:
            return
        out, first = id(outputs[0]), id(inputs[0])
        if name in _SAME:
            number = self._number(inputs[0])
            if number is not None:
                self._numbers[out] = number
            for table in (self._same, self._shifted, self._linear):
                if first in table:
                    table[out] = table[first]  # type: ignore[assignment, index]
        elif name in ("rsqrt", "sqrt") and first in self._shifted:
            self.variances.add(self._shifted[first])
        elif name == "neg" and first in self._linear:
            self._linear[out] = _scaled(self._linear[first], -1)
        elif name in ("add", "sub", "mul", "add_any") and len(inputs) == 2:
            self._binary(name, inputs, out)

    def _binary(self, name: str, inputs: Sequence[Any], out: int) -> None:
        numbers = [self._number(v) for v in inputs]
        forms = [self._linear.get(id(v), {}) for v in inputs]
        for value, number in zip(inputs, reversed(numbers), strict=True):
            if name != "mul" and number is not None and id(value) in self._same:
                self._shifted[out] = self._same[id(value)]
            if name == "mul" and number is not None:
                self._linear[out] = _scaled(self._linear.get(id(value), {}), number)
        if name != "mul":
            right = _scaled(forms[1], -1 if name == "sub" else 1)
            self._linear[out] = {v: forms[0].get(v, 0) + right.get(v, 0) for v in {**forms[0], **right}}


def _scaled(form: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: factor * value for name, value in form.items()}


def _steps(block: Block) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield primitive, inputs and outputs of steps, also inside derivative rules."""
    replaced: dict[int, Any] = {}

    def final(values: Collection[Any]) -> list[Any]:
        return [replaced.get(id(v), v) for v in values]

    def visit(block: Block) -> Iterator[tuple[str, list[Any], list[Any]]]:
        for step in block.steps:
            inner = step.blocks.get("primal")
            if inner is None:
                yield step.name, final(step.inputs), step.outputs
                continue
            inputs = final(step.inputs)
            replaced.update((id(a), v) for a, v in zip(inner.args, inputs, strict=True))
            yield from visit(inner)
            for output, result in zip(step.outputs, final(inner.results), strict=True):
                yield "copy", [result], [output]

    return visit(block)
