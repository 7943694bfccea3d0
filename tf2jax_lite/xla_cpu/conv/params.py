"""What the spellings of convolutions share: a convolution's parameters, and moving, cutting and padding its arrays."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.xla_cpu.materialize import once

__all__ = [
    "Conv",
    "cut",
    "interleave",
    "is_plain",
    "pad",
    "place_of",
    "plain",
    "product",
    "read",
    "respec",
    "taps",
    "transposed",
]

_FEW_PLACES = 64


@dataclasses.dataclass(frozen=True)
class Conv:
    """The parameters of one convolution; spatial entries in the order of the specs.

    Attributes:
      lhs, rhs, out: positions of (batch, feature, spatial...) in each array; for ``rhs`` (out, in, spatial...).
      sizes, window, result: spatial sizes of the input, the kernel and the output.
      strides, pads, gaps, rates: window strides, padding, input dilation and kernel dilation.
      groups, batch_groups: of features and of the batch.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]
    sizes: tuple[int, ...]
    window: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    gaps: tuple[int, ...]
    rates: tuple[int, ...]
    groups: int
    batch_groups: int
    precision: Any
    dtype: Any


def read(lhs: Any, rhs: Any, params: dict[str, Any]) -> Conv | None:
    """Returns the parameters, or None where they are symbolic or a size is zero."""
    specs = params["dimension_numbers"]
    sizes = tuple(lhs.shape[i] for i in specs.lhs_spec[2:])
    window = tuple(rhs.shape[i] for i in specs.rhs_spec[2:])
    pads = tuple(tuple(pair) for pair in params["padding"])
    numbers = (*sizes, *window, *itertools.chain(*pads))  # the others may be symbolic
    if not all(isinstance(n, int) for n in numbers):
        return None
    strides, gaps, rates = params["window_strides"], params["lhs_dilation"], params["rhs_dilation"]
    result = tuple(
        ((n - 1) * g + 1 + sum(p) - (k - 1) * r - 1) // s + 1
        for n, g, p, k, r, s in zip(sizes, gaps, pads, window, rates, strides, strict=True)
    )
    if any(isinstance(n, int) and n < 1 for n in (*lhs.shape, *rhs.shape, *result)):
        return None
    return Conv(
        tuple(specs.lhs_spec),
        tuple(specs.rhs_spec),
        tuple(specs.out_spec),
        sizes,
        window,
        result,
        tuple(strides),
        pads,
        tuple(gaps),
        tuple(rates),
        params["feature_group_count"],
        params["batch_group_count"],
        params["precision"],
        params["preferred_element_type"] or lhs.dtype,
    )


def transposed(x: Any, order: Sequence[int]) -> Any:
    """Transposes, unless the order is the one that there is."""
    return x if tuple(order) == tuple(range(x.ndim)) else lax.transpose(x, tuple(order))


def respec(x: Any, have: Sequence[int], want: Sequence[int]) -> Any:
    """Moves dimensions: ``have`` and ``want`` give the places of the same named dimensions."""
    order = [0] * x.ndim
    for source, target in zip(have, want, strict=True):
        order[target] = source
    return transposed(x, order)


