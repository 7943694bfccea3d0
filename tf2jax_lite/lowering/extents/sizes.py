"""What symbolic dimensions come to: how much room they need, and how large they are."""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.errors import OpError

__all__ = ["Sizes", "is_symbolic"]

# A result is largest where each variable is at its end; so many ends are tried.
_MOST_VARIABLES = 10


def is_symbolic(shape: Sequence[Any]) -> bool:
    """Whether a shape has a symbolic dimension."""
    return not all(isinstance(d, int) for d in shape)


class Sizes:
    """The values of the variables in dimensions: the most they can be, and what they are."""

    def __init__(self) -> None:
        self._most: dict[str, int] = {}
        self._actual: dict[str, Any] = {}

    def define(self, name: str, most: int, actual: Any) -> None:
        """Gives a variable a value: an int32 scalar ``actual``, at most ``most``."""
        self._most[name] = most
        self._actual[name] = actual

    @property
    def values(self) -> dict[str, Any]:
        """What each variable is."""
        return dict(self._actual)

    def given(self, values: Mapping[str, Any]) -> Sizes:
        """Returns the same sizes with other arrays for what the variables are."""
        out = Sizes()
        out._most.update(self._most)
        out._actual.update(values)
        return out

    def most(self, dim: Any) -> int:
        """Returns how much room a dimension needs.

        Raises:
          OpError: nothing tells.
        """
        if isinstance(dim, int):
            return dim
        tree = _parsed(str(dim))
        names = sorted(_names(tree) & self._most.keys())
        if _names(tree) - self._most.keys() or "mod(" in str(dim) or len(names) > _MOST_VARIABLES:
            raise OpError(f"nothing tells how large the dimension {dim} can be")
        ends = itertools.product(*[(1, self._most[name]) for name in names])
        return max(0, *(int(_value(tree, dict(zip(names, end, strict=True)))) for end in ends))

    def actual(self, dim: Any) -> Any:
        """Returns how large a dimension is: an int, or an int32 scalar."""
        return dim if isinstance(dim, int) else _value(_parsed(str(dim)), self._actual)

    def shape(self, shape: Sequence[Any]) -> tuple[int, ...]:
        """Returns the shape of the array that has room for all."""
        return tuple(self.most(d) for d in shape)

    def valid(self, shape: Sequence[Any], axes: Sequence[int] | None = None) -> Any:
        """Returns which elements are there, judged by some axes, or all: a bool array that broadcasts; None for all."""
        found = None
        for axis in range(len(shape)) if axes is None else axes:
            if isinstance(shape[axis], int):
                continue
            wide = tuple(self.most(shape[axis]) if i == axis else 1 for i in range(len(shape)))
            there = lax.broadcasted_iota(np.int32, wide, axis) < self.actual(shape[axis])
            found = there if found is None else found & there
        return found

    def filled(self, x: Any, shape: Sequence[Any], value: Any, axes: Sequence[int] | None = None) -> Any:
        """Returns an array with what is not there replaced by one value."""
        there = self.valid(shape, axes)
        return x if there is None else jnp.where(there, x, jnp.asarray(value, x.dtype))


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    """Returns what a dimension's text says: the form that ``jax.export.symbolic_shape`` reads, too."""
    return ast.parse(re.sub(r"\^", "**", text), mode="eval").body


def _names(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def _extreme(of_arrays: Callable[..., Any], of_ints: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: (of_arrays if isinstance(a, jax.Array) or isinstance(b, jax.Array) else of_ints)(a, b)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": _extreme(jnp.maximum, max),
    "min": _extreme(jnp.minimum, min),
}


def _value(tree: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.Name):
        return names[tree.id]
    if isinstance(tree, ast.UnaryOp):
        return _OPERATORS[type(tree.op)](_value(tree.operand, names))
    if isinstance(tree, ast.BinOp):
        return _OPERATORS[type(tree.op)](_value(tree.left, names), _value(tree.right, names))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _FUNCTIONS[tree.func.id](*[_value(arg, names) for arg in tree.args])
    raise OpError(f"the dimension {ast.unparse(tree)} is of a form that is not known")
