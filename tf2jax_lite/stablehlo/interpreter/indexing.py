"""Rules for gather, scatter, and dynamic slices."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.support.errors import UnsupportedError

from .core import OpContext, is_splat, is_static, materialize, rule, scalar_of
from .reductions import single_op
from .shapes import dims_of


def _starts(starts: tuple[Any, ...]) -> list[Any]:
    return [scalar_of(v) if is_splat(v) else materialize(v) for v in starts]


@rule("stablehlo.dynamic_slice", lazy=True)
def _dynamic_slice(ctx: OpContext, x: Any, *starts: Any) -> Any:
    sizes = tuple(ctx.attr("slice_sizes"))
    found = _starts(starts)
    x = materialize(x)
    shape = x.shape
    if all(
        is_static(v) or (isinstance(n, int) and n == s) for v, s, n in zip(found, sizes, shape, strict=True)
    ) and all(isinstance(d, int) for d in shape):
        begin = [0 if n == s else min(max(int(v), 0), n - s) for v, s, n in zip(found, sizes, shape, strict=True)]
        if sizes == tuple(shape):
            return x
        return lax.slice(x, begin, [b + s for b, s in zip(begin, sizes, strict=True)])
    return lax.dynamic_slice(x, found, sizes, allow_negative_indices=False)


@rule("stablehlo.dynamic_update_slice", lazy=True)
def _dynamic_update_slice(ctx: OpContext, x: Any, update: Any, *starts: Any) -> Any:
    return lax.dynamic_update_slice(materialize(x), materialize(update), _starts(starts), allow_negative_indices=False)


def _with_last(indices: Any, axis: int) -> Any:
    """Bring the dimension that holds index vectors to the end."""
    if axis == indices.ndim:
        return lax.reshape(indices, (*indices.shape, 1))
    if axis == indices.ndim - 1:
        return indices
    order = [i for i in range(indices.ndim) if i != axis]
    return lax.transpose(indices, (*order, axis))


@rule("stablehlo.gather")
def _gather(ctx: OpContext, x: Any, indices: Any) -> Any:
    return _gathered(ctx, x, indices, tuple(ctx.attr("slice_sizes")))


@rule("stablehlo.dynamic_gather", lazy=True)
def _dynamic_gather(ctx: OpContext, x: Any, indices: Any, sizes: Any) -> Any:
    return _gathered(ctx, materialize(x), materialize(indices), dims_of(ctx, sizes, "the size of gathered slices"))


def _gathered(ctx: OpContext, x: Any, indices: Any, sizes: tuple[Any, ...]) -> Any:
    numbers, fill = ctx.attr("dimension_numbers"), ctx.attr("fill")
    return lax.gather(
        x,
        _with_last(indices, numbers["index_vector_dim"]),
        lax.GatherDimensionNumbers(
            offset_dims=numbers["offset_dims"],
            collapsed_slice_dims=numbers["collapsed_slice_dims"],
            start_index_map=numbers["start_index_map"],
            operand_batching_dims=numbers["operand_batching_dims"],
            start_indices_batching_dims=numbers["start_indices_batching_dims"],
        ),
        sizes,
        indices_are_sorted=bool(ctx.attr("indices_are_sorted", False)),
        mode=lax.GatherScatterMode.CLIP if fill is None else lax.GatherScatterMode.FILL_OR_DROP,
        fill_value=None if fill is None else fill.item(),
    )


_SCATTER = {
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "minimum": lax.scatter_min,
    "maximum": lax.scatter_max,
    "subtract": lax.scatter_sub,
    "or": lax.scatter_max,
    "and": lax.scatter_min,
    "second": lax.scatter,
}


@rule("stablehlo.scatter")
def _scatter(ctx: OpContext, *args: Any) -> Any:
    if len(args) != 3:
        raise UnsupportedError("a scatter into several arrays at once has no counterpart in jax.lax")
    x, indices, updates = args
    numbers = ctx.attr("scatter_dimension_numbers")
    indices = _with_last(indices, numbers["index_vector_dim"])
    dimension_numbers = lax.ScatterDimensionNumbers(
        update_window_dims=numbers["update_window_dims"],
        inserted_window_dims=numbers["inserted_window_dims"],
        scatter_dims_to_operand_dims=numbers["scattered_dims_to_operand_dims"],
        operand_batching_dims=numbers["input_batching_dims"],
        scatter_indices_batching_dims=numbers["scatter_indices_batching_dims"],
    )
    options: Any = {
        "indices_are_sorted": bool(ctx.attr("indices_are_sorted", False)),
        "unique_indices": bool(ctx.attr("unique_indices", False)),
        "mode": lax.GatherScatterMode.FILL_OR_DROP,
    }
    region = ctx.op.regions[0]
    kind = single_op(region)
    if kind in ("or", "and") and x.dtype != np.bool_:
        kind = ""
    if kind in ("add", "multiply") and x.dtype == np.bool_:
        kind = {"add": "or", "multiply": "and"}[kind]
    if kind in _SCATTER:
        if kind in ("or", "and"):  # XLA has no maximum of booleans with a derivative; there is nothing to derive
            small = _SCATTER[kind](x.astype(np.uint8), indices, updates.astype(np.uint8), dimension_numbers, **options)
            return small.astype(np.bool_)
        return _SCATTER[kind](x, indices, updates, dimension_numbers, **options)
    if kind != "first" and region.args[1] not in _read(region):
        fn = ctx.region(0)
        return lax.scatter_apply(
            x,
            indices,
            lambda value: fn(value, np.zeros((), x.dtype))[0],
            dimension_numbers,
            update_shape=updates.shape,
            **options,
        )
    if kind == "first":
        return x
    raise UnsupportedError(
        "a scatter that combines values otherwise than by adding, multiplying, replacing, or their minimum or maximum"
    )


def _read(region: Any) -> set[int]:
    return {v for op in region.ops for v in op.operands} | set(region.returns)
