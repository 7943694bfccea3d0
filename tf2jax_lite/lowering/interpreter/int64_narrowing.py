"""Warnings about 64-bit integers whose high bits are lost without x64.

Static values are NumPy arrays and keep 64 bits; traced ones have 32. So a call with concrete arguments can be right
where the same function under `jax.jit` wraps, and JAX narrows the arguments of a jitted function before it runs.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.jaxprs.interval import Interval
from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.ops.containers.lookup_table import Table
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.passes.analysis.integer_ranges import IntegerRanges
from tf2jax_lite.values.int64 import exceeds_32_bits

if TYPE_CHECKING:
    from tf2jax_lite.lowering.planning.program import Program

_ENABLE = 'jax.config.update("jax_enable_x64", True) (in the shell: JAX_ENABLE_X64=1)'

_DIVISIONS = frozenset({"Div", "FloorDiv", "FloorMod", "Mod", "RealDiv", "RightShift", "TruncateDiv", "TruncateMod"})
# The result of these is as large as an operand is: an argument is followed through them.
_ARITHMETIC = frozenset({"Add", "AddV2", "Sub", "Maximum", "Minimum", "Select", "SelectV2", "ClipByValue"})
_32_BITS = Interval(-(2**31), 2**32 - 1)
_MAX_LISTED = 10


class _Origin(NamedTuple):
    """The constant or the argument that a value comes from."""

    text: str
    constant: bool


class _Value(NamedTuple):
    """A value's origin, if its high bits may count, and whether it is constant."""

    origin: _Origin | None = None
    known: bool = False


_UNKNOWN = _Value()


def warn_of_narrowing(program: Program, name: str) -> None:
    """Warn once of all 64-bit integers that a program narrows; see `narrowed_values`."""
    found = narrowed_values(program)
    if found:
        listed = "\n".join(f"  {line}" for line in found)
        warnings.warn(
            f"{name}: JAX's 64-bit mode is off, so 64-bit integers beyond 32 bits wrap, always under jax.jit and where "
            f"other data meets them:\n{listed}\nBefore converting, call {_ENABLE}.",
            stacklevel=2,
        )


def narrowed_values(program: Program) -> list[str]:
    """Return descriptions of 64-bit integers that may not fit in 32 bits.

    Those are: constants, variables and tables beyond 32 bits that traced computations read, and arguments of 64 bits
    that are divided, shifted or cast to float64. An index or a label is neither.
    """
    if jax.config.jax_enable_x64:
        return []
    graph = program.graph
    captured = {capture.index: capture.value for capture in graph.captures}
    found: dict[str, None] = {}
    args = []
    for index, arg in enumerate(graph.main.args):
        if index not in captured:
            origin = _Origin(f"argument {arg.name!r} ({arg.dtype})", False)
            args.append(_Value(origin) if _is_64(arg.dtype) else _UNKNOWN)
            continue
        args.append(_UNKNOWN)
        value = captured[index]
        if isinstance(value, ir.Variable) and value.name not in program.wide and exceeds_32_bits(value.value):
            found[f"variable {value.name!r} holds {_largest(value.value)}"] = None
        elif isinstance(value, Table) and (exceeds_32_bits(value.keys) or exceeds_32_bits(value.values)):
            largest = _largest(value.keys if exceeds_32_bits(value.keys) else value.values)
            found[f"table {arg.name!r} holds {largest}"] = None
    constants = (spec.attrs.get("value") for spec in graph.specs if spec.op == "Const")
    if any(v.origin for v in args) or any(map(exceeds_32_bits, constants)):
        _Walk(program, found).function(graph.main, tuple(args))
    lines = list(found)
    rest = len(lines) - _MAX_LISTED
    return lines if rest <= 0 else [*lines[:_MAX_LISTED], f"and {rest} more"]


def warn_if_narrowed(value: Any, where: str) -> None:
    """Warn if a static 64-bit value loses its high bits in a traced computation."""
    if exceeds_32_bits(value) and not jax.config.jax_enable_x64:
        warnings.warn(
            f"{where} narrows {_largest(value)} to 32 bits, as JAX's 64-bit mode is off: the value wraps. Before "
            f"converting, call {_ENABLE}.",
            stacklevel=2,
        )


