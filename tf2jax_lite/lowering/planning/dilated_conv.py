"""Dilated convolutions written as SpaceToBatchND, conv, BatchToSpaceND.

``tf.nn.convolution`` with ``dilations``, and with it Keras, writes these three (with ExpandDims and Squeeze around a
1-D convolution). JAX's convolution has a kernel dilation: it needs neither padding to whole blocks, whose results are
cropped, nor the data movement. Paddings and block sizes are known only while tracing, but the nodes are in the graph:
all but the last step are deferred, and the last one tells whether they fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation
from tf2jax_lite.ops.arrays import shape, space_to_batch
from tf2jax_lite.ops.nn import conv
from tf2jax_lite.ops.nn.conv import ConvAttrs, convolve, convolve_depthwise, layout, resolve_padding, spatial
from tf2jax_lite.support.patterns import match, op
from tf2jax_lite.values import static

from .plan import Apply, Plan, Step, Steps


def _dense(input: Any, filter: Any, **attrs: Any) -> Any:
    return convolve(input, filter, ConvAttrs(**attrs))


def _depthwise(input: Any, filter: Any, **attrs: Any) -> Any:
    return convolve_depthwise(input, filter, ConvAttrs(**attrs))


_CONVOLUTIONS = {conv.conv2d: _dense, conv.conv3d: _dense, conv.depthwise_conv2d: _depthwise}


_SPACE_TO_BATCH = op(space_to_batch.space_to_batch_nd, name="space_to_batch")
_PATTERNS = [
    op(space_to_batch.batch_to_space_nd, op(_CONVOLUTIONS, _SPACE_TO_BATCH, name="conv")),
    op(
        space_to_batch.batch_to_space_nd,
        op(
            shape.squeeze,
            op(_CONVOLUTIONS, op(shape.expand_dims, _SPACE_TO_BATCH, name="expand_dims"), name="conv"),
            name="squeeze",
        ),
    ),
]


class _Deferred(NamedTuple):
    """Steps that have not run, with inputs; the first has all, others lack one."""

    steps: tuple[tuple[Step, list[Any]], ...]


def run(plan: Plan) -> Plan:
    """Override steps that may be one dilated convolution together."""
    if not any(step.op.fn is space_to_batch.batch_to_space_nd for step in plan.steps):
        return plan
    steps = Steps(plan)
    changed: dict[int, dict[str, Any]] = {}
    for last in range(len(plan.steps)):
        found = next(filter(None, (match(pattern, last, steps) for pattern in _PATTERNS)), None)
        chain = [] if found is None else [i for i in found.operations.values() if i != last]
        if chain and changed.keys().isdisjoint(chain):
            changed.update({index: {"override": _defer} for index in chain})
            changed[last] = {"override": _resolve}
    return plan.with_steps(changed)


def _defer(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    value = inputs[0]
    if isinstance(value, _Deferred):
        return [_Deferred((*value.steps, (step, inputs[1:])))]
    if step.op.fn is space_to_batch.space_to_batch_nd and isinstance(value, jax.Array):
        return [_Deferred(((step, inputs),))]
    return apply(step, inputs, frame)


def _resolve(apply: Apply, step: Step, inputs: list[Any], frame: Any) -> list[Any]:
    deferred = inputs[0]
    if not isinstance(deferred, _Deferred):
        return apply(step, inputs, frame)
    (_, (x, block_shape, paddings)), *inner = deferred.steps
    dims = _dimensions(x, block_shape, paddings, inputs[1:])
    if len(inner) == 1:
        ((convolution, (kernel,)),) = inner
        dilated = None if dims is None else _dilated(convolution, dims, kernel)
        if dilated is not None:
            return apply(dilated._replace(materialized=step.materialized), [x, kernel], frame)
    else:
        expanding, (convolution, (kernel,)), squeezing = inner
        axis = _axis(expanding, squeezing[0], x.ndim)
        dilated = None
        if dims is not None and axis is not None:
            dims.insert(axis, _Dimension(1, 1, 0, 0, 0, 0))
            dilated = _dilated(convolution, dims, kernel)
        if dilated is not None:
            results = apply(expanding[0], [x, *expanding[1]], frame)
            results = apply(dilated, [*results, kernel], frame)
            return apply(squeezing[0]._replace(materialized=step.materialized), results, frame)
    results = []
    for each, others in deferred.steps:
        results = apply(each, [*results, *others], frame)
    return apply(step, [*results, *inputs[1:]], frame)


class _Dimension(NamedTuple):
    """A dimension: size, dilation, and padding and cropping at both ends."""

    size: Any
    dilation: int
    before: Any
    after: Any
    crop_before: Any
    crop_after: Any


def _dimensions(x: Any, block_shape: Any, paddings: Any, back: Sequence[Any]) -> list[_Dimension] | None:
    """Return dimensions of an array in blocks and back; None if not static."""
    found = [static.static_value(v) for v in (block_shape, paddings, *back)]
    if any(v is None for v in found):
        return None
    dilations, pads, back_dilations, crops = (np.asarray(v) for v in found)
    count = dilations.size
    if (
        dilations.ndim != 1
        or dilations.dtype == object
        or not np.array_equal(dilations, back_dilations)
        or count >= x.ndim
    ):
        return None
    if pads.shape != (count, 2) or crops.shape != (count, 2) or (dilations < 1).any():
        return None
    each = [
        _Dimension(n, int(r), *map(_plain, (*p, *c)))
        for n, r, p, c in zip(x.shape[1:], dilations, pads.tolist(), crops.tolist(), strict=False)
    ]
    if any(isinstance(v, int) and v < 0 for s in each for v in s[2:]):
        return None
    rest = [_Dimension(n, 1, 0, 0, 0, 0) for n in x.shape[1 + count :]]
    return [_Dimension(x.shape[0], 1, 0, 0, 0, 0), *each, *rest]


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, (int, np.integer)) else value


def _axis(expanding: tuple[Step, list[Any]], squeezing: Step, rank: int) -> int | None:
    """Return the inserted and dropped non-batch axis; None if they differ."""
    given = static.static_value(expanding[1][0])
    dropped = squeezing.kwargs.get("squeeze_dims") or ()
    if given is None or given.size != 1 or given.dtype == object or len(dropped) != 1:
        return None
    axes = [n + (rank + 1) * (n < 0) for n in (int(given.reshape(())), int(dropped[0]))]
    return axes[0] if axes[0] == axes[1] and 0 < axes[0] <= rank else None


def _dilated(step: Step, dims: Sequence[_Dimension], kernel: Any) -> Step | None:
    """Return an equal dilated convolution for one between blocks, or None."""
    data_format = step.kwargs.get("data_format") or ""
    if len(data_format) != len(dims) or np.ndim(kernel) != len(dims):
        return None
    channel, axes = layout(data_format)
    if dims[0].dilation != 1 or dims[channel] != _Dimension(dims[channel].size, 1, 0, 0, 0, 0):
        return None
    try:
        strides, inner = (spatial(step.kwargs[name], data_format) for name in ("strides", "dilations"))
        pads = _padding(step, dims, axes, kernel, strides, inner)
    except InconclusiveDimensionOperation:
        return None
    if pads is None:
        return None
    dilations, explicit = [1] * len(dims), [0] * (2 * len(dims))
    for axis, dilation, pair in zip(axes, inner, pads, strict=True):
        dilations[axis] = dilation * dims[axis].dilation
        explicit[2 * axis : 2 * axis + 2] = pair
    kwargs = {**step.kwargs, "padding": "EXPLICIT", "explicit_paddings": explicit, "dilations": dilations}
    convolution = dataclasses.replace(step.op, fn=_CONVOLUTIONS[step.op.fn])
    return step._replace(op=convolution, kwargs=kwargs, override=None)


def _padding(
    step: Step,
    dims: Sequence[_Dimension],
    axes: Sequence[int],
    kernel: Any,
    strides: Sequence[int],
    inner: Sequence[int],
) -> list[tuple[int, int]] | None:
    """Return the dilated convolution's padding, negative for crops, or None."""
    # Blocks convolve the elements of each residue modulo the dilation separately, as a dilated convolution does, with
    # as many results. Each result that is cropped is one element less of padding.
    sizes = [_divided(d.size + d.before + d.after, d.dilation) for d in (dims[i] for i in axes)]
    if any(n is None for n in sizes):
        return None
    explicit = step.kwargs.get("explicit_paddings") or ()
    window = kernel.shape[: len(axes)]
    pads = resolve_padding(step.kwargs["padding"], explicit, step.kwargs["data_format"], sizes, window, strides, inner)
    found = []
    for axis, n, k, stride, dilation, (lo, hi) in zip(axes, sizes, window, strides, inner, pads, strict=True):
        dim = dims[axis]
        results = (n + lo + hi - (k - 1) * dilation) * dim.dilation
        pair = dim.before + lo * dim.dilation - dim.crop_before, dim.after + hi * dim.dilation - dim.crop_after
        if dim.dilation == 1 and not any(dim[2:]):
            pair = lo, hi
        elif stride != 1 or not results >= dim.crop_before + dim.crop_after + 1:
            return None
        if not all(isinstance(p, (int, np.integer)) for p in pair):
            return None
        found.append((int(pair[0]), int(pair[1])))
    return found


def _divided(size: Any, dilation: int) -> Any:
    """Return the number of blocks in a size; None if it is not a multiple."""
    return size // dilation if size % dilation == 0 else None
