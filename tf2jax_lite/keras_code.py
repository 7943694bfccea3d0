"""Keras files that hold code: layers whose configuration is marshalled Python or a pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tf2jax_lite.errors import InvalidModelError, UntrustedError
from tf2jax_lite.limits import is_trusted, reading

__all__ = ["refuse_code"]

# Classes whose configuration is code: a marshalled function, or what torch unpickles.
_CODE = frozenset({"Lambda", "__lambda__", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"})
_MOST_CONFIG = 256 * 1024**2


def refuse_code(path: Path) -> None:
    """Refuses a Keras file with a layer that holds code, before Keras reads it.

    Keras' own safe mode does not look into ``.h5`` files everywhere: tf_keras runs what their Lambda layers hold.

    Args:
      path: the file.

    Raises:
      UntrustedError: a layer holds code, and ``config.trusted`` does not name its class.
      InvalidModelError: the file's configuration is damaged.
    """
    with reading(str(path)):
        text = _config(path)
        if text is None:
            return  # no configuration: Keras says what is missing
        found = sorted({name for name in _classes(json.loads(text)) if name in _CODE and not is_trusted(name)})
    if found:
        raise UntrustedError(
            f"{path}: layers of class {', '.join(found)} hold code that would be run. If you trust the file, allow it "
            f'by name: override_config("trusted", "{",".join(found)}"), or --trust.'
        )


def _config(path: Path) -> str | bytes | None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                return None
            if archive.getinfo("config.json").file_size > _MOST_CONFIG:
                raise InvalidModelError(f"{path}: the configuration is too large.")
            return archive.read("config.json")
    try:
        import h5py
    except ImportError:
        return None  # Keras cannot read it either
    if not h5py.is_hdf5(path):
        return None
    with h5py.File(path, "r") as file:
        return file.attrs.get("model_config")


def _classes(config: Any) -> Iterator[str]:
    """Yields the names of all classes in a configuration."""
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            name = item.get("class_name")
            if isinstance(name, str):
                yield name.rsplit(">", 1)[-1]
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
