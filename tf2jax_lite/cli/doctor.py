"""The command ``doctor``: what is installed, and which devices there are."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from typing import Any

from rich.table import Table

from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.extras import installed_version, require_device

from .quiet import DEFAULTS, import_tensorflow, quiet_stderr
from .shared import Json, app, console, print_json, styled

_LIBRARIES = ("jax", "jaxlib", "numpy", "optax", "protobuf", "safetensors", "tensorflow", "keras", "tf_keras")
# Not all of TF_*: Terraform's variables, which may be secrets, begin so, too.
_VARIABLES = (
    *("JAX_", "XLA_", "TF_CPP_", "TF_ENABLE_", "TF_FORCE_GPU_", "TF_GPU_", "TF_USE_LEGACY_KERAS", "TF_XLA_"),
    *("CUDA_VISIBLE_DEVICES", "KERAS_BACKEND"),
)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, 64-bit mode and extras: paste it into bug reports."""
    with quiet_stderr():
        found = environment()
    if as_json:
        print_json(found)
        return
    table = Table(show_header=False)
    for name, version in found["versions"].items():
        table.add_row(name, version or "not installed")
    console.print(table)
    jax = found["jax"]
    console.print(f"JAX: {jax.get('error') or ', '.join(jax['devices'])}", highlight=False)
    console.print(f"64-bit mode: {'on' if jax.get('x64') else 'off'}", highlight=False)
    tensorflow = found["tensorflow"]
    if tensorflow is not None:
        gpus = ", ".join(tensorflow.get("gpus", ())) or "none"
        hidden = "; these commands hide them from it" if tensorflow.get("gpus") else ""
        text = tensorflow.get("error") or f"{gpus}{hidden}"
        console.print(f"GPUs that TensorFlow sees: {text}", highlight=False)
    for name, missing in found["extras"].items():
        state = ("installed", "green") if not missing else (f"lacks {', '.join(missing)}", "yellow")
        console.print(styled(f"extra {name}: ", state), highlight=False)
    for name, value in found["variables"].items():
        console.print(f"{name}={value}", highlight=False)


def environment() -> dict[str, Any]:
    """Return versions, devices, extras and environment variables as JSON data.

    Returns:
      A dict of ``versions`` (None: not installed), ``jax`` (``devices`` and ``x64``, or ``error``), ``tensorflow`` (the
      ``gpus`` that it sees, or ``error``; None without TensorFlow), ``extras`` (the missing distributions of each) and
      ``variables`` (those of the environment that JAX and TensorFlow read,
      but the defaults of these commands).
    """
    versions: dict[str, str | None] = {
        "tf2jax-lite": installed_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: _version(name) for name in _LIBRARIES},
    }
    return {
        "versions": versions,
        "jax": _jax(),
        "tensorflow": _tensorflow() if versions["tensorflow"] else None,
        "extras": _extras(),
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_VARIABLES) and DEFAULTS.get(name) != value
        },
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _jax() -> dict[str, Any]:
    try:
        import jax

        require_device()
        devices = [f"{device.platform} {device.id}: {device.device_kind}" for device in jax.devices()]
        return {"devices": devices, "x64": bool(jax.config.jax_enable_x64)}
    except InputError as error:
        return {"error": str(error)}


def _tensorflow() -> dict[str, Any]:
    try:
        import_tensorflow()
        gpus = sys.modules["tensorflow"].config.list_physical_devices("GPU")
        return {"gpus": [gpu.name for gpu in gpus]}
    except Exception as error:  # a driver that does not fit raises all kinds
        return {"error": _first_line(error)}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _extras() -> dict[str, list[str]]:
    """Return the distributions that each extra lacks."""
    found: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires("tf2jax-lite") or []
    except importlib.metadata.PackageNotFoundError:
        return found
    for requirement in requirements:
        extra, name = re.search(r"extra == ['\"]([^'\"]+)", requirement), re.match(r"[\w.-]+", requirement)
        if extra is not None and name is not None:
            missing = found.setdefault(extra[1], [])
            if _version(name[0]) is None:
                missing.append(name[0])
    return found
