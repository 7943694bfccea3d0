"""Nodes whose inputs are all static, computed while tracing.

`run_partially` evaluates a plan in NumPy as far as possible, which tells the trip counts of loops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, is_traced
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.ops.common.result_size import broadcast_elements
from tf2jax_lite.ops.strings.host_evaluation import COMPUTED_BYTES, is_text, text_bytes
from tf2jax_lite.support.errors import InvalidModelError, UnsupportedError
from tf2jax_lite.support.limits import MAX_DIMENSIONS, MAX_RESULT_BYTES, check_bytes, check_result
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import exceeds_32_bits
from tf2jax_lite.values.symbolic_float import is_float_dim

from .frame import FOLDING_FRAME, Context
from .operands import flat_results, grouped, prepare

if TYPE_CHECKING:
    from .trace import Trace


# Elements of a folded constant, if no input is larger. Larger ones are left to XLA, which need not keep them.
_MAX_FOLDED = 1024


def fold(trace: Trace, step: Step, inputs: Sequence[Any]) -> list[Any] | None:
    """Return a node's results as NumPy arrays; None if it is to be traced."""
    args = grouped(step, inputs)
    if inputs or step.op.result_size is not None:
        check_growth(step, inputs, args, trace.program.config.max_constant_bytes)
    if step.op.fold is not None:
        try:
            return flat_results(step.op.fold(*args, **step.kwargs))
        except InconclusiveDimensionOperation:
            return None
        except TypeError:
            if any(map(is_float_dim, inputs)):  # NumPy has no arithmetic for them
                return None
            raise
    return _run(trace, step, inputs)


def _run(trace: Trace, step: Step, inputs: Sequence[Any]) -> list[Any] | None:
    """Run an op without a constant folder at once; None if it must be traced."""
    # Operands beyond 32 bits are computed with in 64-bit mode.
    op = step.op
    if not inputs or not op.plain or step.functions or any(v.dtype == object for v in inputs):
        return None
    wide = jax.enable_x64(True) if any(map(exceeds_32_bits, inputs)) else contextlib.nullcontext()
    with jax.ensure_compile_time_eval(), wide:
        args, kwargs = prepare(trace, step, inputs, FOLDING_FRAME)[0], dict(step.kwargs)
        if op.bound is not None:  # of data-dependent sizes, which constants have not
            kwargs.setdefault(op.bound, None)
        try:
            specs = jax.eval_shape(lambda: flat_results(op.fn(*args, **kwargs)))
        except Exception:  # results that are no arrays, or an error that tracing reports with its node
            return None
        if not all(isinstance(spec, jax.ShapeDtypeStruct) for spec in specs):
            return None
        check_specs(specs, trace.program.config.max_constant_bytes)
        if sum(spec.size for spec in specs) > max(_MAX_FOLDED, *(v.size for v in inputs)):
            return None
        results = flat_results(op.fn(*args, **kwargs))
        # Under vmap, functions with derivative rules of their own (jax.custom_jvp) are traced even here.
        if any(map(is_traced, results)):
            return None
        return [np.asarray(v) for v in results]


# Elements of inputs that are too few to check results, unless the op makes large results of small inputs.
_SMALL = 1024
_INTEGERS = frozenset((int,))


def check_growth(step: Step, inputs: Sequence[Any], args: Sequence[Any], limit: int) -> None:
    """Check the size of a constant before it is computed."""
    text = [v for v in inputs if is_text(v)]
    if text or step.op.name == "AsString":
        found = _text_bytes(step, inputs, args, text)
        if found > limit:
            check_bytes((found,), 1, "a constant that this node computes", limit=limit)
        return
    found = _elements(step, inputs, args)
    if found is not None:
        dtype = step.dtypes[0] if step.dtypes else None
        itemsize = 8 if dtype is None else dtype.itemsize
        if not 0 <= found * itemsize <= limit:
            check_bytes((found,), itemsize, "a constant that this node computes", limit=limit)


def _text_bytes(step: Step, inputs: Sequence[Any], args: Sequence[Any], text: Sequence[Any]) -> int:
    """Return a bound for the results of a node, whose inputs ``text`` are strings."""
    for value, name in zip(args, step.node.input_types, strict=False):
        if isinstance(step.node.attrs.get(name), np.dtype) and is_text(value):
            raise InvalidModelError(f"an input is an array of strings; expected {step.node.attrs[name]}.")
    if step.op.name in COMPUTED_BYTES:
        with contextlib.suppress(ValueError):  # shapes that do not broadcast
            return COMPUTED_BYTES[step.op.name](args, step.kwargs)
    found = _elements(step, inputs, args) or 0
    longest = max(max(map(len, v.flat)) for v in text)
    moved = sum(map(text_bytes, text))
    return 8 * found + (moved if step.op.result_size is None else found * longest)


