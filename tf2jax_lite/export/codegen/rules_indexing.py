"""Primitives that move, index, reduce and sort as calls of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tf2jax_lite.support.errors import ExportError

from . import literals
from .idioms.shapes import inserted
from .registry import Equation, Raw, call, is_number, is_numpy, rule, tuple_of

__all__: list[str] = []


_LEADING = 2  # axes that are written as colons before new ones


@rule("broadcast_in_dim")
def _broadcast_in_dim(eqn: Equation) -> str:
    shape = literals.shape(eqn.params["shape"])
    if not eqn.inputs[0].shape and eqn.typed[0] != eqn.loose[0]:
        dtype = literals.dtype(eqn.inputs[0].dtype)
        plain = {"0": "jnp.zeros", "0.0": "jnp.zeros", "1": "jnp.ones", "1.0": "jnp.ones"}.get(eqn.loose[0])
        return call(plain, shape, dtype) if plain else call("jnp.full", shape, eqn.loose[0], dtype)
    kept, rank = tuple(eqn.params["broadcast_dimensions"]), len(eqn.params["shape"])
    if kept == tuple(range(rank - len(kept), rank)):
        return call("jnp.broadcast_to", eqn.typed[0], shape)
    return call("lax.broadcast_in_dim", eqn.typed[0], shape, literals.value(kept))


@rule("expand_dims")
def _expand_dims(eqn: Equation) -> str:
    axes, rank, x = eqn.params["axes"], len(eqn.outputs[0].shape), eqn.typed[0]
    if axes == (rank - 1,) and not is_numpy(x):
        return f"{x}[..., None]"
    first = axes[0]
    if axes == tuple(range(first, first + len(axes))) and first <= _LEADING and not is_numpy(x):
        return f"{x}[{', '.join([':'] * first + ['None'] * len(axes))}]"
    return call("jnp.expand_dims", x, literals.value(axes[0] if len(axes) == 1 else axes))


@rule("reshape")
def _reshape(eqn: Equation) -> str:
    if eqn.params.get("dimensions") is not None:
        raise ExportError("a reshape that permutes dimensions")
    before, after, x = eqn.inputs[0].shape, eqn.params["new_sizes"], eqn.typed[0]
    dropped = None if is_numpy(x) else inserted(after, before)
    if dropped:
        return call("jnp.squeeze", x, literals.value(dropped[0] if len(dropped) == 1 else dropped))
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if not _equal(a, b)), len(after))
    stop = first + 1 + len(before) - len(after)
    rest = zip(before[stop:], after[first + 1 :], strict=False)
    if first < len(after) < len(before) and all(_equal(a, b) for a, b in rest) and not is_numpy(x):
        return call("lax.collapse", x, str(first), *([str(stop)] if stop < len(before) else []))
    return call("jnp.reshape", x, literals.shape(_sizes(after)))


def _equal(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


def _sizes(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return a shape with -1 in place of its only symbolic dimension."""
    symbolic = [d for d in shape if not isinstance(d, int)]
    if len(symbolic) != 1 or 0 in shape:
        return tuple(shape)
    return tuple(d if isinstance(d, int) else -1 for d in shape)


@rule("squeeze")
def _squeeze(eqn: Equation) -> str:
    axes = tuple(eqn.params["dimensions"])
    return call("jnp.squeeze", eqn.typed[0], literals.value(axes[0] if len(axes) == 1 else axes))


@rule("transpose")
def _transpose(eqn: Equation) -> str:
    order, x = tuple(eqn.params["permutation"]), eqn.typed[0]
    if order == (1, 0) and not is_numpy(x):
        return f"{x}.T"
    return call("jnp.transpose", x, literals.value(order))


@rule("rev")
def _rev(eqn: Equation) -> str:
    axes = tuple(eqn.params["dimensions"])
    return call("jnp.flip", eqn.typed[0], literals.value(axes[0] if len(axes) == 1 else axes))


@rule("concatenate")
def _concatenate(eqn: Equation) -> str:
    return call("jnp.concatenate", f"[{', '.join(eqn.typed)}]", axis=eqn.params["dimension"])


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
    sizes, axis = eqn.params["sizes"], eqn.params["axis"]
    if all(isinstance(n, int) and n == sizes[0] for n in sizes):
        last = axis == len(eqn.inputs[0].shape) - 1
        return call("jnp.split", eqn.typed[0], str(len(sizes)), axis=-1 if last else axis)
    return call("lax.split", eqn.typed[0], literals.shape(eqn.params["sizes"]), axis=eqn.params["axis"])


