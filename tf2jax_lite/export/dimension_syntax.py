"""Syntax of sizes: sums of symbolic dimensions (``8*h``, ``b+1``, ``p+n``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

# b, 8*h, or b+1 (row splits beside a batch)
MULTIPLE = re.compile(r"(?:(?P<times>[1-9]\d*) ?\* ?)?(?P<name>[a-z][a-z0-9_]*)(?: ?\+ ?(?P<more>[1-9]\d{0,8}))?")
_TERM = re.compile(r" *(?P<sign>[+-]?) *(?:(?P<times>\d{1,9}) ?\* ?)?(?P<name>[a-z][a-z0-9_]*|\d{1,9}) *")

Linear = dict[str, int]
"""The coefficients of symbolic dimensions by name; that of ``""`` is the constant."""


def linear(text: str) -> Linear | None:
    """Return a size, or a difference of sizes; None if it is no sum of multiples."""
    found: Linear = {}
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or (position and not term["sign"]):
            return None
        value, name = int(term["times"] or 1) * (-1 if term["sign"] == "-" else 1), term["name"]
        if name.isdigit():
            value, name = value * int(name), ""
        found[name] = found.get(name, 0) + value
        position = term.end()
    return {name: value for name, value in found.items() if value}


def is_size(text: str) -> bool:
    """Return whether a text is a sum of multiples of symbolic dimensions."""
    found = linear(text)
    return found is not None and any(found) and "-" not in text


def formatted(size: Linear) -> str:
    """Return the text of a size."""
    names = sorted(size, key=lambda name: not name)  # the number last
    return "+".join(
        str(size[name]) if not name else name if size[name] == 1 else f"{size[name]}*{name}" for name in names
    )


def combined(size: Linear, names: Mapping[str, Linear]) -> Linear:
    """Replace symbolic dimensions in a size by other sizes."""
    found: Linear = {}
    for name, value in size.items():
        for other, times in names.get(name, {name: 1}).items():
            found[other] = found.get(other, 0) + value * times
    return {name: value for name, value in found.items() if value}


def dimension_names(size: str) -> list[str]:
    """Return the names of the symbolic dimensions in a size."""
    return [name for name in linear(size) or () if name]


def evaluated(size: str, sizes: Mapping[str, int]) -> int:
    """Return a size for given sizes of symbolic dimensions."""
    return sum(value * sizes.get(name, 1) for name, value in (linear(size) or {}).items())
