"""Stack params of equal layers for functions that scan over layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import MissingParamError

Stacks = Mapping[str, Any]
"""Name of a stacked param, which is the first layer's, to the list of the layers' params; of lists for nested loops."""


def names_of(layers: Any) -> list[str]:
    """Return the names in a list of names or of such lists."""
    return [name for inner in layers for name in names_of(inner)] if isinstance(layers, list) else [layers]


def stacked(params: Mapping[str, Any], stacks: Stacks) -> dict[str, Any]:
    """Return params with those of equal layers stacked.

    A stack has the key of its first layer's param.

    Stacks that are stacked already, or missing, stay.
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
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        layers = stacks.get(str(name))
        if layers is not None and np.shape(value) == (*np.shape(layers), *shapes[str(name)]):
            found.update(zip(names_of(layers), np.reshape(value, (-1, *shapes[str(name)])), strict=True))
        else:
            found[name] = value
    return found
