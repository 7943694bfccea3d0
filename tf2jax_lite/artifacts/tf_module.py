"""SavedModels that call the StableHLO of artifacts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from tf2jax_lite.calling.structures import OutputRef
from tf2jax_lite.export.atomic_dir import new_directory
from tf2jax_lite.export.interface_json import decode_interface
from tf2jax_lite.export.metadata import check_hashes
from tf2jax_lite.export.reader import flat_results, module_file, read_params
from tf2jax_lite.stablehlo.parsing.exported import read_exported
from tf2jax_lite.support.errors import ExportError


def write_saved_model(folder: Path, metadata: Mapping[str, Any], out: Path) -> list[str]:
    """Write a SavedModel with the functions of an artifact; return the signatures.

    Each calls its StableHLO by TensorFlow's op ``XlaCallModule``, with variables for params. Functions that draw random
    numbers are left out.

    Args:
      folder: the artifact.
      metadata: its metadata.
      out: the directory to create.

    Raises:
      ExportError: no function can be written, or TensorFlow cannot run the StableHLO.
    """
    import tensorflow as tf

    check_hashes(folder, metadata)
    params = {str(name): np.asarray(value) for name, value in read_params(folder, metadata).items()}
    module = tf.Module()
    module.params = {}
    signatures = {}
    for name, entry in metadata["signatures"].items():
        if entry["stablehlo"] is not None and not entry["rng"]:
            signatures[name] = _function(module, name, entry, params, folder, metadata)
    if not signatures:
        raise ExportError(f"{folder} has no function with StableHLO that takes no random key")
    with new_directory(out, overwrite=False) as work:
        tf.saved_model.save(module, str(work), signatures=signatures)
        again = tf.saved_model.load(str(work))
        for name, function in signatures.items():
            if again.signatures[name].structured_input_signature[1].keys() != _inputs(function).keys():
                raise ExportError(f"{out}: the signature {name!r} was not written as it is")
    return list(signatures)


def _inputs(function: Any) -> Mapping[str, Any]:
    return function.structured_input_signature[1]


def _function(
    module: Any,
    name: str,
    entry: Mapping[str, Any],
    params: Mapping[str, Any],
    folder: Path,
    metadata: Mapping[str, Any],
) -> Any:
    """Return a concrete function of TensorFlow that calls a module."""
    import tensorflow as tf
    from tensorflow.compiler.tf2xla.ops import gen_xla_ops
    from tensorflow.compiler.tf2xla.python import xla

    exported = read_exported(module_file(folder, metadata, name).read_bytes())
    newest, version = xla.call_module_maximum_supported_version(), exported.calling_convention_version
    if version > newest:
        raise ExportError(f"{folder}: TensorFlow runs StableHLO of calling convention {newest}, not {version}")
    avals, serialized = exported.in_avals, cast(Any, exported.mlir_module_serialized)  # bytes are text of TensorFlow
    for variable, aval in zip(entry["variables"], avals, strict=False):
        if variable not in module.params:
            trainable = bool(metadata["params"][variable]["trainable"])
            value = params[variable].astype(aval.dtype)
            module.params[variable] = tf.Variable(value, trainable=trainable, name=re.sub(r"[^\w./]", "_", variable))
    count = len(entry["variables"])
    specs = {
        re.sub(r"\W", "_", info["name"]): tf.TensorSpec(_sizes(aval), aval.dtype)
        for info, aval in zip(entry["inputs"], avals[count:], strict=True)
    }
    names = flat_results(decode_interface(entry["interface"]).outputs)

    def call(**inputs: Any) -> dict[str, Any]:
        given = [*(module.params[variable] for variable in entry["variables"]), *(inputs[spec] for spec in specs)]
        found: Any = gen_xla_ops.xla_call_module(
            args=[given[i] for i in exported.module_kept_var_idx],
            version=version,
            module=serialized,
            Tout=[tf.as_dtype(aval.dtype) for aval in exported.out_avals],
            Sout=[tf.TensorShape(_sizes(aval)) for aval in exported.out_avals],
            platforms=[platform.upper() for platform in exported.platforms],
            function_list=[],
            has_token_input_output=False,
            disabled_checks=[],
        )
        for variable, value in zip(entry["updates"], found[len(found) - len(entry["updates"]) :], strict=True):
            module.params[variable].assign(value)
        return {
            re.sub(r"\W", "_", result): found[ref.index] for result, ref in names.items() if isinstance(ref, OutputRef)
        }

    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _sizes(aval: Any) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in aval.shape]
