"""Ordered lists of named steps, with reasons, that options switch off by name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A step of a list.

    Attributes:
      run: returns the value that it rewrites, and takes it as the first argument.
      effect: the rewrite in a few words, before -> after, where the name does not say it.
      required: whether results would be wrong, or missing, without it: no option switches it off.
    """

    name: str
    run: Callable[..., Any]
    reason: str
    effect: str = ""
    required: bool = False


def apply(entries: Collection[Entry], names: Collection[str], value: Any, *args: Any) -> Any:
    """Apply the entries of these names in order.

    Args:
      names: names of entries, as `tf2jax_lite.support.config.chosen_names` returns them.
    """
    for entry in entries:
        if entry.name in names:
            value = entry.run(value, *args)
    return value
