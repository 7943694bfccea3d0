"""Unsigned 64-bit arithmetic on pairs of 32-bit words, for hashes.

JAX's 64-bit mode is not needed. Operands are NumPy or JAX arrays; operations on NumPy arrays stay in NumPy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_HALF = np.uint32(0xFFFF)


def wrapping() -> Any:
    """Return a context in which NumPy does not warn of (intended) integer overflow."""
    return np.errstate(over="ignore")


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the low and the high word of the product of two words (uint32)."""
    if isinstance(a, jax.Array) and not isinstance(b, jax.Array):
        a, b = b, a
    if isinstance(b, jax.Array) and hasattr(lax, "mulhi"):  # since JAX 0.10; it compiles in half the time
        if np.ndim(a) or isinstance(a, jax.Array):
            a, b = jnp.broadcast_arrays(a, b)
        return lax.mul(a, b), lax.mulhi(a, b)
    a_low, a_high = a & _HALF, a >> np.uint32(16)
    b_low, b_high = b & _HALF, b >> np.uint32(16)
    low = a_low * b_low
    middle = a_high * b_low + (low >> np.uint32(16))
    cross = a_low * b_high + (middle & _HALF)
    return b * a, a_high * b_high + (middle >> np.uint32(16)) + (cross >> np.uint32(16))


@dataclasses.dataclass(frozen=True)
class U64:
    """Integers modulo 2^64 as uint32 arrays or NumPy scalars of low and high words."""

    low: Any
    high: Any

    def __add__(self, other: U64) -> U64:
        low = self.low + other.low
        return U64(low, self.high + other.high + (low < other.low).astype(np.uint32))

    def __mul__(self, other: U64) -> U64:
        low, high = product(other.low, self.low)
        return U64(low, high + other.low * self.high + other.high * self.low)

    def __xor__(self, other: U64) -> U64:
        return U64(self.low ^ other.low, self.high ^ other.high)

    def __rshift__(self, by: int) -> U64:
        if by >= 32:
            return U64(self.high >> np.uint32(by - 32), np.zeros_like(self.high) if _is_host(self) else _zero(self))
        rest = np.uint32(32 - by)
        return U64((self.low >> np.uint32(by)) | (self.high << rest), self.high >> np.uint32(by)) if by else self

    def __lshift__(self, by: int) -> U64:
        flipped = U64(self.high, self.low)
        if by >= 32:
            return U64(np.zeros_like(self.low) if _is_host(self) else _zero(self), flipped.high << np.uint32(by - 32))
        rest = np.uint32(32 - by)
        return U64(self.low << np.uint32(by), (self.high << np.uint32(by)) | (self.low >> rest)) if by else self

    def rotated(self, by: int) -> U64:
        """Return the integers with their bits rotated to the right, 0 < ``by`` < 64."""
        low, high = (self.low, self.high) if by < 32 else (self.high, self.low)
        by %= 32
        if not by:
            return U64(low, high)
        down, up = np.uint32(by), np.uint32(32 - by)
        return U64((low >> down) | (high << up), (high >> down) | (low << up))

    def __mod__(self, divisor: int) -> U64:
        """Return the remainders of division by an int in [1, 2^63]."""
        if divisor & (divisor - 1) == 0:
            mask = number(divisor - 1)
            return U64(self.low & mask.low, self.high & mask.high)
        if divisor <= 1 << 16:
            by, rest = np.uint32(divisor), self.high * np.uint32(0)
            for word in (self.high, self.low):
                for half in (word >> np.uint32(16), word & _HALF):
                    rest = ((rest << np.uint32(16)) | half) % by
            return U64(rest, rest * np.uint32(0))
        return _remainder(self, number(divisor))


def _remainder(value: U64, divisor: U64) -> U64:
    """Divide bit by bit."""
    # Remainders stay below 2^63, so that doubling one does not overflow.

    def step(_: int, state: Any) -> Any:
        left, rest = (U64(*pair) for pair in state)
        rest = rest << 1
        rest = U64(rest.low | (left.high >> np.uint32(31)), rest.high)
        less = (rest.high < divisor.high) | ((rest.high == divisor.high) & (rest.low < divisor.low))
        taken = U64(rest.low - divisor.low, rest.high - divisor.high - (rest.low < divisor.low).astype(np.uint32))
        rest = choose(less, rest, taken)
        left = left << 1
        return (left.low, left.high), (rest.low, rest.high)

    zero = value.low * np.uint32(0)
    state: Any = (value.low, value.high), (zero, zero)
    if _is_host(value):
        for i in range(64):
            state = step(i, state)
    else:
        state = lax.fori_loop(0, 64, step, state)
    return U64(*state[1])


def _is_host(value: U64) -> bool:
    return not isinstance(value.low, jax.Array) and not isinstance(value.high, jax.Array)


def _zero(value: U64) -> Any:
    return jnp.zeros_like(jnp.asarray(value.low))


def number(value: int) -> U64:
    """Return a static integer."""
    return U64(np.uint32(value & 0xFFFFFFFF), np.uint32(value >> 32 & 0xFFFFFFFF))


def from_small(value: Any) -> U64:
    """Return 32-bit words (uint32) as 64-bit integers."""
    return U64(value, value * np.uint32(0))


def choose(condition: Any, yes: U64, no: U64) -> U64:
    """Return the integers of ``yes`` where the condition holds, else those of ``no``."""
    parts = (condition, yes.low, yes.high, no.low, no.high)
    xp: Any = jnp if any(isinstance(part, jax.Array) for part in parts) else np
    return U64(xp.where(condition, yes.low, no.low), xp.where(condition, yes.high, no.high))
