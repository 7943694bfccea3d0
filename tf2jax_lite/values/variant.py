"""Variant values with an arithmetic of their own, which generic ops call instead of array functions."""

from __future__ import annotations

import abc
from typing import Self

__all__ = ["Variant"]


class Variant(abc.ABC):
    """A value that is not an array, such as a sparse matrix."""

    @abc.abstractmethod
    def conj(self) -> Self:
        """Return the complex conjugate."""