def cut(x: Any, dims: Sequence[int], starts: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> Any:
    """Slices some dimensions: ``counts`` values from ``starts`` in ``steps``."""
    firsts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for dim, start, count, step in zip(dims, starts, counts, steps, strict=True):
        firsts[dim], limits[dim], strides[dim] = start, start + (count - 1) * step + 1, step
    whole = not any(firsts) and all(s == 1 for s in strides) and tuple(limits) == tuple(x.shape)
    return x if whole else lax.slice(x, firsts, limits, strides)


def pad(x: Any, dims: Sequence[int], pads: Sequence[tuple[int, int]], gaps: Sequence[int] | None = None) -> Any:
    """Pads some dimensions with zeros, negatively where a pad is negative, with gaps between values."""
    config = [(0, 0, 0)] * x.ndim
    for i, dim in enumerate(dims):
        config[dim] = (*pads[i], (gaps[i] - 1) if gaps else 0)
    return x if all(c == (0, 0, 0) for c in config) else lax.pad(x, np.zeros((), x.dtype), config)


def taps(window: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yields the places of a window, the last index moving fastest."""
    return itertools.product(*map(range, window))


def interleave(parts: Sequence[Any], places: Sequence[int], gaps: Sequence[int], sizes: Sequence[int]) -> Any:
    """Joins phases: value ``q`` of phase ``p`` goes to ``q * gap + p``.

    Args:
      parts: arrays of one shape, the phase of the last dimension moving fastest.
      places: the dimensions that have phases.
      gaps: how many phases each has.
      sizes: sizes of these dimensions in the result; what is beyond is cut off.
    """
    for dim, gap, size in reversed(list(zip(places, gaps, sizes, strict=True))):
        joined = []
        for i in range(0, len(parts), gap):
            group = parts[i : i + gap]
            if gap > 1:
                shape = tuple(n * gap if d == dim else n for d, n in enumerate(group[0].shape))
                group = [lax.reshape(jnp.stack(group, dim + 1), shape)]
            joined.append(lax.slice_in_dim(group[0], 0, size, 1, dim))
        parts = joined
    return parts[0]


def is_plain(specs: Any) -> bool:
    """Whether dimensions are in the order that XLA's code for convolutions on CPU is written for, channels last."""
    rank = len(specs.out_spec) - 2
    values, kernel = (0, rank + 1, *range(1, rank + 1)), (rank + 1, rank, *range(rank))
    return tuple(specs.lhs_spec) == tuple(specs.out_spec) == values and tuple(specs.rhs_spec) == kernel


def plain(lhs: Any, rhs: Any, **params: Any) -> Any:
    """Returns the primitive's result, with dimensions in the order of `is_plain`.

    XLA brings them into this order by itself, but not inside loops: there it takes ten and more times as long for the
    gradient by the input, whose kernel has its channels exchanged.
    """
    specs, rank = params["dimension_numbers"], lhs.ndim - 2
    if is_plain(specs) or params["batch_group_count"] > 1:
        return lax.conv_general_dilated_p.bind(lhs, rhs, **params)
    values, kernel = (0, rank + 1, *range(1, rank + 1)), (rank + 1, rank, *range(rank))
    lhs, rhs = respec(lhs, specs.lhs_spec, values), respec(rhs, specs.rhs_spec, kernel)
    ordered = {**params, "dimension_numbers": lax.ConvDimensionNumbers(values, kernel, values)}
    return respec(lax.conv_general_dilated_p.bind(lhs, rhs, **ordered), values, specs.out_spec)


def product(a: Any, b: Any, contract: tuple[tuple[int, ...], tuple[int, ...]], conv: Conv, wide: Any) -> Any:
    """Returns a matrix product over the dimensions of ``contract``, summed in ``wide``."""
    return lax.dot_general(a, b, (contract, ((), ())), precision=conv.precision, preferred_element_type=wide)


def sum_of_products(a: Any, b: Any, contract: tuple[tuple[int, ...], tuple[int, ...]], conv: Conv, wide: Any) -> Any:
    """Returns what `product` does, from whichever side has less to lay out anew.

    XLA writes the left operand with the dimensions that are summed last, the right one with them first: what is laid
    out anew is computed in that order too, with everything that it is made of, which takes ten times as long.
    """
    if not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return product(a, b, contract, conv, wide)
    kept = a.ndim - len(contract[0])

    def moved(x: Any, dims: tuple[int, ...], last: bool) -> int:
        places = [d for d, n in enumerate(x.shape) if n > 1]
        dims = tuple(d for d in dims if x.shape[d] > 1)
        at = places[len(places) - len(dims) :] if last else places[: len(dims)]
        return 0 if dims == tuple(at) else math.prod(x.shape)

    straight = moved(a, contract[0], True) + moved(b, contract[1], False)
    turned = moved(b, contract[1], True) + moved(a, contract[0], False)
    if turned >= straight:
        return product(once(a) if moved(a, contract[0], True) else a, b, contract, conv, wide)
    if isinstance(conv.precision, tuple):
        conv = dataclasses.replace(conv, precision=conv.precision[::-1])
    found = product(once(b) if moved(b, contract[1], True) else b, a, (contract[1], contract[0]), conv, wide)
    return transposed(found, (*range(found.ndim - kept, found.ndim), *range(found.ndim - kept)))


def place_of(index: Any, counts: Sequence[int], steps: Sequence[int]) -> list[Any]:
    """Returns where a loop stands that counts places row by row: each coordinate times its step, as int32."""
    starts: list[Any] = []
    # For few places (index * ceil(2**12 / n)) >> 12 is exact: XLA fuses it, not a division.
    few = math.prod(counts) <= _FEW_PLACES
    for count, step in reversed(list(zip(counts, steps, strict=True))):
        if few:
            outer = lax.shift_right_logical(index * np.int32(-(-4096 // count)), np.int32(12))
        else:
            outer = lax.div(index, np.int32(count))
        starts.insert(0, (index - outer * np.int32(count)) * np.int32(step))
        index = outer
    return starts
