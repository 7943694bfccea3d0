"""Axes that are moved to the end for one op and back after it: the op works along the axis where it lies instead.

TensorFlow has softmax along the last axis alone: ``tf.nn.softmax(x, axis=1)`` is Transpose, Softmax, Transpose. What
the two transpositions do is known only while tracing, but which three nodes they are the graph tells. A result between
them, which nobody else reads, is then carried as what it is a transposition of.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tf2jax_lite.ops.arrays import concat_split as array
from tf2jax_lite.ops.nn.activations import AXIS_IMPLS
from tf2jax_lite.values import static

if TYPE_CHECKING:
    from .plan import Step

    Apply = Callable[[Step, list[Any], Any], list[Any]]

__all__ = ["mark_turned"]


@dataclasses.dataclass(frozen=True)
class _Turned:
    """An array as it lies, and the transposition that would make the node's result of it."""

    array: Any
    axes: tuple[int, ...]


def mark_turned(steps: Sequence[Step], outputs: Sequence[int]) -> None:
    """Sets `Step.turned` of transpositions around an op that can work along any axis, and of that op.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results.
    """
    if not any(_axis_impl(step) is not None for step in steps):
        return
    readers = Counter(slot for step in steps for slot in step.inputs)
    readers.update(outputs)
    made = {slot: step for step in steps for slot in step.outputs}
    for last in steps:
        op = made.get(last.inputs[0]) if _transposes(last) else None
        first = made.get(op.inputs[0]) if op is not None and _axis_impl(op) is not None else None
        if op is None or first is None or not _transposes(first):
            continue
        if first.turned is None and readers[op.outputs[0]] == readers[first.outputs[0]] == 1:  # it may turn one back
            first.turned, op.turned, last.turned = _turn, _along, _turn_back


def _axis_impl(step: Step) -> Callable[..., Any] | None:
    """Returns what a step's op does along a given axis; None if it only works along the last one."""
    return AXIS_IMPLS.get(step.op.fn) if isinstance(step.op.fn, Hashable) else None


def _transposes(step: Step) -> bool:
    return step.op.fn is array.transpose


def _permutation(perm: Any, rank: int) -> tuple[int, ...] | None:
    """Returns a permutation of ``rank`` axes if it is known and one, else None."""
    found = static.known(perm)
    if found is None or found.dtype == object or found.shape != (rank,):
        return None
    axes = tuple(int(axis) + rank * int(axis < 0) for axis in found)
    return axes if sorted(axes) == list(range(rank)) else None


def _turn(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    x, perm = inputs
    axes = _permutation(perm, x.ndim) if isinstance(x, jax.Array) and x.ndim else None
    return apply(step, inputs, frame) if axes is None else [_Turned(x, axes)]


def _along(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    (turned,) = inputs
    if not isinstance(turned, _Turned):
        return apply(step, inputs, frame)
    axis_impl: Any = _axis_impl(step)
    op = dataclasses.replace(step.op, fn=functools.partial(axis_impl, axis=turned.axes[-1]))
    (result,) = apply(dataclasses.replace(step, op=op), [turned.array], frame)
    return [_Turned(result, turned.axes)]


def _turn_back(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    turned, perm = inputs
    if not isinstance(turned, _Turned):
        return apply(step, inputs, frame)
    axes = _permutation(perm, len(turned.axes))
    if axes is None:  # it is refused as it would be otherwise, or traced
        return apply(step, [jax.numpy.transpose(turned.array, turned.axes), perm], frame)
    return apply(step, [turned.array, np.array([turned.axes[axis] for axis in axes])], frame)
