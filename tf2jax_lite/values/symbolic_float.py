"""Symbolic dimensions in float arithmetic: quotients that can be dimensions again.

``tf.cast(tf.cast(height, tf.float32) * 0.5, tf.int32)``, ``tf.math.ceil(width / 16)`` and ``tf.range(steps,
dtype=tf.float32)`` compute dimensions by float arithmetic. `FloatDim` represents such a value exactly. It supports only
operations whose float32 rounding in TensorFlow cannot change the resulting dimension, for dimensions below a million:
products with powers of two are exact, and one division by any int is rounded once, by less than the distance to the
next integer. Other operations are left to JAX, and their results are arrays, not dimensions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim, min_dim

_MAX_FACTOR = 16  # of a dimension below a million: float32 represents all integers up to 2**24
_MAX_NUMBER = 4096  # of divisors and summands
_Undecided = InconclusiveDimensionOperation


def _fraction(value: Any) -> Fraction | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    return Fraction(float(value)) if math.isfinite(value) else None


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


class FloatDim:
    """A symbolic dimension divided by an int.

    Attributes:
      factor: upper bound of the factors of dimensions in the dividend.
    Operators return a `FloatDim`, or raise ``InconclusiveDimensionOperation`` where the result is not exact.
    """

    __slots__ = ("dividend", "divisor", "factor")

    def __init__(self, dividend: Any, divisor: int = 1, factor: int = 1):
        if divisor > _MAX_NUMBER or factor > _MAX_FACTOR:
            raise _Undecided(f"{dividend} over {divisor} in floating point")
        self.dividend = dividend
        self.divisor = divisor
        self.factor = factor

    def __repr__(self) -> str:
        return f"{self.dividend}" if self.divisor == 1 else f"({self.dividend}) / {self.divisor}"

    __hash__ = object.__hash__

    def traced(self, dtype: Any) -> Any:
        """Return the quotient as a JAX array, rounded as TensorFlow rounds it."""
        dividend = jnp.asarray(self.dividend, dtype)
        return dividend if self.divisor == 1 else dividend / np.array(self.divisor, dtype)

    def truncated(self) -> Any:
        """Return the quotient rounded towards zero, a dimension."""
        if self.divisor == 1:
            return self.dividend
        return max_dim(self._floor(), 0) + min_dim(self._ceil(), 0)

    def _floor(self) -> Any:
        return self.dividend // self.divisor

    def _ceil(self) -> Any:
        return -(-self.dividend // self.divisor)

    def _times(self, factor: Fraction | None) -> FloatDim:
        if factor is None:
            raise _Undecided("a product or quotient of dimensions in floating point")
        up, down = factor.numerator, factor.denominator
        exact, halves, doubles = map(_is_power_of_two, (self.divisor, down, abs(up)))
        # Products are exact; one quotient is rounded, and may then be halved and doubled.
        if not (halves if exact and not doubles else doubles and (exact or halves)):
            raise _Undecided(f"{self} times {factor} is rounded in floating point")
        common = math.gcd(up, self.divisor)
        up //= common
        return FloatDim(self.dividend * up, self.divisor // common * down, self.factor * max(abs(up), 1))

    def __mul__(self, other: Any) -> FloatDim:
        return self._times(_fraction(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> FloatDim:
        number = _fraction(other)
        return self._times(1 / number if number else None)

    def __rtruediv__(self, other: Any) -> FloatDim:
        raise _Undecided("a number divided by a dimension in floating point")

    def __neg__(self) -> FloatDim:
        return FloatDim(-self.dividend, self.divisor, self.factor)

    def __add__(self, other: Any) -> FloatDim:
        if not isinstance(other, FloatDim):
            number = _fraction(other)
            if number is None or abs(number) > _MAX_NUMBER:
                raise _Undecided(f"{self} plus {other}")
            other = FloatDim(number.numerator, number.denominator, 0)
        if not _is_power_of_two(self.divisor) or not _is_power_of_two(other.divisor):
            raise _Undecided("a sum of rounded quotients of dimensions in floating point")
        divisor = max(self.divisor, other.divisor)
        ours, theirs = divisor // self.divisor, divisor // other.divisor
        dividend = self.dividend * ours + other.dividend * theirs
        return FloatDim(dividend, divisor, self.factor * ours + other.factor * theirs)

    __radd__ = __add__

    def __sub__(self, other: Any) -> FloatDim:
        return self + -other

    def __rsub__(self, other: Any) -> FloatDim:
        return -self + other

    def __floor__(self) -> FloatDim:
        return FloatDim(self._floor(), 1, self.factor)

    def __ceil__(self) -> FloatDim:
        return FloatDim(self._ceil(), 1, self.factor)

    def rint(self) -> FloatDim:
        """Return the quotient rounded to the nearest integer, ties to even.

        ``numpy.rint`` calls it.
        """
        half, odd = divmod(self.divisor, 2)
        if odd:
            return FloatDim((self.dividend + half) // self.divisor, 1, self.factor)
        # A sum of two floors: the first steps just after a tie, the second at it.
        first = (self.dividend + 3 * half - 1) // (2 * self.divisor)
        return FloatDim(first + (self.dividend + half) // (2 * self.divisor), 1, self.factor)

    def _against(self, other: Any) -> tuple[Any, Any]:
        if not isinstance(other, FloatDim):
            number = _fraction(other)
            if number is None:
                raise _Undecided(f"{self} compared with {other}")
            return self.dividend * number.denominator, number.numerator * self.divisor
        return self.dividend * other.divisor, other.dividend * self.divisor

    def __lt__(self, other: Any) -> bool:
        a, b = self._against(other)
        return a < b

    def __le__(self, other: Any) -> bool:
        a, b = self._against(other)
        return a <= b

    def __gt__(self, other: Any) -> bool:
        a, b = self._against(other)
        return a > b

    def __ge__(self, other: Any) -> bool:
        a, b = self._against(other)
        return a >= b

    def __eq__(self, other: Any) -> bool:
        a, b = self._against(other)
        # JAX treats dimensions as different if it cannot tell.
        return bool(a == b) or not (a < b or a > b)

    def __ne__(self, other: Any) -> bool:
        return not self == other


def is_float_dim(value: Any) -> bool:
    """Return whether a static value holds `FloatDim`s."""
    return isinstance(value, np.ndarray) and value.dtype == object and any(isinstance(v, FloatDim) for v in value.flat)


def as_float(size: Any) -> Any:
    """Return a dimension as a float32 scalar, traced if the dimension is symbolic."""
    return np.float32(size) if isinstance(size, int) else jnp.asarray(size, np.float32)


def truncate_to_dim(number: Any) -> Any:
    """Return a float or `FloatDim` rounded towards zero, as an int or a dimension."""
    return number.truncated() if isinstance(number, FloatDim) else number if is_symbolic_dim(number) else int(number)
