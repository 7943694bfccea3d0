"""Sizes that are not known while tracing as floating-point numbers, and what code makes of them before they are sizes.

``tf.cast(tf.cast(height, tf.float32) * 0.5, tf.int32)``, ``tf.math.ceil(width / 16)`` and ``tf.range(steps,
dtype=tf.float32)`` are sizes by way of floating point. `RealSize` keeps them: a symbolic dimension over a number. It
computes only where TensorFlow's rounding cannot show in the size that comes of it, for sizes below a million: by powers
of two all is exact, and one division by any number is rounded once, to less than its distance from the next whole
number. All else is computed by JAX, as numbers that are no sizes any more.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim, min_dim

__all__ = ["RealSize", "as_float", "is_real_size", "whole"]

_LARGEST_FACTOR = 16  # of a size: float32 has all whole numbers up to sixteen million
_LARGEST = 4096  # divisors, and numbers that are added
_Undecided = InconclusiveDimensionOperation


def _fraction(value: Any) -> Fraction | None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    return Fraction(float(value)) if math.isfinite(value) else None


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


class RealSize:
    """A symbolic dimension divided by a number.

    Attributes:
      dividend: an int or a symbolic dimension.
      divisor: a positive int.
      factor: the most that a size has been multiplied by in the dividend.

    Operators give a `RealSize`, or raise ``InconclusiveDimensionOperation`` where only JAX can go on.
    """

    __slots__ = ("dividend", "divisor", "factor")

    def __init__(self, dividend: Any, divisor: int = 1, factor: int = 1):
        if divisor > _LARGEST or factor > _LARGEST_FACTOR:
            raise _Undecided(f"{dividend} over {divisor} in floating point")
        self.dividend = dividend
        self.divisor = divisor
        self.factor = factor

    def __repr__(self) -> str:
        return f"{self.dividend}" if self.divisor == 1 else f"({self.dividend}) / {self.divisor}"

    __hash__ = object.__hash__

    def traced(self, dtype: Any) -> Any:
        """Returns the number as a JAX array, rounded as TensorFlow rounds it."""
        found = jnp.asarray(self.dividend, dtype)
        return found if self.divisor == 1 else found / np.array(self.divisor, dtype)

    def whole(self) -> Any:
        """Returns the dimension that is left when the fraction is cut off."""
        if self.divisor == 1:
            return self.dividend
        return max_dim(self._floor(), 0) + min_dim(self._ceil(), 0)

    def _floor(self) -> Any:
        return self.dividend // self.divisor

    def _ceil(self) -> Any:
        return -(-self.dividend // self.divisor)

    def _times(self, factor: Fraction | None) -> RealSize:
        if factor is None:
            raise _Undecided("a product or quotient of sizes in floating point")
        up, down = factor.numerator, factor.denominator
        exact, halves, doubles = map(_is_power_of_two, (self.divisor, down, abs(up)))
        # Products are exact; one quotient is rounded, and that may be halved and doubled.
        if not (halves if exact and not doubles else doubles and (exact or halves)):
            raise _Undecided(f"{self} times {factor} is rounded in floating point")
        common = math.gcd(up, self.divisor)
        up //= common
        return RealSize(self.dividend * up, self.divisor // common * down, self.factor * max(abs(up), 1))

    def __mul__(self, other: Any) -> RealSize:
        return self._times(_fraction(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> RealSize:
        number = _fraction(other)
        return self._times(1 / number if number else None)

    def __rtruediv__(self, other: Any) -> RealSize:
        raise _Undecided("a number divided by a size in floating point")

    def __neg__(self) -> RealSize:
        return RealSize(-self.dividend, self.divisor, self.factor)

    def __add__(self, other: Any) -> RealSize:
        if not isinstance(other, RealSize):
            number = _fraction(other)
            if number is None or abs(number) > _LARGEST:
                raise _Undecided(f"{self} plus {other}")
            other = RealSize(number.numerator, number.denominator, 0)
        if not _is_power_of_two(self.divisor) or not _is_power_of_two(other.divisor):
            raise _Undecided("a sum of rounded sizes in floating point")
        divisor = max(self.divisor, other.divisor)
        ours, theirs = divisor // self.divisor, divisor // other.divisor
        dividend = self.dividend * ours + other.dividend * theirs
        return RealSize(dividend, divisor, self.factor * ours + other.factor * theirs)

    __radd__ = __add__

    def __sub__(self, other: Any) -> RealSize:
        return self + -other

    def __rsub__(self, other: Any) -> RealSize:
        return -self + other

    def __floor__(self) -> RealSize:
        return RealSize(self._floor(), 1, self.factor)

    def __ceil__(self) -> RealSize:
        return RealSize(self._ceil(), 1, self.factor)

    def rint(self) -> RealSize:
        """Returns the nearest whole number, of two the even one: what ``numpy.rint`` asks objects for."""
        half, odd = divmod(self.divisor, 2)
        if odd:
            return RealSize((self.dividend + half) // self.divisor, 1, self.factor)
        # Of two steps of one, the first comes behind the half, the second with it.
        first = (self.dividend + 3 * half - 1) // (2 * self.divisor)
        return RealSize(first + (self.dividend + half) // (2 * self.divisor), 1, self.factor)

    def _against(self, other: Any) -> tuple[Any, Any]:
        if not isinstance(other, RealSize):
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
        # JAX takes dimensions for different where it cannot tell.
        return bool(a == b) or not (a < b or a > b)

    def __ne__(self, other: Any) -> bool:
        return not self == other


def is_real_size(value: Any) -> bool:
    """Whether a static value is made of floating-point sizes."""
    return isinstance(value, np.ndarray) and value.dtype == object and any(isinstance(v, RealSize) for v in value.flat)


def as_float(size: Any) -> Any:
    """Returns a size as a float32 number: a symbolic one as a traced scalar."""
    return np.float32(size) if isinstance(size, int) else jnp.asarray(size, np.float32)


def whole(number: Any) -> Any:
    """Returns a floating-point number or `RealSize` as an int or a dimension, its fraction cut off."""
    return number.whole() if isinstance(number, RealSize) else number if is_symbolic_dim(number) else int(number)
