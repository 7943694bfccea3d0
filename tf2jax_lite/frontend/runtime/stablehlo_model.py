"""SavedModels whose signatures call StableHLO modules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.tf2xla.python import xla

from tf2jax_lite.support.errors import ExportError


class CalledModule(NamedTuple):
    """A module with the names of its arrays.

    Attributes:
      exported: the ``jax.export.Exported``; it takes variables and inputs.
      variables: names of the variables, in order.
      inputs: names of the inputs, in order.
      results: names of results and their positions.
      updates: names of the variables whose new values are the last results.
    """

    exported: Any
    variables: Sequence[str]
    inputs: Sequence[str]
    results: Mapping[str, int]
    updates: Sequence[str]


def save_modules(
    path: Path, modules: Mapping[str, CalledModule], params: Mapping[str, np.ndarray], trainable: set[str]
) -> None:
    """Write a SavedModel with a signature for each module.

    Args:
      path: the directory.
      modules: by signature.
      params: values of variables.
      trainable: names of those that train.

    Raises:
      ExportError: TensorFlow does not run modules of this version.
    """
    saved = tf.Module()
    saved.params = {}
    signatures = {}
    for name, module in modules.items():
        for variable, aval in zip(module.variables, module.exported.in_avals, strict=False):
            if variable not in saved.params:
                value, scope = params[variable].astype(aval.dtype), re.sub(r"[^\w./]", "_", variable)
                saved.params[variable] = tf.Variable(tf.constant(value), trainable=variable in trainable, name=scope)
        signatures[name] = _function(saved.params, module)
    tf.saved_model.save(saved, str(path), signatures=signatures)
    tf.saved_model.load(str(path))


def _function(variables: Mapping[str, Any], module: CalledModule) -> Any:
    """Return a concrete function that calls a module."""
    exported = module.exported
    newest, version = xla.call_module_maximum_supported_version(), exported.calling_convention_version
    if version > newest:
        raise ExportError(f"TensorFlow runs StableHLO of calling convention {newest}, not {version}")
    avals = exported.in_avals[len(module.variables) :]
    specs = {
        _identifier(name): tf.TensorSpec(_sizes(aval), aval.dtype)
        for name, aval in zip(module.inputs, avals, strict=True)
    }

    def call(**inputs: Any) -> dict[str, Any]:
        given = [*(variables[name] for name in module.variables), *(inputs[name] for name in specs)]
        found: Any = gen_xla_ops.xla_call_module(
            args=[given[i] for i in exported.module_kept_var_idx],
            version=version,
            module=cast(Any, exported.mlir_module_serialized),  # bytes are text of TensorFlow
            Tout=[tf.as_dtype(aval.dtype) for aval in exported.out_avals],
            Sout=[tf.TensorShape(_sizes(aval)) for aval in exported.out_avals],
            platforms=[platform.upper() for platform in exported.platforms],
            function_list=[],
            has_token_input_output=False,
            disabled_checks=[],
        )
        for name, value in zip(module.updates, found[len(found) - len(module.updates) :], strict=True):
            variables[name].assign(value)
        return {_identifier(name): found[index] for name, index in module.results.items()}

    return tf.function(call, autograph=False).get_concrete_function(**specs)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _sizes(aval: Any) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in aval.shape]
