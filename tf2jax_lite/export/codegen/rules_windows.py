"""Print reductions over windows, and derivatives of their maxima and minima."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from . import literals
from .rules import Equation, Raw, call, rule

__all__: list[str] = []


@rule("reduce_window_sum", "reduce_window_max", "reduce_window_min")
def _reduce_window(eqn: Equation) -> str:
    return _window(eqn.typed[0], eqn.inputs[0].dtype, eqn.name.rsplit("_", 1)[1], eqn.params)


@rule("select_and_scatter_add")
def _select_and_scatter_add(eqn: Equation) -> str:
    # JAX has no public name for it: the transpose of a maximum over windows.
    source, operand = eqn.typed
    return f"jax.vjp(lambda a: {_selected(eqn, 'a')}, {operand})[1]({source})[0]"


@rule("select_and_gather_add")
def _select_and_gather_add(eqn: Equation) -> str:
    # Likewise its tangent.
    tangents, operand = eqn.typed
    return f"jax.jvp(lambda a: {_selected(eqn, 'a')}, ({operand},), ({tangents},))[1]"


def _selected(eqn: Equation, x: str) -> str:
    kind = {"ge": "max", "le": "min"}[str(eqn.params["select_prim"])]
    return _window(x, eqn.inputs[1].dtype, kind, eqn.params)


def _window(x: str, dtype: Any, kind: str, p: dict[str, Any]) -> str:
    if kind == "sum":
        init = literals.scalar(np.zeros((), dtype), typed=True)
    elif jnp.issubdtype(dtype, jnp.floating):
        init = literals.scalar(np.asarray(-np.inf if kind == "max" else np.inf, dtype), typed=True)
    else:
        limits = jnp.iinfo(dtype)
        init = literals.scalar(np.asarray(limits.min if kind == "max" else limits.max, dtype), typed=True)
    kwargs: dict[str, Any] = {
        "window_dimensions": Raw(literals.shape(p["window_dimensions"])),
        "window_strides": tuple(p["window_strides"]),
        "padding": Raw(literals.value(tuple(map(tuple, p["padding"])))),
    }
    for name in ("base_dilation", "window_dilation"):
        if any(d != 1 for d in p.get(name, ())):
            kwargs[name] = tuple(p[name])
    fn = {"sum": "lax.add", "max": "lax.max", "min": "lax.min"}[kind]
    return call("lax.reduce_window", x, init, fn, **kwargs)
