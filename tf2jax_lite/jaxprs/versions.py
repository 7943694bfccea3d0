"""JAX's error where a symbolic dimension decides nothing, under one name for all releases."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["InconclusiveDimensionOperation"]


def _found() -> Any:
    # It is in jax.errors since jax 0.10, in jax.core before.
    name = "InconclusiveDimensionOperation"
    return getattr(jax.errors if hasattr(jax.errors, name) else jax.core, name)


InconclusiveDimensionOperation: type[Exception] = _found()
