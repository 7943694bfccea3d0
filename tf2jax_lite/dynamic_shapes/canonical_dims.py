"""One form for sizes that are written differently: ``(h - 1) // 2 + 1``, ``-(-h // 2)`` and ``(h + 1) // 2`` are equal.

JAX takes two symbolic dimensions for equal where they are written alike. What takes steps through images
(convolutions, pooling, slices) writes the number of steps in ways of its own, so that results of two such operations
could not be added. In the one form a quotient by a number starts with a positive term, is of no other such quotient,
and has nothing in it that the number divides; a remainder is a difference from a quotient, so that an image that is
filled up to whole blocks has a size that the block divides.
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

__all__ = ["array_in_one_form", "in_one_form", "result_in_one_form"]

_Evaluate = Callable[[ast.expr], Any]


def _terms(tree: ast.expr, sign: int = 1) -> list[tuple[int, list[ast.expr]]]:
    """Returns the terms of a sum: a number and the other factors of each."""
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
    """Returns dividend, divisor and what is added of terms that are ``floordiv(dividend, divisor) + added``."""
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
    """Returns ``dividend // divisor`` in the one form; the dividend is in it."""
    if not isinstance(divisor, int) or divisor < 1 or not is_symbolic_dim(dividend):
        return dividend // divisor
    terms = _terms(parsed(str(dividend)))
    if terms[0][0] < 0:
        return -_quotient(evaluate, divisor - 1 - dividend, divisor)
    whole: Any = 0
    for number, factors in terms:
        # Rounded toward zero, so that no term changes its sign; but what is left of a plain number is positive.
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
def in_one_form(size: Any) -> Any:
    """Returns a size in the one form.

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


def array_in_one_form(array: Any) -> Any:
    """Returns an array with its sizes in the one form, to which they are equal.

    It is padded with the difference, which is nothing: XLA drops that once sizes are known.
    """
    shape = tuple(map(in_one_form, array.shape))
    if shape == array.shape:
        return array
    more = [(0, wanted - size, 0) for wanted, size in zip(shape, array.shape, strict=True)]
    return lax.pad(array, np.zeros((), array.dtype), more)


def result_in_one_form(value: Any) -> Any:
    """Returns traced arrays as `array_in_one_form` does, static vectors of sizes alike, and anything else as it is."""
    if isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.extended):
        return array_in_one_form(value)
    if not is_symbolic(value):
        return value
    found = np.empty_like(value)
    found.flat[:] = [in_one_form(v) if is_symbolic_dim(v) else v for v in value.flat]
    return found
