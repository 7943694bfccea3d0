"""Shapes with symbolic dimensions, and new steps and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.export.codegen.block_ir import Equation, Literal, Value

from .graph import Item


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two shapes are equal for all values of symbolic dimensions."""
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def broadcast(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...] | None:
    """Return the shape to which NumPy broadcasts shapes, None if it does not.

    Shapes must broadcast for all values of symbolic dimensions.
    """
    rank = max(map(len, shapes), default=0)
    result: list[Any] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if result[axis] is dim or dim == 1 or dim == result[axis]:
                continue
            if result[axis] != 1:
                return None
            result[axis] = dim
    return tuple(result)


def inserted(short: Sequence[Any], long: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the axes of size 1 that turn one shape into another, or None."""
    axes, rest = [], list(short)
    for axis, dim in enumerate(long):
        if rest and len(rest) == len(long) - axis and not same(rest, long[axis:]):
            return None
        if rest and (rest[0] is dim or rest[0] == dim) and len(rest) <= len(long) - axis:
            rest.pop(0)
        elif isinstance(dim, int) and dim == 1:
            axes.append(axis)
        else:
            return None
    return None if rest else tuple(axes)


def aval(shape: Sequence[Any], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return an abstract array."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def new(
    name: str,
    params: Mapping[str, Any],
    inputs: Sequence[Item],
    like: Equation,
    output: Value | jax.ShapeDtypeStruct | Sequence[Value],
) -> Equation:
    """Return a step in the scope of another.

    Args:
      name: its primitive.
      params: its parameters.
      inputs: its operands.
      like: the step whose scope it belongs to.
      output: its output or outputs, or the type of a new one.
    """
    if isinstance(output, jax.ShapeDtypeStruct):
        output = Value(output, like.path[-1] if like.path else "")
    outputs = [output] if isinstance(output, Value) else list(output)
    return Equation(name, dict(params), list(inputs), outputs, like.path)


def is_array(item: Item) -> bool:
    """Return whether an item is a value, not a literal."""
    return not isinstance(item, Literal)


def scalar_literal(item: Item) -> np.ndarray | None:
    """Return the number that a literal is, None for other items."""
    return item.array if isinstance(item, Literal) and item.array.ndim == 0 else None


def is_float(item: Item) -> bool:
    """Return whether an item has 32-bit or 64-bit floats."""
    return item.aval.dtype in (np.dtype(np.float32), np.dtype(np.float64))
