"""The interpreter: evaluates plans under JAX tracing, with the state of one call."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite import ir
from tf2jax_lite.dynamic_shapes.bounds import is_data_dependent
from tf2jax_lite.dynamic_shapes.dim_expr import canonical_result
from tf2jax_lite.dynamic_shapes.size_comparisons import is_inconclusive
from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.dynamic_shapes.unification import fitting_sizes
from tf2jax_lite.jaxprs.materialize import materialize_if_traced
from tf2jax_lite.jaxprs.shard_map import in_mesh
from tf2jax_lite.lowering.interpreter.operands import check_indices
from tf2jax_lite.lowering.merging.branch_merge import merge_branches
from tf2jax_lite.lowering.merging.branch_variants import RankVariants, expand_variants
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.lowering.planning.program import Program
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import MissingParamError, PreventedGradientError
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import U32Pair, per_word, to_32_bits, to_u32_pair
from tf2jax_lite.xla_cpu.catalog import selection
from tf2jax_lite.xla_cpu.rules import using
from tf2jax_lite.xla_cpu.transform import call as call_with_rules

from .assigned_variables import as_variable
from .constant_folding import FoldingBudget, check_results, fold
from .diagnostics import cause, describe, explain, is_explained, located, missing_key
from .frame import Context, Frame
from .operands import check_dtypes, each, flat_results, grouped, prepare, same_varying_axes

# No primitive that moves data has a CPU lowering rule; and what a user's op depends on is not known.
_WITHOUT_RULES = (Pattern.INJECTIVE, Pattern.SHAPE_ONLY)


class Trace:
    """The evaluator of plans, with the state of one call.

    Args:
      state: variable name to current value; changed in place by assignments.
      key: the typed PRNG key given by the caller, or None.
      promote_dtypes: whether arguments came with other dtypes than TensorFlow recorded, so that operands are promoted
        to a common dtype and recorded dtypes are not enforced.
      initial: initial values of variables by name. If given, a read after an assignment is differentiated with respect
        to the initial value (TensorFlow's rule); if None, with respect to the assigned value (JAX's rule).
      suppress_effects: whether nothing is printed or asserted, as another run of the same call does it.
      tracker: makes symbols of data-dependent sizes. None: there are none, and ops that could use them have no bound.
      inconclusive: gets the name of each node that compares sizes without a result at trace time; the comparison is
        traced then. None: such sizes count as different.
    """

    def __init__(
        self,
        program: Program,
        state: dict[str, Any],
        key: Any,
        *,
        promote_dtypes: bool = False,
        initial: Mapping[str, Any] | None = None,
        suppress_effects: bool = False,
        tracker: DynamicShapes | None = None,
        inconclusive: list[str] | None = None,
    ):
        self.program = program
        self.state = state
        self.promote_dtypes = promote_dtypes
        self.initial = initial
        self.suppress_effects = suppress_effects
        self.tracker = tracker
        self.inconclusive = inconclusive
        self.budget = FoldingBudget()
        self._in_mesh = in_mesh()
        self._key = key

    def with_state(self, state: Mapping[str, Any]) -> Trace:
        """Return the evaluator with a copy of another state, assigned separately."""
        other = copy.copy(self)
        other.state = dict(state)
        return other

    def root_frame(self) -> Frame:
        """Return the frame of the main function."""
        return Frame((), self._root_key)

    @property
    def key_impl(self) -> Any:
        """The caller's key implementation for ``jax.random.wrap_key_data``, or None."""
        return None if self._key is None else jax.random.key_impl(self._key)

    def _root_key(self) -> Any:
        if self._key is None:
            raise missing_key(self.program.random_nodes)
        return self._key

    def call(self, function: ir.Function, args: Sequence[Any], frame: Frame) -> list[Any]:
        """Evaluate a function."""
        with using(selection(self.program.config.xla_cpu_rules)):
            return self.run(self.program.plan(function), args, frame)

    def callable(self, ref: ir.FunctionRef, frame: Frame) -> Callable[..., list[Any]]:
        """Return a library function as a callable that returns a result list."""
        function = self.program.function(ref.name)
        return lambda *args: [values.as_array(v) for v in self.call(function, args, frame)]

    def run(self, plan: Plan, args: Sequence[Any], frame: Frame) -> list[Any]:
        """Evaluate a plan: bind, apply each step, release values after last use."""
        env: list[Any] = [None] * plan.size
        env[: len(args)] = args
        for step in plan.steps:
            apply = self.apply if step.override is None else functools.partial(step.override, self.apply)
            results = apply(step, [env[i] for i in step.inputs], frame)
            for slot, value in zip(step.outputs, results, strict=True):
                env[slot] = value
            for slot in step.release:
                env[slot] = None
        return [env[slot] for slot in plan.outputs]

    def apply(self, step: Step, inputs: list[Any], frame: Frame) -> list[Any]:
        """Return the results of a step."""
        if (found := expand_variants(inputs)) is not None:
            return self._apply_to_variants(step, *found, frame)
        try:
            results = self._folded_or_traced(step, inputs, frame)
        except Exception as error:
            if is_explained(error):
                raise
            if not isinstance(error, PreventedGradientError):
                self._unify_sizes(step, inputs, frame)
            reason = cause(error, step, inputs)
            raise explain(reason, step, inputs, frame) from reason
        if len(results) != len(step.outputs):
            raise located(f"{len(results)} results where {len(step.outputs)} are declared", step, frame)
        if not self.promote_dtypes:
            check_dtypes(step, results, frame)
        return results

    def _folded_or_traced(self, step: Step, inputs: list[Any], frame: Frame) -> list[Any]:
        results = None
        if not step.op.needs_context and all(map(values.is_static, inputs)):
            results = fold(self, step, inputs)
            if results is not None and is_inconclusive(inputs, results) and self._traces_inconclusive(step):
                results = None
        if results is None:
            with jax.named_scope(step.node.name):
                results = self._evaluate(step, inputs, frame)
                for position in step.materialized:
                    results[position] = materialize_if_traced(results[position])
        if check_results(results) and self.tracker is None:
            return list(map(canonical_result, results))
        if self.tracker is not None:
            return list(map(self.tracker.apply_equalities, results))
        return results

    def _apply_to_variants(self, step: Step, choice: RankVariants, inputs: list[list[Any]], frame: Frame) -> list[Any]:
        """Return the results of a step for inputs of several ranks, in branches."""

        def run(given: list[Any]) -> list[Any]:
            branch = self.with_state(self.state)
            results = branch.apply(step, given, dataclasses.replace(frame, unconditional=False))
            assigned = any(branch.state.get(name) is not value for name, value in self.state.items())
            if assigned or len(branch.state) > len(self.state):
                raise choice.refusal
            return results

        branches = [functools.partial(run, given) for given in inputs]
        names = [f"branch {i}" for i in range(len(branches))]
        return merge_branches(
            choice.index, branches, names, lambda _: choice.refusal, self.tracker, factors=choice.factors
        )

    def _traces_inconclusive(self, step: Step) -> bool:
        """Return whether a comparison of sizes without a result at trace time is traced."""
        if self.tracker is not None:
            return True
        if self.inconclusive is None:
            return False
        self.inconclusive.append(step.node.name)
        return True

    def _unify_sizes(self, step: Step, inputs: list[Any], frame: Frame) -> None:
        """Assume sizes to be equal that a node fails with, if they are data-dependent."""
        if self.tracker is None or step.op.needs_context:  # the arguments of calls and loops meet in other nodes
            return
        shapes = []
        for group, static in zip(grouped(step, inputs), step.static, strict=False):
            for value in group if isinstance(group, list) else [group]:
                if not static and isinstance(value, (jax.Array, np.ndarray)):
                    shapes.append(value.shape)
                elif isinstance(value, np.ndarray) and value.ndim == 1 and any(map(is_data_dependent, value)):
                    shapes.append(tuple(value))  # the shape of a result

        def fitting() -> Sequence[Mapping[str, int]]:
            if step.op.effectful:
                return []
            other = copy.copy(self)
            other.tracker = DynamicShapes()
            return fitting_sizes(lambda given: other._evaluate(step, given, frame), inputs, shapes)

        self.tracker.unify(shapes, fitting)

    def _evaluate(self, step: Step, inputs: list[Any], frame: Frame) -> list[Any]:
        op = step.op
        if self.suppress_effects and op.side_effect and not step.outputs:
            return []
        if op.needs_context:
            return flat_results(op.fn(Context(self, frame, step), *grouped(step, inputs), **step.kwargs))
        args, runs_per_word = prepare(self, step, inputs, frame)
        if self._in_mesh and not op.writes:
            args = same_varying_axes(args)
        if self.program.config.enable_checkify_for_asserts and not self.suppress_effects:
            check_indices(op.name, op.inputs, args, step.kwargs, describe(step, frame))
        bound = None if op.always_pads else op.bound
        shapes = None if self.tracker is None else op.shapes
        if op.plain and not step.functions and not runs_per_word and bound is None and shapes is None:
            if op.pattern in _WITHOUT_RULES or not op.fn.__module__.startswith("tf2jax_lite."):
                return flat_results(op.fn(*args, **step.kwargs))
            return flat_results(call_with_rules(op.fn, *args, **step.kwargs))
        kwargs = dict(step.kwargs)
        if bound is not None:
            kwargs[bound] = self.tracker
        if shapes is not None:
            kwargs[shapes] = self.tracker
        if op.unconditional is not None:
            kwargs[op.unconditional] = frame.unconditional
        for name, ref in step.functions.items():
            kwargs[name] = each(lambda r: self.callable(r, frame.enter(step)), ref)
        if op.key is not None:
            draws = op.draws_random(step.node.attrs)
            kwargs[op.key] = jax.random.fold_in(frame.key(), step.stable_id) if draws else None
        call = functools.partial(op.fn, **kwargs)
        results = flat_results(per_word(call, args) if runs_per_word else call(*args))
        if bound is not None and self.tracker is not None:
            self.tracker.record_indices(results)
        if op.writes:
            self._write(step, inputs, results)
            results = results[len(op.writes) :]
        return results

    def read(self, handle: Any, step: Step, frame: Frame) -> Any:
        """Return the current value of the variable of a handle.

        If an op that does not write the variable reads it, its derivative is that of the initial value, if given.
        """
        if not isinstance(handle, values.VariableHandle):
            raise located(f"expected a variable's handle, got {type(handle).__name__}", step, frame)
        try:
            value = self.state[handle.name]
            if isinstance(value, jax.ShapeDtypeStruct):  # as convert() returns variables without a value
                raise KeyError(handle.name)
            if handle.name in self.program.wide and not jax.config.jax_enable_x64:
                return value if isinstance(value, U32Pair) else U32Pair(to_u32_pair(value), np.dtype(np.int64))
            value = values.as_array(value)
        except KeyError:
            raise MissingParamError(
                f"variable {handle.name!r} is read before it has a value (node {step.node.name!r}, {step.node.op}); "
                "is it missing from params, or was it converted without its value (a checkpoint)?"
            ) from None
        if self.initial is None or step.op.writes or not isinstance(value, jax.Array):
            return value
        if values.OF_ASSIGNMENT in step.node.attrs:
            return lax.stop_gradient(value)
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            return value  # has no derivative, and two reads of it are seen to be one number
        initial = self.initial.get(handle.name)
        return value if initial is None or value is initial else as_variable(value, initial)

    def _write(self, step: Step, inputs: list[Any], results: list[Any]) -> None:
        for name, value in zip(step.op.writes, results, strict=False):
            handle = inputs[sum(1 if g is None else g for g in step.node.groups[: step.op.inputs.index(name)])]
            wide = handle.name in self.program.wide
            self.state[handle.name] = value if wide else to_32_bits(values.as_array(value))
