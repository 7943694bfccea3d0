"""Stack params of equal layers for functions that scan over layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import flatten_params, nest_params
from tf2jax_lite.support.errors import ExportError, MissingParamError

__all__ = ["Stacks", "find_stacks", "names_of", "read_stacks", "stacked", "unstacked"]

Stacks = Mapping[str, Any]
"""Name of a stacked param, which is the first layer's, to the list of the layers' params; of lists for nested loops."""

_FLAGS = ("trainable", "constant", "moving_statistic")


def names_of(layers: Any) -> list[str]:
    """Return the names in a list of names or of such lists."""
    return [name for inner in layers for name in names_of(inner)] if isinstance(layers, list) else [layers]


def find_stacks(stack_layers: Callable[[Any], Any], params: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the params that a generated module stacks.

    Args:
      stack_layers: the module's function.
      params: the metadata of all params, by name.

    Returns:
      Stacks; none if they would hold params of which only some are trainable, constant, or moving statistics.
    """
    names = list(params)
    numbers = flatten_params(stack_layers(nest_params({name: np.int32(i) for i, name in enumerate(names)})))
    found = {str(k): np.asarray(names)[np.asarray(v)].tolist() for k, v in numbers.items() if np.ndim(v)}
    for key, layers in found.items():
        if any(params[name][flag] != params[key][flag] for name in names_of(layers) for flag in _FLAGS):
            return {}
    return found


def read_stacks(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stacks that an artifact's functions take.

    Raises:
      ExportError: the metadata are damaged.
    """
    found, params = metadata.get("stacked", {}), metadata["params"]
    try:
        for key, layers in found.items():
            names = names_of(layers)
            shapes = {tuple(params[name]["shape"]) for name in names}
            if len(shapes) > 1 or names[0] != key or np.size(layers) != len(names) or len(set(names)) < len(names):
                raise ValueError(f"those of {key!r} do not fit")
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ExportError(f"the metadata of stacked params are damaged: {type(error).__name__}: {error}") from error
    return found


def stacked(params: Mapping[str, Any], stacks: Stacks) -> dict[str, Any]:
    """Return params with those of equal layers stacked.

    A stack has the key of its first layer's param.

    Stacks that are stacked already, or missing, stay.

    Args:
      params: name to array.
      stacks: result of `read_stacks`.

    Raises:
      MissingParamError: there are params of some layers, but not of all.
    """
    found = dict(params)
    for key, layers in stacks.items():
        names = names_of(layers)
        missing = [name for name in names if name not in found]
        if missing == names[1:] or len(missing) == len(names):
            continue
        if missing:
            raise MissingParamError(f"params lack {len(missing)} variable(s): {', '.join(missing[:10])}")
        arrays = [found[name] for name in names]
        for name in names[1:]:
            del found[name]
        module = np if all(isinstance(array, np.ndarray) for array in arrays) else jnp
        found[key] = module.stack(arrays).reshape(*np.shape(layers), *arrays[0].shape)
    return found


def unstacked(params: Mapping[str, Any], stacks: Stacks, shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return params with those of each layer by themselves: the inverse of `stacked`.

    Args:
      params: name to array; some may be left out.
      stacks: result of `read_stacks`.
      shapes: of each layer's params, by name.
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        layers = stacks.get(str(name))
        if layers is not None and np.shape(value) == (*np.shape(layers), *shapes[str(name)]):
            found.update(zip(names_of(layers), np.reshape(value, (-1, *shapes[str(name)])), strict=True))
        else:
            found[name] = value
    return found
