"""Canonical form of symbolic dimensions, in which equal ones have one text.

Example: ``(h - 1) // 2 + 1``, ``-(-h // 2)`` and ``(h + 1) // 2`` are equal.

JAX compares symbolic dimensions by their normalized text. Convolutions, poolings and strided slices compute their
output sizes with different formulas, so that results of two of them could not be added. In the canonical form, the
dividend of a quotient by a constant starts with a positive term, contains no other such quotient, and has no term that
the constant divides. A remainder is the difference from a quotient, so the size of an image padded to whole blocks is a
multiple of the block.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim, symbolic_shape

from tf2jax_lite.values.static import is_symbolic

from .dim_expr import names, parsed, value

_Evaluate = Callable[[ast.expr], Any]


def _terms(tree: ast.expr, sign: int = 1) -> list[tuple[int, list[ast.expr]]]:
    """Return the terms of a sum as integer coefficients and other factors."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, (ast.Add, ast.Sub)):
        return _terms(tree.left, sign) + _terms(tree.right, sign if isinstance(tree.op, ast.Add) else -sign)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return _terms(tree.operand, -sign)
    number, factors = sign, []
    for factor in _factors(tree):
        if isinstance(factor, ast.Constant) and isinstance(factor.value, int):
            number *= factor.value
        else:
            factors.append(factor)
    return [(number, factors)]


def _factors(tree: ast.expr) -> list[ast.expr]:
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        return [*_factors(tree.left), *_factors(tree.right)]
    return [tree]


def _inner_quotient(terms: list[tuple[int, list[ast.expr]]]) -> tuple[ast.expr, int, int] | None:
    """Return (dividend, divisor, addend) if the terms are a quotient plus addend.

    Otherwise return None.
    """
    (number, factors), *others = terms
    if number != 1 or len(factors) != 1 or any(of for _, of in others):
        return None
    (call,) = factors
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "floordiv":
        return None
    dividend, divisor = call.args
    if not isinstance(divisor, ast.Constant) or not isinstance(divisor.value, int) or divisor.value < 1:
        return None
    return dividend, divisor.value, sum(added for added, _ in others)


def _quotient(evaluate: _Evaluate, dividend: Any, divisor: Any) -> Any:
    """Return ``dividend // divisor`` in canonical form, for a dividend in that form."""
    if not isinstance(divisor, int) or divisor < 1 or not is_symbolic_dim(dividend):
        return dividend // divisor
    terms = _terms(parsed(str(dividend)))
    if terms[0][0] < 0:
        return -_quotient(evaluate, divisor - 1 - dividend, divisor)
    whole: Any = 0
    for number, factors in terms:
        # Rounded toward zero, so that no term changes its sign; but the rest of a constant is positive.
        part = int(number / divisor) if factors else number // divisor
        whole = whole + part * math.prod(map(evaluate, factors))
    rest = dividend - divisor * whole
    if is_symbolic_dim(whole):
        return whole + _quotient(evaluate, rest, divisor)
    common = math.gcd(divisor, *(number for number, factors in terms if factors))
    if common > 1:
        parts = [number // common * math.prod(map(evaluate, factors)) for number, factors in terms]
        return _quotient(evaluate, sum(parts), divisor // common)
    if is_symbolic_dim(rest) and (inner := _inner_quotient(_terms(parsed(str(rest))))):
        of, by, added = inner
        return whole + _quotient(evaluate, evaluate(of) + added * by, by * divisor)
    return whole + rest // divisor


@functools.lru_cache(maxsize=4096)
def canonical_dim(size: Any) -> Any:
    """Return a dimension in canonical form.

    Args:
      size: an int or a symbolic dimension.
    """
    if not is_symbolic_dim(size) or not re.search("floordiv|mod", text := str(size)):
        return size
    tree = parsed(text)
    given = {name: symbolic_shape(name, scope=size.scope)[0] for name in names(tree)}

    def remainder(dividend: Any, divisor: Any) -> Any:
        if not isinstance(divisor, int) or divisor < 1:
            return dividend % divisor
        return dividend - divisor * _quotient(evaluate, dividend, divisor)

    def evaluate(tree: ast.expr) -> Any:
        return value(tree, given, {"floordiv": functools.partial(_quotient, evaluate), "mod": remainder})

    return evaluate(tree)


def canonical_array(array: Any) -> Any:
    """Return an array with its dimensions in canonical form.

    The array is padded by the difference, which is 0: XLA drops the padding once sizes are static.
    """
    shape = tuple(map(canonical_dim, array.shape))
    if shape == array.shape:
        return array
    more = [(0, wanted - size, 0) for wanted, size in zip(shape, array.shape, strict=True)]
    return lax.pad(array, np.zeros((), array.dtype), more)


def canonical_result(value: Any) -> Any:
    """Return an array with its dimensions in canonical form; others unchanged."""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return canonical_array(value)
    if not is_symbolic(value):
        return value
    found = np.empty_like(value)
    found.flat[:] = [canonical_dim(v) if is_symbolic_dim(v) else v for v in value.flat]
    return found
