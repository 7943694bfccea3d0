"""Names for variables and functions of generated source."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection
from typing import TypeVar

_LONGEST = 40  # characters; longer names end with a whole word
RESERVED = {
    "l",
    "O",
    "I",
    "jax",
    "jnp",
    "lax",
    "np",
    "params",
    "rng",
    "carry",
    "xs",
    "primals",
    "tangents",
    "residuals",
    "cotangents",
    "outputs",
    *keyword.kwlist,
    *keyword.softkwlist,
    *dir(builtins),
}


def identifier(text: str, default: str = "value") -> str:
    """Return a name in snake case.

    ``MatMul`` becomes ``mat_mul``, and ``conv2d_1/BiasAdd`` becomes ``conv2d_1_bias_add``.
    """
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    text = re.sub(r"[^0-9a-zA-Z]+", "_", text).strip("_").lower()
    text = re.sub(r"__+", "_", text).strip("_")
    if len(text) > _LONGEST:
        text = text[: _LONGEST + 1].rpartition("_")[0].strip("_") or text[:_LONGEST]
    if not text:
        return default
    return f"n{text}" if text[0].isdigit() else text


_Sequence = TypeVar("_Sequence", str, tuple[str, ...])


def common_prefix(items: Collection[_Sequence]) -> _Sequence:
    """Return the longest common prefix of strings or tuples."""
    first, last = min(items), max(items)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


class Names:
    """Hands out names, each once."""

    def __init__(self, outer: Names | None = None, taken: set[str] | None = None):
        self._used: dict[str, int] = {}
        self._taken = {*RESERVED, *(taken or ())} | (outer.all() if outer is not None else set())

    def all(self) -> set[str]:
        """Return all names that are taken."""
        return {*self._taken, *self._used}

    def reserve(self, names: Collection[str]) -> None:
        """Let `new` not return some names."""
        self._taken.update(names)

    def new(self, hint: str, default: str = "value") -> str:
        """Return a new name like ``hint``."""
        base = identifier(hint, default)
        count = self._used.get(base, 0)
        name = base
        while name in self._taken or (name in self._used):
            count += 1
            name = f"{base}_{count}"
        self._used[base] = count
        self._used.setdefault(name, 0)
        return name
