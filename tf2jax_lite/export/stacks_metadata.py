"""Params that an artifact stacks: found when it is written, and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tf2jax_lite.calling.layer_stacks import names_of
from tf2jax_lite.calling.params import flatten_params, nest_params
from tf2jax_lite.support.errors import ExportError

_FLAGS = ("trainable", "constant", "moving_statistic")


def find_stacks(stack_layers: Callable[[Any], Any], params: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the params that a generated module stacks.

    Returns:
      Stacks; none if they would hold params of which only some are trainable, constant, or moving statistics.
    """
    names = list(params)
    numbers = flatten_params(stack_layers(nest_params({name: np.int32(i) for i, name in enumerate(names)})))
    listed = np.array(names, object)  # NumPy's own strings drop NUL characters at the end
    found = {str(k): listed[np.asarray(v)].tolist() for k, v in numbers.items() if np.ndim(v)}
    for key, layers in found.items():
        if any(params[name][flag] != params[key][flag] for name in names_of(layers) for flag in _FLAGS):
            return {}
    return found


def read_stacks(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stacks that an artifact's functions take."""
    found, params = metadata.get("stacked", {}), metadata["params"]
    try:
        for key, layers in found.items():
            names = names_of(layers)
            shapes = {tuple(params[name]["shape"]) for name in names}
            if len(shapes) > 1 or names[0] != key or np.size(layers) != len(names) or len(set(names)) < len(names):
                raise ValueError(f"those of {key!r} do not fit")
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExportError(f"the metadata of stacked params cannot be read: {type(error).__name__}: {error}") from error
    return found
