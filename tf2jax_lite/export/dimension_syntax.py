"""Syntax of sizes: symbolic dimensions, multiples, offsets (``8*h``, ``b+1``)."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["MULTIPLE", "dimension_name", "substituted"]

# b, 8*h, or b+1 (row splits beside a batch)
MULTIPLE = re.compile(r"(?:(?P<times>[1-9]\d*) ?\* ?)?(?P<name>[a-z][a-z0-9_]*)(?: ?\+ ?(?P<more>[1-9]\d{0,8}))?")


def dimension_name(size: str) -> str:
    """Return the name of the symbolic dimension in a size."""
    return _parts(size)[1]


def substituted(size: str, names: Mapping[str, str]) -> str:
    """Replace the symbolic dimension in a size by another size.

    Args:
      size: size such as ``"2*b+1"``.
      names: name of a symbolic dimension to the size that replaces it.
    """
    times, name, more = _parts(size)
    if name not in names:
        return size
    inner_times, inner_name, inner_more = _parts(names[name])
    times, more = times * inner_times, times * inner_more + more
    return f"{times}*" * (times > 1) + inner_name + f"+{more}" * (more > 0)


def _parts(size: str) -> tuple[int, str, int]:
    match = MULTIPLE.fullmatch(size)
    if match is None:
        raise ValueError(f"not a size: {size!r}")
    return int(match["times"] or 1), match["name"], int(match["more"] or 0)