@rule("pad")
def _pad(eqn: Equation) -> str:
    config = tuple(eqn.params["padding_config"])
    if all(isinstance(width, int) and width == 0 for widths in config for width in widths):
        return eqn.typed[0]  # `jnp.pad` does not take scalars
    if not all(
        isinstance(low, int) and isinstance(high, int) and low >= 0 <= high and not gap for low, high, gap in config
    ):
        return call("lax.pad", *eqn.typed, literals.value(config))
    widths = literals.value(tuple((low, high) for low, high, _ in config))
    number = None if eqn.mixed[1] in ("0", "0.0", "False") else Raw(eqn.mixed[1])
    return call("jnp.pad", eqn.typed[0], widths, constant_values=number)


@rule("slice")
def _slice(eqn: Equation) -> str:
    p = eqn.params
    starts, stops, strides, sizes = p["start_indices"], p["limit_indices"], p["strides"], eqn.inputs[0].shape
    axes = list(zip(starts, stops, strides or [1] * len(sizes), sizes, strict=True))
    found = [_slice_text(*axis) for axis in axes]
    if all(found) and not is_numpy(eqn.typed[0]):
        while len(found) > 1 and found[-1] == ":":
            found.pop()
        return f"{eqn.typed[0]}[{', '.join(map(str, found))}]"
    moved = [i for i, text in enumerate(found) if text != ":"]
    if len(moved) == 1 and all(n == 1 for n in strides or ()):
        (axis,) = moved
        ends = literals.dimension(starts[axis]), literals.dimension(stops[axis])
        if "-" not in "".join(ends):  # ends below 0, which lax.slice rejects, it would count from the other end
            return call("lax.slice_in_dim", eqn.typed[0], *ends, axis=axis or None)
    parts = [literals.shape(starts), literals.shape(stops)]
    if strides is not None:
        parts.append(literals.shape(strides))
    return call("lax.slice", eqn.typed[0], *parts)


@rule("index")
def _index(eqn: Equation) -> str:
    chosen, sizes = dict(eqn.params["axes"]), eqn.inputs[0].shape
    found = [":"] * (max(chosen) + 1)
    for axis, start in chosen.items():
        found[axis] = "-1" if start and start == sizes[axis] - 1 else str(start)
    return f"{eqn.typed[0]}[{', '.join(found)}]"


@rule("first_rows")
def _first_rows(eqn: Equation) -> str:
    axis, count = eqn.params["axis"], literals.dimension(eqn.params["count"])
    return f"{eqn.typed[0]}[{', '.join([':'] * axis + [f':{count}'])}]"


def _slice_text(start: Any, stop: Any, step: int, size: Any) -> str | None:
    """Return the slice of one axis, None if it depends on a symbolic dimension."""
    if step == 1 and start == 0 and stop == size:
        return ":"
    if not all(isinstance(n, int) for n in (start, stop, size)):
        return None
    text = f"{start or ''}:{stop if stop < size else ''}"
    return text if step == 1 else f"{text}:{step}"


@rule("dynamic_slice")
def _dynamic_slice(eqn: Equation) -> str:
    return call("lax.dynamic_slice", eqn.typed[0], _starts(eqn, 1), literals.shape(eqn.params["slice_sizes"]))


@rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation) -> str:
    return call("lax.dynamic_update_slice", eqn.typed[0], eqn.typed[1], _starts(eqn, 2))


def _starts(eqn: Equation, first: int) -> str:
    """Return a slice's start indices, as plain numbers where possible.

    All start indices must have one dtype.
    """
    axes = slice(first, first + len(eqn.inputs[0].shape))
    bare = all(map(is_number, eqn.loose[axes]))
    return tuple_of((eqn.loose if bare else eqn.typed)[axes])


@rule("iota")
def _iota(eqn: Equation) -> str:
    p = eqn.params
    dtype = literals.dtype(p["dtype"])
    if len(p["shape"]) == 1 and isinstance(p["shape"][0], int) and p["dtype"] in (np.int32, np.int64, np.float32):
        return call("jnp.arange", str(p["shape"][0]), dtype=Raw(dtype))
    if len(p["shape"]) == 1:
        return call("lax.iota", dtype, literals.dimension(p["shape"][0]))
    return call("lax.broadcasted_iota", dtype, literals.shape(p["shape"]), str(p["dimension"]))


