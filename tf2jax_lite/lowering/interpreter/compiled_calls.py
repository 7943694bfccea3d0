"""Calls with concrete arguments, compiled.

An eager loop would trace and compile its body again in each run.

The first call for some shapes runs op by op; from the second on a jitted evaluator runs, so that a function that is
called once is compiled no more than its loops are. Programs whose behavior may differ under `jax.jit` are left out:
those with effects, data-dependent shapes, strings, or ops that users registered. So are calls whose results may differ:
those with integers that numpy computes with in 64 bits, where JAX has 32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import WHILES
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.lowering.planning.program import Program
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.int64 import exceeds_32_bits

# Shapes for which a function keeps compiled evaluators; with more it runs op by op.
_MAX_COMPILED = 32
_64_BITS = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
_Results = tuple[list[Any], dict[str, Any]]


def is_worth_compiling(program: Program) -> bool:
    """Return whether a program has loops, and the same results compiled."""
    loops = False
    for step in (step for function in _functions(program) for step in program.plan(function).steps):
        op = step.op  # without a bound the others with data-dependent sizes are refused rather than padded
        pure = not (op.side_effect or op.always_pads or op.name in program.evaluated)
        if not pure or not op.fn.__module__.startswith("tf2jax_lite.") or program.fallback_nodes:
            return False
        loops = loops or op.name in WHILES
    return loops


def computes_in_64_bits(program: Program) -> bool:
    """Return whether 64-bit integers of arguments and constants are computed.

    Moves and comparisons do not count.
    """
    captures = program.graph.captures
    for function in _functions(program):
        constants = set[int]()
        if function is program.graph.main:
            constants = {capture.index for capture in captures if not isinstance(capture.value, ir.Variable)}
        # An argument of a called function is static if the caller computed it of static integers.
        known = {i for i, arg in enumerate(function.args) if _may_be_known(arg.dtype)} - constants
        for step in program.plan(function).steps:
            op, inputs = step.op, set(step.inputs)
            if op.plain and (op.pattern is Pattern.SHAPE_ONLY or inputs <= constants):
                constants.update(step.outputs)
                continue
            if not inputs <= known | constants or not (op.plain or step.node.functions):
                continue
            moves = op.pattern is Pattern.INJECTIVE or op.int64 == "per_word" or step.node.functions
            if not moves and any(dtype in _64_BITS for dtype in step.dtypes if dtype is not None):
                return True
            known.update(step.outputs)
    return False


def _may_be_known(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and (dtype.kind in "iub" or dtype in _64_BITS)


def _functions(program: Program) -> Iterator[ir.Function]:
    """Yield the main function, and once each function that is called."""
    seen, pending = set[str](), [program.graph.main]
    while pending:
        function = pending.pop()
        yield function
        for step in program.plan(function).steps:
            callees = [program.function(ref.name) for ref in step.node.functions if ref.name not in seen]
            seen.update(callee.name for callee in callees)
            pending += callees


class CompiledCalls:
    """The jitted evaluator of a program, and the shapes that it is used for.

    Args:
      run: takes params, flat inputs, a key or None, and whether dtypes are promoted; returns flat results and the
        params that changed.
      in_64_bits: see `computes_in_64_bits`.
    """

    def __init__(self, run: Callable[[Mapping[str, Any], Sequence[Any], Any, bool], _Results], *, in_64_bits: bool):
        self._run = jax.jit(run, static_argnums=3)
        self._in_64_bits = in_64_bits
        self._results: dict[Any, list[Any] | None] = {}  # None where results or compilation forbid it
        self._verified: set[Any] = set()

    def call(
        self,
        eager: Callable[[], _Results],
        params: Mapping[str, Any],
        inputs: Sequence[Any],
        key: Any,
        promote_dtypes: bool,
    ) -> _Results:
        """Return flat results and new params, of the evaluator or of ``eager()``."""
        shapes = self._key(params, inputs, key, promote_dtypes)
        if shapes is None:
            return eager()
        expected = self._results.get(shapes)
        if expected is not None:
            try:
                flat, changed = self._run(dict(params), list(inputs), key, promote_dtypes)
                if shapes in self._verified or _specs(flat) == expected:
                    self._verified.add(shapes)
                    return flat, {**params, **changed}
            except Exception:  # the eager run raises the error, if there is one
                pass
            self._results[shapes] = None
        out = eager()
        if shapes not in self._results and len(self._results) < _MAX_COMPILED:
            self._results[shapes] = _specs(out[0])
        return out

    def _key(self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any, promote_dtypes: bool) -> Any:
        """Return shapes to compile an evaluator for; None to run op by op."""
        values, wide = [*params.values(), *inputs], bool(jax.config.jax_enable_x64)
        if jax.config.jax_disable_jit or not all(map(_is_array, values)) or _is_traced():
            return None
        # Static integers stay NumPy arrays, with 64 bits, if the call runs op by op.
        if not wide and any(exceeds_32_bits(v) or (self._in_64_bits and _is_static_integer(v)) for v in values):
            return None
        given = tuple((v.shape, v.dtype) for v in inputs)
        return given, promote_dtypes, None if key is None else key.dtype, wide


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and value.dtype != object)


def _is_static_integer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iub"


def _is_traced() -> bool:
    """Return whether the call is traced although no argument is."""
    return is_traced(lax.full((), np.float32(0)))


def _specs(flat: Sequence[Any]) -> list[Any] | None:
    return [(v.shape, v.dtype) for v in flat] if all(isinstance(v, jax.Array) for v in flat) else None
