"""Load artifacts: starts the process that reads StableHLO, then the reader.

Imports no JAX, whose import takes longer than the process's start. Other names are the reader's.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf2jax_lite.stablehlo.parsing.isolation import prepare
from tf2jax_lite.support.errors import InputError

if TYPE_CHECKING:
    from .loaded_function import LoadedFunction


def load(
    path: str | Path,
    signature: str | None = None,
    *,
    backend: str = "stablehlo",
    verify_hashes: bool = True,
    stack_layers: bool = True,
) -> tuple[LoadedFunction, dict[str, Any]]:
    """Load an artifact that ``tf2jax-lite convert`` or `export_functions` wrote.

    Args:
      path: the directory, or an address of the Hugging Face Hub, ``hf://organization/name`` or with ``@revision``.
      signature: name of the function; default: the only one, or ``serving_default``.
      backend: ``"stablehlo"`` calls the serialized module, which runs no Python code of the artifact; ``"source"``
        imports ``model.py``: only for artifacts that you trust.
      verify_hashes: compare files with the hashes in the metadata.
      stack_layers: of an artifact that was exported with ``scan_layers``, return the params of equal layers stacked,
        under the names of the first layer's. The function takes both forms; it compiles faster with stacked ones.

    Returns:
      ``(fn, params)``: ``fn(params, *args, rng=key, **kwargs)`` returns ``(results, updated params)``.
      The params are numpy arrays: call ``jax.device_put`` on them once if the function is called often.

    Raises:
      ExportError: the artifact is damaged or incomplete, or has no such function or backend; or its download failed.

    Example:
      >>> fn, params = tf2jax.load("OUT", "predict")
      >>> results, params = fn(jax.device_put(params), x)
    """
    if backend not in ("stablehlo", "source"):
        raise InputError(f"backend is 'stablehlo' or 'source', not {backend!r}")
    if backend == "stablehlo":
        prepare()
    reader = importlib.import_module(".reader", __package__)
    return reader.read_artifact(path, signature, backend, verify_hashes, stack_layers)


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module(".reader", __package__), name)
