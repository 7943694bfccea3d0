"""Params as an Orbax checkpoint, for training code that reads those."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.support.errors import ExportError

__all__ = ["write_checkpoint"]


def write_checkpoint(params: Mapping[str, Any], path: Path) -> None:
    """Write params as a flat dict.

    Raises:
      ExportError: Orbax is not installed, or cannot write them.
    """
    try:
        orbax = importlib.import_module("orbax.checkpoint")
    except ImportError:
        raise ExportError("a checkpoint needs Orbax: pip install 'tf2jax-lite[checkpoint]'") from None
    try:
        with orbax.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.absolute(), {str(name): np.asarray(value) for name, value in params.items()})
    except Exception as error:  # Orbax fails in many ways
        raise ExportError(f"Orbax cannot write these params: {type(error).__name__}: {error}") from error
