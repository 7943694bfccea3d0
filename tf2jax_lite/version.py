"""Which release is installed."""

from __future__ import annotations

import importlib.metadata


def installed_version() -> str:
    """Return the version that pip knows of, ``unknown`` if it is not installed."""
    try:
        return importlib.metadata.version("tf2jax-lite")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
