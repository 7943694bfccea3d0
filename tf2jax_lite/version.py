"""Which release is installed."""

from __future__ import annotations

import importlib.metadata

__all__ = ["installed_version"]


def installed_version() -> str:
    """Returns the version that pip knows of, ``unknown`` where the package only lies on the path."""
    try:
        return importlib.metadata.version("tf2jax-lite")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
