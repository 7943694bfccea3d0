"""Canonical form of symbolic dimensions, in which equal ones are the same.

Example: ``(h - 1) // 2 + 1``, ``-(-h // 2)`` and ``(h + 1) // 2`` are equal.

JAX compares symbolic dimensions by their normalized terms. Convolutions, poolings and strided slices compute their
output sizes with different formulas, so that results of two of them could not be added. In the canonical form, the
dividend of a quotient by a constant starts with a positive term, contains no other such quotient, and has no term that
the constant divides. A remainder is the difference from a quotient, so the size of an image padded to whole blocks is a
multiple of the block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import dim_terms
from tf2jax_lite.values.static import is_symbolic

from .dim_expr import names_in, operations_in, product, value, variable

_Evaluate = Callable[[Any], Any]
_Term = tuple[int, tuple[tuple[Any, int], ...]]


def _inner_quotient(terms: Sequence[_Term]) -> tuple[Any, int, int] | None:
    """Return (dividend, divisor, addend) if the terms are a quotient plus addend."""
    # Otherwise return None.
    (number, factors), *others = terms
    if number != 1 or len(factors) != 1 or any(of for _, of in others):
        return None
    ((factor, power),) = factors
    if power != 1 or isinstance(factor, str) or factor[0] != "floordiv":
        return None
    _, dividend, divisor = factor
    if not isinstance(divisor, int) or divisor < 1:
        return None
    return dividend, divisor, sum(added for added, _ in others)


def _quotient(evaluate: _Evaluate, of_term: Callable[..., Any], dividend: Any, divisor: Any) -> Any:
    """Return ``dividend // divisor`` in canonical form, for a dividend in that form."""
    if not isinstance(divisor, int) or divisor < 1 or not is_symbolic_dim(dividend):
        return dividend // divisor
    quotient = functools.partial(_quotient, evaluate, of_term)
    terms = dim_terms(dividend)
    if terms[0][0] < 0:
        return -quotient(divisor - 1 - dividend, divisor)
    whole: Any = 0
    for number, factors in terms:
        # Rounded toward zero, so that no term changes its sign; but the rest of a constant is positive.
        part = int(number / divisor) if factors else number // divisor
        whole = whole + (of_term(part, factors) if part else 0)
    rest = dividend - divisor * whole
    if is_symbolic_dim(whole):
        return whole + quotient(rest, divisor)
    common = math.gcd(divisor, *(number for number, factors in terms if factors))
    if common > 1:
        parts = [of_term(number // common, factors) for number, factors in terms if number // common]
        return quotient(sum(parts), divisor // common)
    if is_symbolic_dim(rest) and (inner := _inner_quotient(dim_terms(rest))):
        of, by, added = inner
        return whole + quotient(evaluate(of) + added * by, by * divisor)
    return whole + rest // divisor


@functools.lru_cache(maxsize=4096)
def canonical_dim(size: Any) -> Any:
    """Return a dimension in canonical form."""
    if not is_symbolic_dim(size) or not {"floordiv", "mod"} & operations_in(size):
        return size
    given = {name: variable(name, size.scope) for name in names_in(size)}

    def remainder(dividend: Any, divisor: Any) -> Any:
        if not isinstance(divisor, int) or divisor < 1:
            return dividend % divisor
        return dividend - divisor * quotient(dividend, divisor)

    def evaluate(dim: Any) -> Any:
        return value(dim, given, functions)

    def of_term(times: int, factors: Sequence[tuple[Any, int]]) -> Any:
        return product(times, factors, given, functions)

    quotient = functools.partial(_quotient, evaluate, of_term)
    functions = {"floordiv": quotient, "mod": remainder}
    return evaluate(size)


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
