"""Low-rank adapters of artifacts.

They are stored apart from the params, and merged into them. `federated.with_lora` is the model in which
adapters alone train.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from tf2jax_lite.export.artifact import ExportReport
from tf2jax_lite.export.metadata import read_metadata
from tf2jax_lite.export.reader import read_params
from tf2jax_lite.export.update import write_trained
from tf2jax_lite.finetuning.options import AdapterOptions
from tf2jax_lite.learning.model import Model
from tf2jax_lite.learning.partial import merge_lora, with_lora
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.limits import regular

ADAPTERS_FILE = "adapters.safetensors"
"""The file of an artifact with the adapters that it was trained with."""


def adapted(model: Model, options: AdapterOptions) -> Model:
    """Return the model whose adapters alone train.

    Raises:
      InputError: no param gets an adapter.
    """
    assert options.lora_rank is not None
    pattern = re.compile(options.lora_targets)
    return with_lora(model, options.lora_rank, alpha=options.lora_alpha, adapts=lambda name: bool(pattern.search(name)))


def merged(weights: ModelWeights, options: AdapterOptions) -> ModelWeights:
    """Return the weights of the model without adapters, with the products added."""
    return merge_lora(jax.tree.map(np.asarray, weights), options.alpha / options.lora_rank)


def adapters_file(weights: ModelWeights, options: AdapterOptions) -> bytes:
    """Return the content of `ADAPTERS_FILE`.

    It has ``NAME/lora_a`` (rows, rank) and ``NAME/lora_b`` (rank, columns).
    """
    arrays = {
        f"{name}/lora_{part}": np.ascontiguousarray(value)
        for name, adapter in weights.trainable.items()
        for part, value in adapter.items()
    }
    return safetensors.numpy.save(arrays, {"rank": json.dumps(options.lora_rank), "alpha": json.dumps(options.alpha)})


def merge_adapters(
    artifact: str | Path, adapters: str | Path, out: str | Path, *, overwrite: bool = False
) -> ExportReport:
    """Write an artifact whose params have adapters added.

    Args:
      artifact: the artifact that the adapters were trained from, or another with the same params.
      adapters: `ADAPTERS_FILE` of a trained artifact.
      out: the directory to create.
      overwrite: replace an existing artifact at ``out``.

    Raises:
      InputError: the file is damaged, or its adapters do not fit the artifact's params.
      ExportError: the artifact is damaged, or ``out`` cannot be written.
    """
    folder = Path(artifact)
    params = {str(name): value for name, value in read_params(folder, read_metadata(folder)).items()}
    scale, found = _read(Path(adapters))
    changed = {}
    for name, (a, b) in found.items():
        if (
            name not in params
            or a.shape[0] * b.shape[1] != params[name].size
            or not jnp.issubdtype(params[name].dtype, jnp.floating)
        ):
            raise InputError(f"{adapters}: the adapter {name!r} does not fit the params of {folder}.")
        weights = ModelWeights({name: {"a": a, "b": b}}, {"frozen": {name: params[name]}, "state": {}})
        with np.errstate(over="ignore"):
            changed[name] = np.asarray(merge_lora(weights, scale).trainable[name])
        if np.isfinite(params[name]).all() and not np.isfinite(changed[name]).all():
            raise InputError(
                f"{adapters}: with the adapter {name!r}, values are beyond the range of the param's dtype."
            )
    record = {"kind": "merge_adapters", "adapters": sorted(changed)}
    return write_trained(folder, out, changed, training=record, overwrite=overwrite)


def _read(path: Path) -> tuple[float, Mapping[str, tuple[Any, Any]]]:
    try:
        with safetensors.safe_open(str(regular(path, InputError)), "np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a mapping)
        alpha, rank = (json.loads(metadata[name]) for name in ("alpha", "rank"))
        if type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not math.isfinite(alpha):
            raise ValueError(f"rank {rank!r} and alpha {alpha!r}, where a positive and a finite number belong")
        names = [name.removesuffix("/lora_a") for name in arrays if name.endswith("/lora_a")]
        found = {name: (arrays.pop(f"{name}/lora_a"), arrays.pop(f"{name}/lora_b")) for name in names}
        if arrays or not found:
            raise ValueError(f"unexpected arrays {sorted(arrays)}" if arrays else "it has no adapters")
        for name, (a, b) in found.items():
            if a.ndim != 2 or b.ndim != 2 or a.shape[1] != rank or b.shape[0] != rank:
                raise ValueError(f"{name!r} has arrays {list(a.shape)} and {list(b.shape)} for rank {rank}")
            if not all(jnp.issubdtype(part.dtype, jnp.floating) and np.isfinite(part).all() for part in (a, b)):
                raise ValueError(f"{name!r} has values that are not finite numbers of floating point")
    except InputError:
        raise
    except Exception as error:  # safetensors and JSON have errors of their own
        raise InputError(f"{path} is not a file of adapters: {type(error).__name__}: {error}") from error
    return alpha / rank, found
