"""Values as Python source."""

from __future__ import annotations

import ast
import enum
import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import dim_terms
from tf2jax_lite.support.errors import ExportError
from tf2jax_lite.support.text import printable

_TRIANGLE = 9  # elements from which a matrix is written as a triangle
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def dtype(of: Any) -> str:
    """Return a dtype as source: ``np.float32``, ``jnp.bfloat16``."""
    name = np.dtype(of).name
    return f"np.{name}" if hasattr(np, name) and name != "bool" else ("np.bool_" if name == "bool" else f"jnp.{name}")


def dimension(dim: Any) -> str:
    """Return a dimension: an int, or an expression of symbolic dimensions."""
    if isinstance(dim, (int, np.integer)):
        return str(int(dim))
    return _unparsed(_tree(dim))


def _tree(dim: Any) -> ast.expr:
    """Return the syntax tree of a dimension."""
    if not is_symbolic_dim(dim):
        return ast.Constant(dim) if dim >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-dim))
    terms = [
        (times, _product(times if i == 0 else abs(times), factors)) for i, (times, factors) in enumerate(dim_terms(dim))
    ]
    tree = terms[0][1]
    for times, term in terms[1:]:
        tree = ast.BinOp(tree, ast.Add() if times > 0 else ast.Sub(), term)
    return tree


def _product(times: int, factors: Sequence[tuple[Any, int]]) -> ast.expr:
    trees: list[ast.expr] = [] if abs(times) == 1 and factors else [ast.Constant(abs(times))]
    for factor, power in factors:
        tree = ast.Name(factor) if isinstance(factor, str) else _operation(*factor)
        trees.append(tree if power == 1 else ast.BinOp(tree, ast.Pow(), ast.Constant(power)))
    trees[0] = trees[0] if times >= 0 else ast.UnaryOp(ast.USub(), trees[0])
    return functools.reduce(lambda a, b: ast.BinOp(a, ast.Mult(), b), trees)


def _unparsed(tree: ast.AST) -> str:
    return re.sub(r"(?<![\w)]\.)\b(\w+) \*\* (\w+)", r"\1**\2", ast.unparse(tree))  # ruff's spaces around powers


def _operation(name: str, *operands: Any) -> ast.expr:
    trees = list(map(_tree, operands))
    if name in ("floordiv", "mod"):
        return ast.BinOp(trees[0], ast.FloorDiv() if name == "floordiv" else ast.Mod(), trees[1])
    return ast.Call(ast.Name(name), trees, [])


def shape(dims: Any) -> str:
    """Return a tuple of dimensions."""
    items = [dimension(d) for d in dims]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def type_comment(aval: Any) -> str:
    """Return the comment behind a line: ``f32[b, 3]``."""
    dims = ", ".join(str(d) for d in aval.shape)
    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended):
        return f"key[{dims}]"
    name = np.dtype(aval.dtype).name
    kind = name.rstrip("0123456789")
    return f"{_SHORT.get(kind, kind)}{name[len(kind) :]}[{dims}]"


def scalar(item: Any, *, typed: bool) -> str:
    """Return a scalar; untyped, it takes the dtype of the other operand."""
    item = np.asarray(item)[()]
    name = np.dtype(item.dtype).name
    if name == "bool":
        return str(bool(item)) if not typed else f"np.bool_({bool(item)})"
    if name in ("uint32", "uint64", "int64") and not -(2**31) <= int(item) < 2**31:
        typed = True
    if np.issubdtype(item.dtype, np.complexfloating):
        text, typed = repr(complex(item)).strip("()"), True
        if not np.isfinite(item):
            text = f"complex({_float(item.real)}, {_float(item.imag)})"
    elif np.issubdtype(item.dtype, np.integer) or name.startswith(("int", "uint")):
        text = str(int(item))
    else:
        text = _float(item)
    return f"{dtype(item.dtype)}({text})" if typed else text


def _float(item: Any) -> str:
    number = float(item)
    if np.isnan(number):
        return "jnp.nan"
    if np.isinf(number):
        return "jnp.inf" if number > 0 else "-jnp.inf"
    # The shortest text that reads back as the same number of this dtype.
    short = str(item).replace("e+", "e")
    return short if type(item)(float(short)) == item else repr(number).replace("e+", "e")