def _elements(step: Step, inputs: Sequence[Any], args: Sequence[Any]) -> int | None:
    if step.op.result_size is not None:
        return step.op.result_size(*args, **step.kwargs)
    sizes = [v.size if isinstance(v, np.ndarray) else 1 for v in inputs]
    found = sum(sizes)
    if found * found > _SMALL and len(sizes) <= _SMALL and math.prod(sorted(sizes)[-2:]) > _SMALL:
        found = broadcast_elements([v for v in inputs if isinstance(v, np.ndarray)])
    return found


def check_results(results: Sequence[Any]) -> bool:
    """Check a node's result shapes, since XLA ends the process on overflow.

    Args:
      results: arrays, of static or symbolic shape, and anything else.

    Returns:
      Whether one of them has a symbolic dimension, or holds objects, as vectors of symbolic dimensions do.
    """
    is_symbolic = False
    for value in results:
        shape = getattr(value, "shape", None)
        if not isinstance(shape, tuple):
            continue
        if not _INTEGERS.issuperset(map(type, shape)):
            is_symbolic = True
            continue
        is_symbolic = is_symbolic or (isinstance(value, np.ndarray) and value.dtype.hasobject)
        if math.prod(shape) > MAX_RESULT_BYTES >> 4:
            check_result(shape, np.dtype(value.dtype).itemsize, "a result of this node")
        if len(shape) > MAX_DIMENSIONS:
            raise UnsupportedError(f"a result of {len(shape)} dimensions; arrays have up to {MAX_DIMENSIONS}.")
    return is_symbolic


def check_specs(specs: Sequence[Any], limit: int) -> None:
    """Check the shapes of results before they are computed from constants."""
    for spec in specs:
        check_bytes(spec.shape, np.dtype(spec.dtype).itemsize, "a constant that this node computes", limit=limit)


if TYPE_CHECKING:
    from .trace import Trace

# Steps that loops may be folded for in one trace: half a minute's work at most.
_MAX_STEPS = 8_000_000
# Steps that a node counts as which TensorFlow evaluates, and bytes of strings that count as one more.
_EVALUATION, _BYTES = 50, 8


class BudgetSpent(Exception):
    """Folding takes too long."""


@dataclasses.dataclass
class FoldingBudget:
    """The steps that may be folded in one trace.

    Attributes:
      left: steps left for the outermost of the loops that are being folded; None outside of loops.
    """

    total: int = dataclasses.field(default_factory=lambda: _MAX_STEPS)
    left: int | None = None

    @contextlib.contextmanager
    def loop(self, limit: int) -> Iterator[None]:
        """Count steps while a loop is folded. Loops within it share its steps.

        Args:
          limit: steps of the outermost loop, as far as the trace has so many left.
        """
        if self.left is not None:
            yield
            return
        allowed = self.left = min(limit, self.total)
        try:
            yield
        finally:
            self.total -= allowed - max(self.left, 0)
            self.left = None

    def spend(self, steps: int) -> None:
        """Count steps of a loop.

        Raises:
          BudgetSpent: there are not so many left.
        """
        assert self.left is not None
        self.left -= steps
        if self.left < 0:
            raise BudgetSpent


def run_partially(trace: Trace, plan: Plan, args: Sequence[Any], slots: Sequence[Any] | None = None) -> list[Any]:
    """Evaluate a plan in NumPy as far as possible.

    Args:
      args: its arguments; `values.UNKNOWN` for those that are traced.
      slots: values of all slots that are known before; arguments count instead of theirs.

    Returns:
      The plan's results; `values.UNKNOWN` for those that depend on traced values.

    Raises:
      BudgetSpent: a loop that is being folded takes too many steps.
    """
    if trace.budget.left is not None:
        trace.budget.spend(len(plan.steps) or 1)
    env: list[Any] = [values.UNKNOWN] * plan.size if slots is None else list(slots)
    env[: len(args)] = args
    for step in plan.steps:
        if step.op.fold is None:
            continue
        try:
            results = _folded(trace, step, [env[i] for i in step.inputs])
        except BudgetSpent:
            raise
        except Exception:  # raised again, with its node, when the node is traced
            continue
        if results is not None and len(results) == len(step.outputs):
            for slot, value in zip(step.outputs, results, strict=True):
                env[slot] = value if values.is_foldable(value) else values.UNKNOWN
    return [env[slot] for slot in plan.outputs]


def _folded(trace: Trace, step: Step, inputs: list[Any]) -> list[Any] | None:
    """Return a node's results as far as they are static; None if none is."""
    op = step.op
    assert op.fold is not None
    if op.needs_context:
        found = op.fold(Context(trace, FOLDING_FRAME, step), *grouped(step, inputs), **step.kwargs)
        return None if found is None else flat_results(found)
    are_static = all(map(values.is_static, inputs))
    if not op.folds_partially and not are_static:
        return None
    if trace.budget.left is not None and op.name in trace.program.evaluated:
        trace.budget.spend(_EVALUATION + sum(map(text_bytes, inputs)) // _BYTES)
    args = grouped(step, inputs)
    if not op.folds_partially or (op.result_size is not None and are_static):
        check_growth(step, inputs, args, trace.program.config.max_constant_bytes)
    return flat_results(op.fold(*args, **step.kwargs))
