"""Weights in fewer bits, which a function expands where it uses them.

int8 has a scale for each channel, the last axis: W = int8 * scale. Everything else computes in the weights' dtype.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.support.errors import InputError

KINDS = ("int8", "bfloat16")
_MIN_SIZE = 256
"""Elements below which a weight stays as it is."""


def check_weights(kind: str | None) -> None:
    """Check the kind of stored weights.

    Raises:
      InputError: it is unknown.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"weights is one of {', '.join(KINDS)}, not {kind!r}")


@dataclasses.dataclass(frozen=True, eq=False)
class WeightOnly:
    """A function whose large weights are stored in fewer bits.

    Attributes:
      converted: the function of whole weights, with the methods of a `ConvertedFunction` that an export uses.
      dtypes: dtypes of the weights that are stored, by name.
      kind: int8 or bfloat16.
      training: of a Keras model's function, facts that its training needs.
    """

    converted: Any
    dtypes: Mapping[str, np.dtype]
    kind: str
    training: Any = None

    @property
    def interface(self) -> Interface:
        """The function's arguments and results."""
        return self.converted.interface

    @property
    def draws(self) -> bool:
        """Whether the function draws random numbers."""
        return self.converted.draws

    @functools.cached_property
    def variables(self) -> list[str]:
        """The names of the params."""
        return [stored for name in self.converted.variables for stored in self._stored(name)]

    def _stored(self, name: str) -> list[str]:
        is_int8 = self.kind == "int8" and name in self.dtypes
        return [f"{name}/int8", f"{name}/scale"] if is_int8 else [name]

    def flat_call(
        self, params: Mapping[str, Any], inputs: Any, rng: Any = None, *, promote_dtypes: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Run on flat inputs; return flat results and updated params."""
        whole: dict[str, Any] = {}
        for name in self.converted.variables:
            first, *rest = (params[stored] for stored in self._stored(name))
            value = jnp.asarray(first, self.dtypes[name]) if name in self.dtypes else first
            whole[name] = value * rest[0] if rest else value
        results, after = self.converted.flat_call(whole, inputs, rng, promote_dtypes=promote_dtypes)
        changed = {n: v for n, v in after.items() if n in whole and v is not whole[n] and n not in self.dtypes}
        return results, {**params, **changed}


def stored_weights(
    params: Mapping[str, Any], kind: str
) -> tuple[dict[str, Any], dict[str, np.dtype], dict[str, float]]:
    """Return params with large floating ones of two or more axes in fewer bits.

    Args:
      params: by name.
      kind: int8 or bfloat16.

    Returns:
      The params, the dtypes of those that changed, and their errors relative to their norms, by name.
    """
    found: dict[str, Any] = {}
    dtypes: dict[str, np.dtype] = {}
    errors: dict[str, float] = {}
    for name, given in params.items():
        if not (
            jnp.issubdtype(given.dtype, jnp.floating) and len(given.shape) >= 2 and np.prod(given.shape) >= _MIN_SIZE
        ):
            found[name] = given
            continue
        value, is_trained = np.asarray(given), getattr(name, "trainable", True)
        dtypes[str(name)] = value.dtype
        if kind == "bfloat16":
            found[name] = value.astype(jnp.bfloat16)
            expanded = found[name].astype(np.float32)
        else:
            largest = np.max(np.abs(value), axis=tuple(range(value.ndim - 1)))
            scale = (np.where(largest > 0, largest, 1) / 127).astype(value.dtype)
            found[VariableName(f"{name}/int8", False)] = np.round(value / scale).astype(np.int8)
            found[VariableName(f"{name}/scale", is_trained)] = scale
            expanded = found[f"{name}/int8"].astype(np.float32) * scale.astype(np.float32)
        wide = value.astype(np.float64)
        errors[str(name)] = float(np.linalg.norm(expanded - wide) / (np.linalg.norm(wide) or 1))
    return found, dtypes, errors