class _Walk:
    """Follow constants and arguments through a program and its functions."""

    def __init__(self, program: Program, found: dict[str, None]):
        self._program = program
        self._found = found
        self._results: dict[tuple[str, tuple[_Value, ...]], tuple[_Value, ...]] = {}

    def function(self, function: ir.Function, args: tuple[_Value, ...]) -> tuple[_Value, ...]:
        key = (function.name, args)
        if key not in self._results:
            plan = self._program.plan(function)
            self._results[key] = (_UNKNOWN,) * len(plan.outputs)
            env = [*args, *[_UNKNOWN] * (plan.size - len(args))]
            intervals = IntegerRanges({step.node.name: step.node for step in plan.steps})
            for step in plan.steps:
                results = self._step(step, [env[i] for i in step.inputs], intervals)
                for slot, value in zip(step.outputs, results, strict=True):
                    env[slot] = value
            self._results[key] = tuple(env[i] for i in plan.outputs)
        return self._results[key]

    def _step(self, step: Step, inputs: list[_Value], intervals: IntegerRanges) -> list[_Value]:
        node, op = step.node, step.op
        if not inputs and node.op == "Const":
            value: Any = node.attrs.get("value")
            text = f"constant {_largest(value)} ({node.name!r})" if exceeds_32_bits(value) else ""
            return [_Value(_Origin(text, True) if text else None, True)]
        known = op.plain and (op.pattern is Pattern.SHAPE_ONLY or (bool(inputs) and all(v.known for v in inputs)))
        if node.functions:
            return self._callees(step, inputs)
        origins = [v.origin for v in inputs]
        if known or not any(origins):
            return [_Value(known=known)] * len(step.outputs)
        if op.pattern is Pattern.INJECTIVE or op.int64 == "per_word":
            # A static operand says where to; those of ops that move elements otherwise are their first.
            origin = next((o for o, static in zip(origins, _static(step), strict=True) if o and not static), None)
            return [_Value(origin if _is_64(dtype) else None) for dtype in step.dtypes]
        if op.int64 == "truncate" or node.op == "Cast":
            self._report(step, origins, intervals)
        if node.op in _ARITHMETIC or node.op == "Cast":
            origin = next((o for o in origins if o and not o.constant), None)
            return [_Value(origin if _is_64(dtype) else None) for dtype in step.dtypes]
        return [_UNKNOWN] * len(step.outputs)

    def _callees(self, step: Step, inputs: list[_Value]) -> list[_Value]:
        """Follow a call, branch or loop, whose last inputs are function arguments."""
        out: list[_Value] = [_UNKNOWN] * len(step.outputs)
        for ref in step.node.functions:
            function = self._program.function(ref.name)
            count = len(function.args)
            args = tuple(inputs[len(inputs) - count :]) if count <= len(inputs) else (_UNKNOWN,) * count
            results = self.function(function, args)
            if step.node.op in CALLS and step.op.needs_context and len(results) == len(out):
                out = list(results)
        return out

    def _report(self, step: Step, origins: list[_Origin | None], intervals: IntegerRanges) -> None:
        node = step.node
        refs = list(node.inputs)
        for position, (origin, static) in enumerate(zip(origins, _static(step), strict=True)):
            if origin is None or static:
                continue
            if origin.constant and step.op.int64 == "truncate":
                self._found[f"node {node.name!r} ({node.op}) reads {origin.text}"] = None
                self._program.narrowing.add(node.name)
            elif not (origin.constant or position) and _reads_high_bits(step) and _may_exceed(intervals.of(refs[0])):
                divisor = intervals.of(refs[1]) if len(refs) > 1 else None
                by = f" by {divisor.lower}" if divisor is not None and divisor.lower == divisor.upper else ""
                verb = {"RightShift": "shifts", "Cast": "casts"}.get(node.op, "divides")
                self._found[f"node {node.name!r} ({node.op}) {verb} {origin.text}{by}"] = None


def _static(step: Step) -> list[bool]:
    """Return for each input whether it must be static, or is not converted."""
    out: list[bool] = []
    for index, count in enumerate(step.node.groups):
        partial = index < len(step.op.inputs) and step.op.inputs[index] in step.op.unconverted
        out += [step.static[index] or partial] * (1 if count is None else count)
    return out + [False] * (len(step.inputs) - len(out))


def _reads_high_bits(step: Step) -> bool:
    """Whether a result depends on the first operand's high bits (true division)."""
    return step.node.op in _DIVISIONS or (step.node.op == "Cast" and step.dtypes[0] == np.float64)


def _is_64(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype.itemsize == 8


def _may_exceed(interval: Interval | None) -> bool:
    return interval is None or interval.lower < _32_BITS.lower or interval.upper > _32_BITS.upper


def _largest(value: Any) -> int:
    flat = np.asarray(value).reshape(-1).tolist()
    return max(flat, key=abs)
