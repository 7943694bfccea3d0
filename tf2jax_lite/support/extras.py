"""The environment: libraries and devices that it may lack, and this one's release."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re

from .errors import InputError, MissingLibraryError


def require_device() -> None:
    """Let JAX find its devices."""
    import jax

    try:
        jax.devices()
    except Exception as error:  # a plugin or driver that does not fit raises all kinds
        asked = jax.config.values["jax_platforms"] or "its default"
        plugins = {re.sub(r"^xla_|\d+$", "", p.name) for p in importlib.metadata.entry_points(group="jax_plugins")}
        reason = next(iter(str(error).splitlines()), "").rstrip(".") or type(error).__name__
        raise InputError(
            f"JAX cannot use the platform {asked} ({reason}). Installed are: {', '.join(['cpu', *sorted(plugins)])}. "
            "Install JAX for it, as pip install 'jax[cuda12]' does for CUDA, or unset JAX_PLATFORMS."
        ) from error


def require_tensorflow() -> None:
    """Check that TensorFlow is installed, without importing it."""
    if importlib.util.find_spec("tensorflow") is None:
        raise MissingLibraryError("TensorFlow models need TensorFlow: pip install 'tf2jax-lite[tensorflow]'")


def installed_version() -> str:
    """Return this library's version as pip knows it, ``unknown`` if it does not."""
    try:
        return importlib.metadata.version("tf2jax-lite")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
