"""Parse symbolic dimensions, evaluate and bound them."""

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

_MAX_ENUMERATED = 1 << 20  # values of a single variable
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, 100)
"""Sample values of each of several variables."""

_LARGE = (*SIZES, 10_000, 10_000_000)  # a signal may have to last a second

MAX_SAMPLED_VARIABLES = 4
"""Expressions of more variables are not sampled."""

DYNAMIC = "found_"
"""Prefix of the variables of data-dependent dimensions (`tracker.py`); no symbol of an exported function has it."""

HAS_TO_HOLD = "of symbolic dimensions, it has to hold that"
"""Text of errors in front of a constraint."""

_HOLDS = re.compile(HAS_TO_HOLD + " ([^:;'()]+ <= [0-9]+)")
_LIMITED = re.compile(r"min\(([^(),]+), (\d+)\)")
_INCONCLUSIVE = re.compile("comparison '(.+?)' (?:>=|<) '(.+?)' is inconclusive")
_MAX_VARIABLES = 10  # an expression of several is largest at a corner of their ranges; there are 2 ** n corners


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """Parse a dimension's text, as ``jax.export.symbolic_shape`` reads it."""
    return ast.parse(re.sub(r"\^", "**", text), mode="eval").body


def names(tree: ast.expr) -> set[str]:
    """Return the variables of an expression."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def names_in(dim: Any) -> set[str]:
    """Return the variables of a dimension."""
    return set() if isinstance(dim, int) else names(parsed(str(dim)))


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
    """Evaluate an expression for given values: ints, arrays or dimensions.

    Args:
      tree: the expression.
      given: the variables' values.
      functions: other definitions of functions in expressions, by name: ``floordiv``, ``mod``, ``max``, ``min``.

    Raises:
      OpError: the expression has another operation.
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
    raise OpError(f"the dimension {ast.unparse(tree)} has an operation that is not supported")


def largest(tree: ast.expr, bounds: Mapping[str, int]) -> int | None:
    """Return an expression's maximum for variables from 1 to ``bounds``, or None."""
    found = sorted(names(tree))
    if len(found) == 1 and bounds[found[0]] <= _MAX_ENUMERATED:
        return int(np.max(value(tree, {found[0]: np.arange(1, bounds[found[0]] + 1)})))
    if "mod" in ast.unparse(tree) or len(found) > _MAX_VARIABLES:
        return None
    corners = itertools.product(*[(1, bounds[name]) for name in found])
    return max(int(value(tree, dict(zip(found, corner, strict=True)))) for corner in corners)


def constraint_asked_for(problem: str) -> str | None:
    """Return the inconclusive comparison, if it holds for all sampled sizes.

    JAX needs a constraint to know that ``b*n - b`` is not negative, though sizes are at least 1.

    Args:
      problem: the text of an error; `jax.errors.InconclusiveDimensionOperation` names the comparison.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    constraint, holds = _asked(problem)
    return constraint if all(holds) else None


def constraint_of_sizes(problem: str) -> str | None:
    """Return the inconclusive comparison, if it holds for some sampled sizes.

    For example ``b >= 5``. ``tf.zeros([b - 5])`` needs b to be 5 or more; TensorFlow fails for smaller ones.

    Args:
      problem: as above.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    constraint, holds = _asked(problem, _LARGE)
    return constraint if any(holds) else None


def _asked(problem: str, tried: Sequence[int] = SIZES) -> tuple[str | None, list[bool]]:
    """Return the constraint that an error asks for, and the samples it holds for."""
    asked = comparison(problem)
    if asked is None:
        return None, [False]
    return "{} >= {}".format(*asked), _compared(parsed("({}) - ({})".format(*asked)), tried)


def comparison(problem: str) -> tuple[str, str] | None:
    """Return the sizes of an inconclusive comparison, the larger one first."""
    asked = _INCONCLUSIVE.search(problem)
    return None if asked is None or DYNAMIC in asked[0] else (asked[1], asked[2])


def _compared(tree: ast.expr, tried: Sequence[int] = SIZES) -> list[bool]:
    """Return for each sample if an expression is >= 0; [False] if unsampled."""
    found = sorted(names(tree))
    if not 0 < len(found) <= MAX_SAMPLED_VARIABLES:
        return [False]
    sizes = np.meshgrid(*[np.array(tried)] * len(found))
    return (value(tree, dict(zip(found, sizes, strict=True))) >= 0).reshape(-1).tolist()


def holds_for_all(constraint: str) -> bool:
    """Return whether a constraint of the functions above holds for all samples."""
    return all(_compared(_difference(constraint)))


def holds(constraint: str, sizes: Mapping[str, int]) -> bool:
    """Return whether a constraint of the functions above holds for given sizes."""
    return bool(value(_difference(constraint), sizes) >= 0)


def _difference(constraint: str) -> ast.expr:
    """Return an expression that is not negative where a constraint holds."""
    left, sign, right = re.split("(>=|<=)", constraint)
    return parsed(f"({left}) - ({right})" if sign == ">=" else f"({right}) - ({left})")


def constraint_of_shapes(problem: str) -> str | None:
    """Return the constraint in an error of JAX: ``n <= 20``.

    It is the one that the error states, or that would make the shapes in it equal. The first n of 20 rows are min(n,
    20) rows. Adding n rows to them needs n <= 20, or TensorFlow fails.

    Args:
      problem: the text of an error.

    Returns:
      A constraint as ``jax.export.symbolic_shape`` takes it.
    """
    if (found := _HOLDS.search(problem)) is not None:
        return None if DYNAMIC in found[1] else found[1]
    for size, limit in _LIMITED.findall(problem):
        if DYNAMIC not in size and re.search(rf"[(\[, ]{re.escape(size)}[,)\]]", _LIMITED.sub("", problem)):
            return f"{size} <= {limit}"
    return None
