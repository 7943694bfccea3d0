"""Transpose sinking: an op between inverse transposes works on another axis.

TensorFlow has softmax along the last axis alone: ``tf.nn.softmax(x, axis=1)`` is Transpose, Softmax, Transpose. The
permutations are known only while tracing, but the three nodes are in the graph. The first two steps return a
`_DeferredTranspose`, and the third combines both permutations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from tf2jax_lite.ops.arrays import permute
from tf2jax_lite.ops.nn.softmax import AXIS_IMPLS
from tf2jax_lite.ops.registry import Op
from tf2jax_lite.support.patterns import match, op
from tf2jax_lite.values import static

from .plan import Apply, Plan, Step, Steps


@dataclasses.dataclass(frozen=True)
class _DeferredTranspose:
    """An array, and the permutation that makes the node's result of it."""

    array: Any
    axes: tuple[int, ...]


_TRANSPOSED = op(permute.transpose, op(AXIS_IMPLS, op(permute.transpose, name="first"), name="middle"), name="last")


def run(plan: Plan) -> Plan:
    """Override transpositions around an op that can work along any axis, and that op."""
    if all(_axis_impl(op) is None for op in {id(step.op): step.op for step in plan.steps}.values()):
        return plan
    steps = Steps(plan)
    changed: dict[int, dict[str, Any]] = {}
    for last in range(len(plan.steps)):
        found = match(_TRANSPOSED, last, steps)
        if found is not None and found.operations["first"] not in changed:  # it may end another such three
            overrides = {"first": _defer, "middle": _along, "last": _combine}
            changed.update({index: {"override": overrides[name]} for name, index in found.operations.items()})
    return plan.with_steps(changed)


def _permutation(perm: Any, rank: int) -> tuple[int, ...] | None:
    """Return a permutation of ``rank`` axes if it is static and valid, else None."""
    found = static.static_value(perm)
    if found is None or found.dtype == object or found.shape != (rank,):
        return None
    axes = tuple(int(axis) + rank * int(axis < 0) for axis in found)
    return axes if sorted(axes) == list(range(rank)) else None


def _defer(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    x, perm = inputs
    axes = _permutation(perm, x.ndim) if isinstance(x, jax.Array) and x.ndim else None
    return apply(step, inputs, frame) if axes is None else [_DeferredTranspose(x, axes)]


def _along(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    (deferred,) = inputs
    if not isinstance(deferred, _DeferredTranspose):
        return apply(step, inputs, frame)
    axis_impl: Any = _axis_impl(step.op)
    op = dataclasses.replace(step.op, fn=functools.partial(axis_impl, axis=deferred.axes[-1]))
    (result,) = apply(step._replace(op=op), [deferred.array], frame)
    return [_DeferredTranspose(result, deferred.axes)]


def _combine(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    deferred, perm = inputs
    if not isinstance(deferred, _DeferredTranspose):
        return apply(step, inputs, frame)
    axes = _permutation(perm, len(deferred.axes))
    if axes is None:  # traced, or the op raises its error
        return apply(step, [jax.numpy.transpose(deferred.array, deferred.axes), perm], frame)
    return apply(step, [deferred.array, np.array([deferred.axes[axis] for axis in axes])], frame)


def _axis_impl(op: Op) -> Callable[..., Any] | None:
    """Return what an op does along an axis; None if only the last one works."""
    return AXIS_IMPLS.get(op.fn) if isinstance(op.fn, Hashable) else None
