"""Libraries that are extras of the installation."""

from __future__ import annotations

import importlib.util

from .errors import MissingLibraryError

__all__ = ["require_tensorflow"]


def require_tensorflow() -> None:
    """Check that TensorFlow is installed, without importing it.

    Raises:
      MissingLibraryError: it is not.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise MissingLibraryError("TensorFlow models need TensorFlow: pip install 'tf2jax-lite[tensorflow]'")
