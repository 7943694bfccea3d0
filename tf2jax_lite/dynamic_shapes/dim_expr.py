"""What expressions of symbolic dimensions come to, and the most they can be, given that of their variables."""

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

from tf2jax_lite.jaxprs.compat import max_dim, min_dim
from tf2jax_lite.support.errors import OpError

__all__ = [
    "FOUND",
    "HAS_TO_HOLD",
    "MOST_TRIED",
    "SIZES",
    "constraint_asked_for",
    "constraint_of_shapes",
    "constraint_of_sizes",
    "holds_for_all",
    "largest",
    "names",
    "parsed",
    "value",
]

_MOST_VALUES = 1 << 20  # of one variable that are tried
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 100)
"""That are tried for each of several variables."""

_LARGE = (*SIZES, 10_000, 10_000_000)  # of a signal, there may be a second at least

MOST_TRIED = 4
"""Variables of which all sizes are tried together."""

FOUND = "found_"
"""How variables are called whose values data decides (`tracker.py`); those of exported functions have other names."""

HAS_TO_HOLD = "of symbolic dimensions, it has to hold that"
"""What errors say before a constraint."""

_HOLDS = re.compile(HAS_TO_HOLD + " ([^:;'()]+ <= [0-9]+)")
_LIMITED = re.compile(r"min\(([^(),]+), (\d+)\)")
_INCONCLUSIVE = re.compile("comparison '(.+?)' (?:>=|<) '(.+?)' is inconclusive")
_MOST_VARIABLES = 10  # an expression of several is largest where each is at an end; so many ends are tried


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """Returns what a dimension's text says: the form that ``jax.export.symbolic_shape`` reads, too."""
    return ast.parse(re.sub(r"\^", "**", text), mode="eval").body


def names(tree: ast.expr) -> set[str]:
    """Returns the variables of an expression."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def _extreme(of_arrays: Any, of_numbers: Any, of_sizes: Any) -> Callable[..., Any]:
    def chosen(a: Any, b: Any) -> Any:
        if isinstance(a, jax.Array) or isinstance(b, jax.Array):
            return of_arrays(a, b)
        return (of_numbers if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else of_sizes)(a, b)

    return chosen


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
    "max": _extreme(jnp.maximum, np.maximum, max_dim),
    "min": _extreme(jnp.minimum, np.minimum, min_dim),
}


def value(tree: ast.expr, given: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """Evaluates an expression with a value for each variable: ints, arrays or dimensions.

    Args:
      tree: the expression.
      given: the variables' values.
      functions: other definitions of functions in expressions, by name: ``floordiv``, ``mod``, ``max``, ``min``.

    Raises:
      OpError: the expression holds something else.
    """
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.Name):
        return given[tree.id]
    if isinstance(tree, ast.UnaryOp):
        return _OPERATORS[type(tree.op)](value(tree.operand, given, functions))
    if isinstance(tree, ast.BinOp):
        left, right = value(tree.left, given, functions), value(tree.right, given, functions)
        return _OPERATORS[type(tree.op)](left, right)
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        function = (functions or {}).get(tree.func.id) or _FUNCTIONS[tree.func.id]
        return function(*[value(arg, given, functions) for arg in tree.args])
    raise OpError(f"the dimension {ast.unparse(tree)} is of a form that is not known")


def largest(tree: ast.expr, most: Mapping[str, int]) -> int | None:
    """Returns the most that an expression can be where each variable is from 1 to ``most``; None if nothing tells."""
    found = sorted(names(tree))
    if len(found) == 1 and most[found[0]] <= _MOST_VALUES:
        return int(np.max(value(tree, {found[0]: np.arange(1, most[found[0]] + 1)})))
    if "mod" in ast.unparse(tree) or len(found) > _MOST_VARIABLES:
        return None
    ends = itertools.product(*[(1, most[name]) for name in found])
    return max(int(value(tree, dict(zip(found, end, strict=True)))) for end in ends)


def constraint_asked_for(problem: str) -> str | None:
    """Returns what JAX could not tell of symbolic dimensions, if it holds for all sizes that were tried.

    JAX decides of ``b*n - b`` only with a constraint whether it may be below 0; sizes are at least 1, so it is not.

    Args:
      problem: the text of an error: where it is `jax.errors.InconclusiveDimensionOperation`'s, it says what was asked.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    constraint, holds = _asked(problem)
    return constraint if all(holds) else None


def constraint_of_sizes(problem: str) -> str | None:
    """Returns what JAX could not tell of symbolic dimensions, if it holds for some sizes that were tried: ``b >= 5``.

    ``tf.zeros([b - 5])`` has a size where b is 5 or more; TensorFlow fails for smaller ones.

    Args:
      problem: as above.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    constraint, holds = _asked(problem, _LARGE)
    return constraint if any(holds) else None


def _asked(problem: str, tried: Sequence[int] = SIZES) -> tuple[str | None, list[bool]]:
    """Returns a constraint that an error asks for, and whether it holds for each of the sizes that are tried."""
    asked = _INCONCLUSIVE.search(problem)
    if asked is None or FOUND in asked[0]:
        return None, [False]
    return f"{asked[1]} >= {asked[2]}", _compared(parsed(f"({asked[1]}) - ({asked[2]})"), tried)


def _compared(tree: ast.expr, tried: Sequence[int] = SIZES) -> list[bool]:
    """Returns whether an expression is not below 0, for each of the sizes that are tried; False if none is."""
    found = sorted(names(tree))
    if not 0 < len(found) <= MOST_TRIED:
        return [False]
    sizes = np.meshgrid(*[np.array(tried)] * len(found))
    return (value(tree, dict(zip(found, sizes, strict=True))) >= 0).reshape(-1).tolist()


def holds_for_all(constraint: str) -> bool:
    """Whether a constraint, as the functions above return them, holds for all sizes that are tried."""
    left, sign, right = re.split("(>=|<=)", constraint)
    return all(_compared(parsed(f"({left}) - ({right})" if sign == ">=" else f"({right}) - ({left})")))


def constraint_of_shapes(problem: str) -> str | None:
    """Returns what an error says has to hold of symbolic dimensions, or shows by shapes that would fit: ``n <= 20``.

    A table of 20 rows, of which the first n are taken, has min(n, 20): added to what is n long, it has n, or
    TensorFlow fails.

    Args:
      problem: the text of an error.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    if (found := _HOLDS.search(problem)) is not None:
        return None if FOUND in found[1] else found[1]
    for size, limit in _LIMITED.findall(problem):
        if FOUND not in size and re.search(rf"[(\[, ]{re.escape(size)}[,)\]]", _LIMITED.sub("", problem)):
            return f"{size} <= {limit}"
    return None
