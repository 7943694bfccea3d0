"""Jaxprs and those inside of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["equations", "inner", "parts"]


def parts(closed: Any) -> tuple[Any, Sequence[Any]]:
    """Returns a jaxpr and its constants, of a closed or an open one."""
    return getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())


def inner(params: Mapping[str, Any]) -> Iterator[Any]:
    """Returns the jaxprs among an equation's parameters."""
    for value in params.values():
        value = getattr(value, "jaxprs", value)  # a loop that has derivatives has them of its own
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(parts(item)[0], "eqns"):
                yield item


def equations(eqn: Any) -> Iterator[Any]:
    """Returns an equation, and all that are inside of it."""
    yield eqn
    for closed in inner(eqn.params):
        for other in parts(closed)[0].eqns:
            yield from equations(other)
