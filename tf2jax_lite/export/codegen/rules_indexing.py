"""Primitives that move, index, reduce and sort as calls of ``jax.lax``."""

from __future__ import annotations

from typing import Any

import jax

from tf2jax_lite.support.errors import ExportError

from . import literals
from .registry import Equation, Raw, call, is_number, rule, tuple_of

__all__: list[str] = []


@rule("broadcast_in_dim")
def _broadcast_in_dim(eqn: Equation) -> str:
    shape = literals.shape(eqn.params["shape"])
    if not eqn.inputs[0].shape and eqn.typed[0] != eqn.loose[0]:
        return call("jnp.full", shape, eqn.loose[0], literals.dtype(eqn.inputs[0].dtype))
    return call("lax.broadcast_in_dim", eqn.typed[0], shape, literals.value(eqn.params["broadcast_dimensions"]))


@rule("reshape")
def _reshape(eqn: Equation) -> str:
    if eqn.params.get("dimensions") is not None:
        raise ExportError("a reshape that permutes dimensions")
    return call("lax.reshape", eqn.typed[0], literals.shape(eqn.params["new_sizes"]))


@rule("squeeze")
def _squeeze(eqn: Equation) -> str:
    return call("lax.squeeze", eqn.typed[0], literals.value(eqn.params["dimensions"]))


@rule("transpose")
def _transpose(eqn: Equation) -> str:
    return call("lax.transpose", eqn.typed[0], literals.value(tuple(eqn.params["permutation"])))


@rule("rev")
def _rev(eqn: Equation) -> str:
    return call("lax.rev", eqn.typed[0], literals.value(tuple(eqn.params["dimensions"])))


@rule("concatenate")
def _concatenate(eqn: Equation) -> str:
    return call("lax.concatenate", f"[{', '.join(eqn.typed)}]", str(eqn.params["dimension"]))


@rule("stack")
def _stack(eqn: Equation) -> str:
    return call("jnp.stack", f"[{', '.join(eqn.typed)}]", axis=eqn.params["axis"])


@rule("unstack")
def _unstack(eqn: Equation) -> str:
    return call("jnp.unstack", eqn.typed[0], axis=eqn.params["axis"])


@rule("tile")
def _tile(eqn: Equation) -> str:
    return call("jnp.tile", eqn.typed[0], literals.shape(eqn.params["reps"]))


@rule("split")
def _split(eqn: Equation) -> str:
    return call("lax.split", eqn.typed[0], literals.shape(eqn.params["sizes"]), axis=eqn.params["axis"])


@rule("pad")
def _pad(eqn: Equation) -> str:
    return call("lax.pad", *eqn.typed, literals.value(tuple(eqn.params["padding_config"])))


@rule("slice")
def _slice(eqn: Equation) -> str:
    p = eqn.params
    strides = p["strides"]
    parts = [literals.shape(p["start_indices"]), literals.shape(p["limit_indices"])]
    if strides is not None:
        parts.append(literals.shape(strides))
    return call("lax.slice", eqn.typed[0], *parts)


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation) -> str:
    return call("lax.dynamic_slice", eqn.typed[0], _starts(eqn, 1), literals.shape(eqn.params["slice_sizes"]))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation) -> str:
    return call("lax.dynamic_update_slice", eqn.typed[0], eqn.typed[1], _starts(eqn, 2))


def _starts(eqn: Equation, first: int) -> str:
    """Return a slice's start indices: plain numbers, unless their dtype with 64 bits differs from the others'."""
    axes = slice(first, first + len(eqn.inputs[0].shape))
    bare = all(map(is_number, eqn.loose[axes]))
    return tuple_of((eqn.loose if bare else eqn.typed)[axes])


@rule("iota")
def _iota(eqn: Equation) -> str:
    p = eqn.params
    dtype = literals.dtype(p["dtype"])
    if len(p["shape"]) == 1:
        return call("lax.iota", dtype, literals.dimension(p["shape"][0]))
    return call("lax.broadcasted_iota", dtype, literals.shape(p["shape"]), str(p["dimension"]))


@rule("gather")
def _gather(eqn: Equation) -> str:
    p = eqn.params
    sizes = Raw(literals.shape(p["slice_sizes"]))
    kwargs: dict[str, Any] = {"dimension_numbers": Raw(_numbers(p["dimension_numbers"])), "slice_sizes": sizes}
    kwargs["mode"] = Raw(_mode(p["mode"]))
    if p["unique_indices"]:
        kwargs["unique_indices"] = True
    if p["indices_are_sorted"]:
        kwargs["indices_are_sorted"] = True
    return call("lax.gather", *eqn.typed, **kwargs, fill_value=p["fill_value"])


@rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(eqn: Equation) -> str:
    p = eqn.params
    kwargs: dict[str, Any] = {"dimension_numbers": Raw(_numbers(p["dimension_numbers"]))}
    if p["indices_are_sorted"]:
        kwargs["indices_are_sorted"] = True
    if p["unique_indices"]:
        kwargs["unique_indices"] = True
    kwargs["mode"] = Raw(_mode(p["mode"]))
    return call(f"lax.{eqn.name.replace('-', '_')}", *eqn.typed, **kwargs)


def _mode(mode: Any) -> str:
    return f"lax.GatherScatterMode.{jax.lax.GatherScatterMode.from_any(mode).name}"


def _numbers(numbers: Any) -> str:
    fields = [(name, getattr(numbers, name)) for name in numbers._fields if name != "mode"]
    given = [f"{name}={literals.value(v)}" for name, v in fields if v != () or "batching" not in name]
    return f"lax.{type(numbers).__name__}({', '.join(given)})"


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation) -> str:
    return call(f"lax.{eqn.name}", eqn.typed[0], axes=tuple(int(a) for a in eqn.params["axes"]))


@rule("argmax", "argmin")
def _argmax(eqn: Equation) -> str:
    p = eqn.params
    return call(f"lax.{eqn.name}", eqn.typed[0], str(p["axes"][0]), literals.dtype(p["index_dtype"]))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation) -> str:
    p = eqn.params
    return call(f"lax.{eqn.name}", eqn.typed[0], axis=p["axis"], reverse=p["reverse"] or None)


@rule("sort")
def _sort(eqn: Equation) -> str:
    p = eqn.params
    kwargs = {"dimension": p["dimension"], "is_stable": p["is_stable"]}
    if len(eqn.typed) == 1:
        return f"({call('lax.sort', eqn.typed[0], **kwargs)},)"
    return call("lax.sort", tuple_of(eqn.typed), **kwargs, num_keys=p["num_keys"])


@rule("top_k")
def _top_k(eqn: Equation) -> str:
    axis = eqn.params.get("axis", len(eqn.inputs[0].shape) - 1)
    return call("lax.top_k", eqn.typed[0], literals.dimension(eqn.params["k"]), axis=axis)


@rule("approx_top_k")
def _approx_top_k(eqn: Equation) -> str:
    p = dict(eqn.params)
    which = "max" if p.pop("is_max_k") else "min"
    k = p.pop("k")
    return call(f"lax.approx_{which}_k", eqn.typed[0], str(k), **p)


@rule("rng_uniform")
def _rng_uniform(eqn: Equation) -> str:
    return call("lax.rng_uniform", *eqn.typed, literals.shape(eqn.params["shape"]))
