"""The retracing policy: how often one call traces a program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite import ir
from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.dynamic_shapes import driver, size_comparisons
from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.lowering import Program
from tf2jax_lite.lowering.interpreter.assigned_variables import Wanted, separately
from tf2jax_lite.lowering.interpreter.compiled_calls import CompiledCalls, computes_in_64_bits, is_worth_compiling
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.gc_pause import paused

Results = tuple[list[Any], dict[str, Any]]
"""Flat results, and updated params."""


class Retracing:
    """Run a program once, or several times where one trace is not enough.

    Reasons to trace again, from outer to inner, and the fact about the program that excludes each:

    1. `assigned_variables`: results and updated variables have different derivatives. Not without
       ``program.reads_late``; with it each traced call has two traces.
    2. `size_comparisons`: a branch depends on a comparison of symbolic sizes. Not without ``program.compares_sizes``.
    3. `dynamic_shapes.driver`: a size depends on data. Not without ``program.has_dynamic_sizes``.
    4. `lowering.loops.carry`: a loop's body changes the types of its carry. The body is traced again, inside ``once``.

    Without a reason the program is traced once. For 2 to 4 only the trace tells whether a further one is needed: then
    `support.retrace.retrace` starts it again.

    Args:
      once: evaluates the program: ``once(params, inputs, key, promote_dtypes, wanted, inconclusive=..., tracker=...)``;
        see `Trace`.

    Attributes:
      separates_state: whether traced calls have the first reason: a variable may be read after an assignment.
    """

    def __init__(self, program: Program, interface: Interface, config: Config, once: Callable[..., Results]):
        self._program = program
        self._names = interface.result_names
        self._config = config
        self._once = once
        self.separates_state = program.reads_late

    def call(self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any, promote_dtypes: bool) -> Results:
        """Run the program.

        Args:
          key: a typed PRNG key, or None.
          promote_dtypes: whether operands of ops may differ in dtype.
        """
        given = [*params.values(), *inputs, *([] if key is None else [key])]
        traced = [i for i, v in enumerate(given) if is_traced(v)]
        # Objects that tracing makes stay alive, and each collection visits all of them.
        with paused() if traced else contextlib.nullcontext():
            if self.separates_state and traced:
                return self._separately(params, inputs, key, promote_dtypes, given, traced)
            if traced or self._compiled is None:
                return self._run(params, inputs, key, promote_dtypes, "both")

            def eager() -> Results:
                return self._run(params, inputs, key, promote_dtypes, "both")

            return self._compiled.call(eager, params, inputs, key, promote_dtypes)

    def sizes(self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any, promote_dtypes: bool) -> list[Any]:
        """Return the shape of each flat result, an int32 vector; see `call`."""
        return self._run(params, inputs, key, promote_dtypes, "sizes")[0]

    @functools.cached_property
    def _compiled(self) -> CompiledCalls | None:
        if not is_worth_compiling(self._program):
            return None

        def run(params: Any, inputs: Any, key: Any, promote_dtypes: bool) -> Results:
            # Without `driver.trace_and_evaluate`: results with data-dependent sizes must not be padded.
            flat, state = size_comparisons.with_deferred_comparisons(
                lambda met: self._once(params, inputs, key, promote_dtypes, "both", inconclusive=met)
            )
            return flat, {name: value for name, value in state.items() if value is not params.get(name)}

        return CompiledCalls(run, in_64_bits=computes_in_64_bits(self._program))

    def _separately(
        self,
        params: Mapping[str, Any],
        inputs: Sequence[Any],
        key: Any,
        promote_dtypes: bool,
        given: Sequence[Any],
        traced: Sequence[int],
    ) -> Results:
        """Run for results and for updated variables, which differ in derivatives."""
        static_results: list[Any] = []  # values of static results, None for the others
        names: dict[str, Any] = {}

        def run(chosen: list[Any], wanted: Wanted) -> tuple[list[Any], list[Any]]:
            args = list(given)
            for i, value in zip(traced, chosen, strict=True):
                args[i] = value
            before = dict(zip(params, args, strict=False))
            rest = args[len(before) :]
            flat, after = self._run(
                before, rest[: len(inputs)], None if key is None else rest[-1], promote_dtypes, wanted
            )
            static_results[:] = [None if isinstance(v, jax.Array) else v for v in flat]
            changed = {name: v for name, v in after.items() if v is not before.get(name)}
            names.clear()
            names.update(dict.fromkeys(changed))
            return [v for v in flat if isinstance(v, jax.Array)], [jnp.asarray(v) for v in changed.values()]

        results, new = separately(run, [given[i] for i in traced])
        remaining = iter(results)
        flat = [next(remaining) if v is None else v for v in static_results]
        return flat, {**params, **dict(zip(names, new, strict=True))}

    def _run(
        self, params: Mapping[str, Any], inputs: Sequence[Any], key: Any, promote_dtypes: bool, wanted: Wanted
    ) -> Results:
        def run(met: list[str] | None) -> Any:
            def once(given: Mapping[str, Any], inputs: Sequence[Any], key: Any, **sized: Any) -> Any:
                return self._once(given, inputs, key, promote_dtypes, wanted, inconclusive=met, **sized)

            if not self._program.has_dynamic_sizes:
                return once(params, inputs, key)
            limit = self._config.dynamic_shape_bound or None
            single = _unit_axes(inputs, self._program.graph.main.args)
            return driver.trace_and_evaluate(once, (dict(params), list(inputs), key), limit, self._names, single)

        return size_comparisons.with_deferred_comparisons(run) if self._program.compares_sizes else run(None)


def _unit_axes(inputs: Sequence[Any], args: Sequence[ir.Argument]) -> dict[int, list[int]]:
    """Return for each input its unit axes of unknown size: those of a batch of one."""
    found = {}
    for i, (value, arg) in enumerate(zip(inputs, args, strict=False)):
        if isinstance(value, jax.Array) and arg.shape is not None and len(arg.shape) == value.ndim:
            axes = [a for a, size in enumerate(arg.shape) if size is None and value.shape[a] == 1]
            found.update({i: axes} if axes else {})
    return found
