"""Induction variables: integers that are affine in the iteration number."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .core import is_splat, scalar_of


@dataclasses.dataclass(frozen=True)
class Affine:
    """The integer a * t + b in iteration t."""

    a: int
    b: Any


@dataclasses.dataclass(frozen=True)
class StaticBool:
    """A comparison of such integers with the same result in each iteration."""

    value: bool


@dataclasses.dataclass(frozen=True)
class AffineVector:
    """A vector of such integers; None for unknown items."""

    items: tuple[Affine | None, ...]


def integer(value: Any) -> Any:
    """Return a static integer scalar, or a symbolic dimension, or None."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0:
        return value.item()
    if is_splat(value) and np.ndim(value) == 0 and value.dtype.kind in "iu":
        return int(scalar_of(value))
    return None


def constants(value: Any) -> tuple[Affine | None, ...] | None:
    """Return a static vector of integers as loop-invariant items."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.size > 16 or value.dtype.kind not in "iuO":
        return None
    return tuple(Affine(0, int(v) if isinstance(v, np.integer) else v) for v in value)
