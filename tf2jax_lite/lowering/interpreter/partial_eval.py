"""Partial evaluation of plans in NumPy, which tells the trip counts of loops."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.ops.strings.host_evaluation import text_bytes
from tf2jax_lite.values import static as values

from .constant_folding import check_growth
from .frame import FOLDING_FRAME, Context
from .operands import flat_results, grouped

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
