"""Paths of models, and their kinds."""

from __future__ import annotations

import os
from pathlib import Path

KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")


def model_path(path: str | os.PathLike[str]) -> Path:
    """Return a model's path; for ``saved_model.pb`` the directory around it."""
    path = Path(path)
    return path.parent if path.name in ("saved_model.pb", "saved_model.pbtxt") and path.is_file() else path
