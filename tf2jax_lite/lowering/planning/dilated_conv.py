"""Dilated convolutions that the graph spells with blocks: values a rate apart are moved into the batch and back.

``tf.nn.convolution`` with ``dilations``, and with it Keras, writes SpaceToBatchND, a convolution without gaps,
BatchToSpaceND (with ExpandDims and Squeeze around a convolution of rows). JAX's convolution takes a rate: that needs no
padding to whole blocks, whose results are cropped, nor the moving. What is padded and by which blocks is known only
while tracing, but which nodes they are the graph tells: they are deferred until the last one says whether they fit.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tf2jax_lite.jaxprs.versions import InconclusiveDimensionOperation
from tf2jax_lite.ops.arrays import shape, space_to_batch
from tf2jax_lite.ops.nn import conv, depthwise_conv
from tf2jax_lite.ops.nn._convolution import ConvAttrs, convolve, convolve_depthwise, layout, resolve_padding, spatial
from tf2jax_lite.values import static

if TYPE_CHECKING:
    from .plan import Step

    Apply = Callable[[Step, list[Any], Any], list[Any]]

__all__ = ["mark_dilated"]


def _dense(input: Any, filter: Any, **attrs: Any) -> Any:
    return convolve(input, filter, ConvAttrs(**attrs))


def _depthwise(input: Any, filter: Any, **attrs: Any) -> Any:
    return convolve_depthwise(input, filter, ConvAttrs(**attrs))


_CONVOLUTIONS = {conv.conv2d: _dense, conv.conv3d: _dense, depthwise_conv.depthwise_conv2d: _depthwise}


class _Deferred(NamedTuple):
    """Steps that have not run, each with its inputs but for the result of the one before (the first has all)."""

    steps: tuple[tuple[Step, list[Any]], ...]


def mark_dilated(steps: Sequence[Step], outputs: Sequence[int]) -> None:
    """Sets `Step.turned` of steps that may be one dilated convolution together.

    Args:
      steps: a function's steps, in order.
      outputs: the slots of its results.
    """
    if not any(step.op.fn is space_to_batch.batch_to_space_nd for step in steps):
        return
    readers = Counter(slot for step in steps for slot in step.inputs)
    readers.update(outputs)
    made = {slot: step for step in steps for slot in step.outputs}
    for last in steps:
        if last.op.fn is not space_to_batch.batch_to_space_nd:
            continue
        chain = [last]
        for wanted in _before(last, made):
            if wanted.turned is not None or readers[wanted.outputs[0]] != 1:
                break
            chain.append(wanted)
        if chain[-1].op.fn is space_to_batch.space_to_batch_nd:
            for step in chain[1:]:
                step.turned = _defer
            last.turned = _resolve


def _before(last: Step, made: dict[int, Step]) -> Iterator[Step]:
    """Yields the steps whose results are read one by the other up to ``last``, as long as they are as wanted."""
    wanted: list[Any] = [_CONVOLUTIONS, (space_to_batch.space_to_batch_nd,)]
    step = made.get(last.inputs[0])
    if step is not None and step.op.fn is shape.squeeze:
        wanted = [(shape.squeeze,), _CONVOLUTIONS, (shape.expand_dims,), (space_to_batch.space_to_batch_nd,)]
    for functions in wanted:
        if step is None or step.op.fn not in functions:
            return
        yield step
        step = made.get(step.inputs[0]) if step.inputs else None


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
    dims = _spread(x, block_shape, paddings, inputs[1:])
    if len(inner) == 1:
        ((convolution, (kernel,)),) = inner
        rated = None if dims is None else _rated(convolution, dims, kernel)
        if rated is not None:
            return apply(dataclasses.replace(rated, shared=step.shared), [x, kernel], frame)
    else:
        expanding, (convolution, (kernel,)), squeezing = inner
        axis = _axis(expanding, squeezing[0], x.ndim)
        rated = None
        if dims is not None and axis is not None:
            dims.insert(axis, _Spread(1, 1, 0, 0, 0, 0))
            rated = _rated(convolution, dims, kernel)
        if rated is not None:
            results = apply(expanding[0], [x, *expanding[1]], frame)
            results = apply(rated, [*results, kernel], frame)
            return apply(dataclasses.replace(squeezing[0], shared=step.shared), results, frame)
    results = []
    for each, others in deferred.steps:
        results = apply(each, [*results, *others], frame)
    return apply(step, [*results, *inputs[1:]], frame)


class _Spread(NamedTuple):
    """A dimension: its size, what stands apart, and what is padded and cropped before and after."""

    size: Any
    rate: int
    before: Any
    after: Any
    crop_before: Any
    crop_after: Any


def _spread(x: Any, block_shape: Any, paddings: Any, back: Sequence[Any]) -> list[_Spread] | None:
    """Returns all dimensions of what is moved into the batch and, as ``back`` says, out again; None if not known."""
    found = [static.known(v) for v in (block_shape, paddings, *back)]
    if any(v is None for v in found):
        return None
    rates, pads, again, crops = (np.asarray(v) for v in found)
    count = rates.size
    if rates.ndim != 1 or rates.dtype == object or not np.array_equal(rates, again) or count >= x.ndim:
        return None
    if pads.shape != (count, 2) or crops.shape != (count, 2) or (rates < 1).any():
        return None
    each = [
        _Spread(n, int(r), *map(_plain, (*p, *c)))
        for n, r, p, c in zip(x.shape[1:], rates, pads.tolist(), crops.tolist(), strict=False)
    ]
    if any(isinstance(v, int) and v < 0 for s in each for v in s[2:]):
        return None
    rest = [_Spread(n, 1, 0, 0, 0, 0) for n in x.shape[1 + count :]]
    return [_Spread(x.shape[0], 1, 0, 0, 0, 0), *each, *rest]


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, (int, np.integer)) else value


def _axis(expanding: tuple[Step, list[Any]], squeezing: Step, rank: int) -> int | None:
    """Returns the axis, not the batch's, that is inserted and dropped again; None if they are others."""
    given = static.known(expanding[1][0])
    dropped = squeezing.kwargs.get("squeeze_dims") or ()
    if given is None or given.size != 1 or given.dtype == object or len(dropped) != 1:
        return None
    axes = [n + (rank + 1) * (n < 0) for n in (int(given.reshape(())), int(dropped[0]))]
    return axes[0] if axes[0] == axes[1] and 0 < axes[0] <= rank else None


