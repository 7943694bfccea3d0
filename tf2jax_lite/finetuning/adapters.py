"""Low-rank adapters of artifacts.

They are stored apart from the params, and merged into them. `federated.with_lora` is the model in which
adapters alone train.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
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


def adapted(model: Model, options: AdapterOptions, new: Sequence[str] = ()) -> Model:
    """Return the model whose adapters train, and the params beside them.

    Args:
      model: the model.
      options: which params get adapters, and which train fully.
      new: names of further params that train fully: those of a new last layer.

    Raises:
      InputError: no param gets an adapter.
    """
    assert options.lora_rank is not None
    pattern, fully = re.compile(options.lora_targets), [re.compile(p) for p in options.train_fully]
    return with_lora(
        model,
        options.lora_rank,
        alpha=options.lora_alpha,
        adapts=lambda name: bool(pattern.search(name)),
        trains=lambda name: name in new or any(p.search(name) for p in fully),
    )


def merged(weights: ModelWeights, options: AdapterOptions) -> ModelWeights:
    """Return the weights of the model without adapters, with the products added."""
    return merge_lora(jax.tree.map(np.asarray, weights), options.alpha / options.lora_rank)


def adapters_file(weights: ModelWeights, options: AdapterOptions) -> bytes:
    """Return the content of `ADAPTERS_FILE`.

    It has ``NAME/lora_a`` (rows, rank) and ``NAME/lora_b`` (rank, columns), and ``NAME`` of params that trained fully.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, adapter in weights.trainable.items():
        parts = {f"/lora_{p}": v for p, v in adapter.items()} if isinstance(adapter, Mapping) else {"": adapter}
        arrays |= {f"{name}{part}": np.ascontiguousarray(value) for part, value in parts.items()}
    return safetensors.numpy.save(arrays, {"rank": json.dumps(options.lora_rank), "alpha": json.dumps(options.alpha)})


def merge_adapters(
    artifact: str | Path, adapters: str | Path, out: str | Path, *, overwrite: bool = False
) -> ExportReport:
    """Write an artifact whose params have adapters added.

    Params that were trained fully beside the adapters are replaced.

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
    with np.errstate(over="ignore"):
        changed = load_adapters(adapters).changes(params)
    for name, value in changed.items():
        if np.isfinite(params[name]).all() and not np.isfinite(value).all():
            raise InputError(
                f"{adapters}: with the adapter {name!r}, values are beyond the range of the param's dtype."
            )
    record = {"kind": "merge_adapters", "adapters": sorted(changed)}
    merged_params = {name: np.asarray(value) for name, value in changed.items()}
    return write_trained(folder, out, merged_params, training=record, overwrite=overwrite)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Adapters:
    """Adapters apart from the params.

    A pytree, which jitted functions take as an argument.

    Attributes:
      pairs: name of a param to ``{"a": (rows, rank), "b": (rank, columns)}``.
      fully: name to value of params that trained fully.
      scale: alpha / rank.
      origin: the file.
    """

    pairs: Mapping[str, Mapping[str, Any]]
    fully: Mapping[str, Any]
    scale: Any
    origin: str = dataclasses.field(default="", metadata={"static": True})

    def changes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params that differ with these adapters, by name.

        Raises:
          InputError: the adapters do not fit the params.
        """
        for name in (*self.pairs, *self.fully):
            if name in self.pairs and name in params:
                fits = self.pairs[name]["a"].shape[0] * self.pairs[name]["b"].shape[1] == np.size(params[name])
            else:
                fits = name in params and np.shape(params[name]) == np.shape(self.fully[name])
            if not fits or not jnp.issubdtype(params[name].dtype, jnp.floating):
                raise InputError(
                    f"{self.origin}: the adapter {name!r} does not fit the params. Use the artifact that it was "
                    "trained from; of a new last layer, that with as many classes."
                )
        frozen = {name: params[name] for name in (*self.pairs, *self.fully)}
        found = merge_lora(ModelWeights({**self.pairs, **self.fully}, {"frozen": frozen, "state": {}}), self.scale)
        return {name: jnp.asarray(value, params[name].dtype) for name, value in found.trainable.items()}

    def applied_to(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return params with the adapters added.

        Inside of ``jit``, both stay apart in memory.
        """
        changed = self.changes(params)
        return {name: changed.get(name, value) for name, value in params.items()}


def load_adapters(path: str | Path) -> Adapters:
    """Read the adapters of a trained artifact.

    Args:
      path: its directory, or its `ADAPTERS_FILE`.

    Raises:
      InputError: it is no such file, or a damaged one.
    """
    file = Path(path) / ADAPTERS_FILE if Path(path).is_dir() else Path(path)
    scale, pairs, fully = _read(file)
    return Adapters({name: {"a": a, "b": b} for name, (a, b) in pairs.items()}, fully, scale, str(path))


def _read(path: Path) -> tuple[float, Mapping[str, tuple[Any, Any]], Mapping[str, Any]]:
    try:
        with safetensors.safe_open(str(regular(path, InputError)), "np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a mapping)
        alpha, rank = (json.loads(metadata[name]) for name in ("alpha", "rank"))
        if type(rank) is not int or rank < 1 or type(alpha) not in (int, float) or not math.isfinite(alpha):
            raise ValueError(f"rank {rank!r} and alpha {alpha!r}, where a positive and a finite number belong")
        names = [name.removesuffix("/lora_a") for name in arrays if name.endswith("/lora_a")]
        found = {name: (arrays.pop(f"{name}/lora_a"), arrays.pop(f"{name}/lora_b")) for name in names}
        if strange := [name for name in arrays if name in found or "/lora_" in name]:
            raise ValueError(f"unexpected arrays {sorted(strange)}")
        if not found:
            raise ValueError("it has no adapters")
        for name, (a, b) in found.items():
            if a.ndim != 2 or b.ndim != 2 or a.shape[1] != rank or b.shape[0] != rank:
                raise ValueError(f"{name!r} has arrays {list(a.shape)} and {list(b.shape)} for rank {rank}")
        for name, part in [*((n, part) for n, pair in found.items() for part in pair), *arrays.items()]:
            if not (jnp.issubdtype(part.dtype, jnp.floating) and np.isfinite(part).all()):
                raise ValueError(f"{name!r} has values that are not finite numbers of floating point")
    except InputError:
        raise
    except Exception as error:  # safetensors and JSON have errors of their own
        raise InputError(f"{path} is not a file of adapters: {type(error).__name__}: {error}") from error
    return alpha / rank, found, arrays