@rule("tri")
def _tri(eqn: Equation) -> str:
    rows, columns = eqn.outputs[0].shape
    dims = [rows] if rows is columns or rows == columns else [rows, columns]
    return call("jnp.tri", *map(literals.dimension, dims), dtype=eqn.outputs[0].dtype)


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
    flags = {word: True for word in ("indices_are_sorted", "unique_indices") if p[word]}
    method, mode = _METHODS.get(eqn.name), _MODES.get(jax.lax.GatherScatterMode.from_any(p["mode"]))
    depth = eqn.inputs[1].shape[-1] if eqn.inputs[1].shape else 0
    if method is not None and mode is not None and _is_by_rows(p["dimension_numbers"], depth, eqn):
        x, indices, updates = eqn.typed
        x = f"jnp.asarray({x})" if is_numpy(x) else x
        indices = f"jnp.asarray({indices})" if is_numpy(indices) else indices
        columns = ", ".join(f"{indices}[..., {i}]" for i in range(depth))
        return call(f"{x}.at[{columns}].{method}", updates, **flags, mode=mode, wrap_negative_indices=False)
    kwargs = {"dimension_numbers": Raw(_numbers(p["dimension_numbers"])), **flags, "mode": Raw(_mode(p["mode"]))}
    return call(f"lax.{eqn.name.replace('-', '_')}", *eqn.typed, **kwargs)


_METHODS = {
    "scatter": "set",
    "scatter-add": "add",
    "scatter-mul": "multiply",
    "scatter-min": "min",
    "scatter-max": "max",
}
_MODES = {jax.lax.GatherScatterMode.FILL_OR_DROP: "drop", jax.lax.GatherScatterMode.CLIP: "clip"}


def _is_by_rows(numbers: Any, depth: Any, eqn: Equation) -> bool:
    """Return whether indices are of the first axes, and updates are whole rows."""
    x, indices, updates = eqn.inputs
    axes, lead = tuple(range(depth)) if isinstance(depth, int) and depth else (), len(indices.shape) - 1
    rows = tuple(range(lead, len(updates.shape)))
    given = numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims, numbers.update_window_dims
    whole = [a is b or a == b for a, b in zip(updates.shape[lead:], x.shape[len(axes) :], strict=False)]
    return bool(axes) and given == (axes, axes, rows) and not numbers.operand_batching_dims and all(whole)


def _mode(mode: Any) -> str:
    return f"lax.GatherScatterMode.{jax.lax.GatherScatterMode.from_any(mode).name}"


def _numbers(numbers: Any) -> str:
    fields = [(name, getattr(numbers, name)) for name in numbers._fields if name != "mode"]
    given = [f"{name}={literals.value(v)}" for name, v in fields if v != () or "batching" not in name]
    return f"lax.{type(numbers).__name__}({', '.join(given)})"


_NUMPY = {
    "reduce_sum": "sum",
    "reduce_prod": "prod",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "all",
    "reduce_or": "any",
}


@rule(*_NUMPY, "reduce_xor")
def _reduce(eqn: Equation) -> str:
    axes, x = tuple(sorted(int(a) for a in eqn.params["axes"])), eqn.inputs[0]
    if _is_numpy_reduction(eqn, axes):
        axis: Any = None
        if len(axes) < (rank := len(x.shape)):
            first, *more = axes
            axis = axes if more else -1 if first == rank - 1 else first
        return call(f"jnp.{_NUMPY[eqn.name]}", eqn.typed[0], axis=axis, keepdims=eqn.params.get("keepdims"))
    if eqn.params.get("keepdims"):
        reduced = call(f"lax.{eqn.name}", eqn.typed[0], axes=axes)
        return call("jnp.expand_dims", reduced, literals.value(axes))
    return call(f"lax.{eqn.name}", eqn.typed[0], axes=tuple(int(a) for a in eqn.params["axes"]))


def _is_numpy_reduction(eqn: Equation, axes: Sequence[int]) -> bool:
    """Return whether the function of `jax.numpy` has the same jaxpr.

    It has not for dtypes that it sums in a wider dtype, nor for empty axes, where it raises.
    """
    x = eqn.inputs[0]
    if not axes or eqn.name not in _NUMPY:
        return False
    if eqn.name in ("reduce_sum", "reduce_prod"):
        return x.dtype in (np.float32, np.float64, np.complex64, np.complex128)
    if eqn.name in ("reduce_max", "reduce_min"):
        real = not jax.numpy.issubdtype(x.dtype, np.complexfloating)
        return real and all(isinstance(x.shape[a], int) and x.shape[a] > 0 for a in axes)
    return x.dtype == np.bool_


@rule("argmax", "argmin")
def _argmax(eqn: Equation) -> str:
    axis, dtype = eqn.params["axes"][0], literals.dtype(eqn.params["index_dtype"])
    last = axis == len(eqn.inputs[0].shape) - 1
    return f"{call(f'jnp.{eqn.name}', eqn.typed[0], axis=-1 if last else axis)}.astype({dtype})"


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