def _rated(step: Step, dims: Sequence[_Spread], kernel: Any) -> Step | None:
    """Returns a convolution by rates that stands for this one with its values moved; None if there is none."""
    data_format = step.kwargs.get("data_format") or ""
    if len(data_format) != len(dims) or np.ndim(kernel) != len(dims):
        return None
    channel, places = layout(data_format)
    if dims[0].rate != 1 or dims[channel] != _Spread(dims[channel].size, 1, 0, 0, 0, 0):
        return None
    try:
        strides, inner = (spatial(step.kwargs[name], data_format) for name in ("strides", "dilations"))
        pads = _padding(step, dims, places, kernel, strides, inner)
    except InconclusiveDimensionOperation:
        return None
    if pads is None:
        return None
    rates, explicit = [1] * len(dims), [0] * (2 * len(dims))
    for place, rate, pair in zip(places, inner, pads, strict=True):
        rates[place] = rate * dims[place].rate
        explicit[2 * place : 2 * place + 2] = pair
    kwargs = {**step.kwargs, "padding": "EXPLICIT", "explicit_paddings": explicit, "dilations": rates}
    op = dataclasses.replace(step.op, fn=_CONVOLUTIONS[step.op.fn])
    return dataclasses.replace(step, op=op, kwargs=kwargs, turned=None)


def _padding(
    step: Step,
    dims: Sequence[_Spread],
    places: Sequence[int],
    kernel: Any,
    strides: Sequence[int],
    inner: Sequence[int],
) -> list[tuple[int, int]] | None:
    """Returns the padding of the convolution by rates, negative where results are cropped; None if there is none.

    All values of a dimension with its padding, ``rate`` apart, are convolved alike. That is what a convolution by that
    rate does, with as many results; each that is cropped is one less to pad for.
    """
    sizes = [_divided(d.size + d.before + d.after, d.rate) for d in (dims[i] for i in places)]
    if any(n is None for n in sizes):
        return None
    explicit = step.kwargs.get("explicit_paddings") or ()
    window = kernel.shape[: len(places)]
    pads = resolve_padding(step.kwargs["padding"], explicit, step.kwargs["data_format"], sizes, window, strides, inner)
    found = []
    for place, n, k, stride, rate, (lo, hi) in zip(places, sizes, window, strides, inner, pads, strict=True):
        dim = dims[place]
        results = (n + lo + hi - (k - 1) * rate) * dim.rate
        pair = dim.before + lo * dim.rate - dim.crop_before, dim.after + hi * dim.rate - dim.crop_after
        if dim.rate == 1 and not any(dim[2:]):
            pair = lo, hi
        elif stride != 1 or not results >= dim.crop_before + dim.crop_after + 1:
            return None
        if not all(isinstance(p, (int, np.integer)) for p in pair):
            return None
        found.append((int(pair[0]), int(pair[1])))
    return found


def _divided(size: Any, rate: int) -> Any:
    """Returns how many blocks a size is; None if it is no multiple of theirs."""
    return size // rate if size % rate == 0 else None