def array(item: Any) -> str:
    """Return a small array."""
    found = np.asarray(item)
    if found.ndim == 0:
        return scalar(found, typed=True)
    step = ramp(found)
    if step:
        first = int(found[0])
        bounds = [first, first + step * found.size, step] if step != 1 else [first, first + found.size]
        bounds = bounds[1:] if len(bounds) == 2 and first == 0 else bounds
        return f"np.arange({', '.join(map(str, bounds))}, dtype={dtype(found.dtype)})"
    if is_uniform(found):
        return f"np.full({shape(found.shape)}, {scalar(found.flat[0], typed=False)}, {dtype(found.dtype)})"
    if text := triangle(found):
        return text
    if not found.size:
        return f"np.zeros({shape(found.shape)}, {dtype(found.dtype)})"
    return f"np.array({_nested(found)}, {dtype(found.dtype)})"


def has_short_source(found: np.ndarray) -> bool:
    """Return whether the source of an array does not grow with its size."""
    return bool(ramp(found)) or is_uniform(found) or bool(triangle(found))


def ramp(found: np.ndarray) -> int:
    """Return the step of an arithmetic sequence of integers, 0 for other vectors."""
    if found.ndim != 1 or found.size < 4 or not np.issubdtype(found.dtype, np.integer):
        return 0
    steps = np.diff(found.astype(np.int64))
    return int(steps[0]) if np.all(steps == steps[0]) else 0


def triangle(found: np.ndarray) -> str:
    """Return the source of a triangular matrix of ones, "" for other arrays.

    Ones are on and below a diagonal; boolean matrices may have them above it instead. Leading axes may have size 1.
    """
    if found.ndim < 2 or found.size < _TRIANGLE or np.prod(found.shape[:-2]) != 1 or found.dtype.kind not in "biuf":
        return ""
    matrix = found.reshape(found.shape[-2:])
    for mark, below in [("", matrix), *([("~", ~matrix)] if found.dtype == np.bool_ else [])]:
        rows = np.flatnonzero(below.any(axis=1))
        if not rows.size:
            continue
        k = int(np.count_nonzero(below[0])) - 1 if rows[0] == 0 else -int(rows[0])
        height, width = len(below), len(below[0])
        if not np.array_equal(below, np.tri(height, width, k)):
            continue
        words = [str(height), *([str(width)] if width != height else []), *([f"k={k}"] if k else [])]
        axes = f"[{', '.join(['None'] * (found.ndim - 2))}]" if found.ndim > 2 else ""
        return f"{mark}np.tri({', '.join(words)}, dtype={dtype(found.dtype)}){axes}"
    return ""


def is_uniform(found: np.ndarray) -> bool:
    """Return whether all elements are one number."""
    return bool(found.size) and bool(np.all(found == found.flat[0]))


def _nested(found: np.ndarray) -> str:
    if found.ndim == 0:
        return scalar(found, typed=False)
    return "[" + ", ".join(_nested(row) for row in found) + "]"


def value(item: Any) -> str:
    """Return an attribute's value.

    Raises:
      ExportError: there is no way to write it.
    """
    if isinstance(item, enum.Enum):  # before numbers: some enums are integers, too
        return f"lax.{type(item).__name__}.{item.name}"
    if isinstance(item, float) and not math.isfinite(item):
        return "np.nan" if math.isnan(item) else "np.inf" if item > 0 else "-np.inf"
    if item is None or isinstance(item, (bool, int, float)):
        return repr(item)
    if isinstance(item, np.integer):  # a dimension
        return repr(int(item))
    if isinstance(item, str):
        return '"' + printable(item.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    if isinstance(item, (tuple, list)):
        parts = [value(v) for v in item]
        if isinstance(item, list):
            return f"[{', '.join(parts)}]"
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(item, (np.dtype, type)):
        return dtype(item)
    if isinstance(item, (np.ndarray, np.generic)):
        return array(item)
    if is_symbolic_dim(item):
        return dimension(item)
    raise ExportError(f"cannot write {item!r} ({type(item).__name__}) as source")
