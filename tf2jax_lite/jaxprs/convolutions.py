"""The parameters of a convolution, and the array operations to compute one."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

_FEW_POSITIONS = 64


@dataclasses.dataclass(frozen=True)
class ConvParams:
    """One convolution; spatial entries in the specs' order.

    Attributes:
      lhs_spec, rhs_spec, out_spec: axes of (batch, feature, spatial...); for ``rhs`` of (out, in, spatial...).
      sizes, window, result: spatial sizes of the input, the kernel and the output.
      strides, pads, lhs_dilation, rhs_dilation: as ``lax.conv_general_dilated`` takes them.
      groups, batch_groups: of features and of the batch.
      batch, in_channels, out_channels: sizes of ``lhs`` and, the last, of ``rhs``; may be symbolic, the last may not.
      dtype, out_dtype: of the operands and of the result.
      precision: of products.
      keywords: the primitive's parameters, as given.
      lower: computes a convolution; takes operands and the primitive's parameters.
    """

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]
    sizes: tuple[int, ...]
    window: tuple[int, ...]
    result: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    groups: int
    batch_groups: int
    batch: Any
    in_channels: Any
    out_channels: Any
    dtype: Any
    out_dtype: Any
    precision: Any = None
    keywords: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    lower: Callable[..., Any] | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.window)

    @property
    def products(self) -> int:
        """The number of multiplications, with padding; a symbolic batch counts as 1."""
        sizes = [n if isinstance(n, int) else 1 for n in (self.batch, self.in_channels)]
        all_of = math.prod((*sizes, self.out_channels, *self.result, *self.window))
        return all_of // (self.groups * self.batch_groups)

    @property
    def has_lhs_dilation(self) -> bool:
        """Whether there are zeros between the input's values."""
        return max(self.lhs_dilation) > 1

    @property
    def sum_dtype(self) -> Any:
        """The dtype that products are summed in."""
        return sum_dtype(self.dtype)

    def convolve(self, lhs: Any, rhs: Any, **changes: Any) -> Any:
        """Return a convolution by `lower`, with ``changes`` of parameters."""
        assert self.lower is not None
        return self.lower(lhs, rhs, **{**self.keywords, **changes})


def sum_dtype(dtype: Any) -> Any:
    """Return the dtype of sums: float32 for half precision."""
    return np.float32 if jnp.finfo(dtype).bits < 32 else dtype


def conv_params(lhs: Any, rhs: Any, keywords: Mapping[str, Any], lower: Any = None) -> ConvParams | None:
    """Return the parameters, or None for symbolic or zero spatial sizes.

    Args:
      lhs: the input, or its shape and dtype.
      rhs: the kernel, likewise.
      keywords: parameters of ``lax.conv_general_dilated_p``.
      lower: `ConvParams.lower`.
    """
    specs = keywords["dimension_numbers"]
    sizes = tuple(lhs.shape[i] for i in specs.lhs_spec[2:])
    window = tuple(rhs.shape[i] for i in specs.rhs_spec[2:])
    pads = tuple(tuple(pair) for pair in keywords["padding"])
    numbers = (*sizes, *window, *itertools.chain(*pads))  # the others may be symbolic
    if not all(isinstance(n, int) for n in numbers):
        return None
    strides, gaps, steps = keywords["window_strides"], keywords["lhs_dilation"], keywords["rhs_dilation"]
    result = tuple(
        ((n - 1) * g + 1 + sum(p) - (k - 1) * r - 1) // s + 1
        for n, g, p, k, r, s in zip(sizes, gaps, pads, window, steps, strides, strict=True)
    )
    if any(isinstance(n, int) and n < 1 for n in (*lhs.shape, *rhs.shape, *result)):
        return None
    return ConvParams(
        lhs_spec=tuple(specs.lhs_spec),
        rhs_spec=tuple(specs.rhs_spec),
        out_spec=tuple(specs.out_spec),
        sizes=sizes,
        window=window,
        result=result,
        strides=tuple(strides),
        pads=pads,
        lhs_dilation=tuple(gaps),
        rhs_dilation=tuple(steps),
        groups=keywords["feature_group_count"],
        batch_groups=keywords["batch_group_count"],
        batch=lhs.shape[specs.lhs_spec[0]],
        in_channels=lhs.shape[specs.lhs_spec[1]],
        out_channels=rhs.shape[specs.rhs_spec[0]],
        dtype=lhs.dtype,
        out_dtype=keywords["preferred_element_type"] or lhs.dtype,
        precision=keywords["precision"],
        keywords=keywords,
        lower=lower,
    )


def transpose(x: Any, order: Sequence[int]) -> Any:
    """Transpose, unless the order is the present one."""
    return x if tuple(order) == tuple(range(x.ndim)) else lax.transpose(x, tuple(order))


def reorder(x: Any, have: Sequence[int], want: Sequence[int]) -> Any:
    """Transpose named dimensions from the axes ``have`` to ``want``."""
    order = [0] * x.ndim
    for source, target in zip(have, want, strict=True):
        order[target] = source
    return transpose(x, order)


def strided_slice(
    x: Any, dims: Sequence[int], starts: Sequence[int], counts: Sequence[int], steps: Sequence[int] | None = None
) -> Any:
    """Slice dimensions: ``counts`` values from ``starts``, in ``steps`` (of 1)."""
    firsts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for dim, start, count, step in zip(dims, starts, counts, steps or [1] * len(dims), strict=True):
        firsts[dim], limits[dim], strides[dim] = start, start + (count - 1) * step + 1, step
    unchanged = not any(firsts) and all(s == 1 for s in strides) and tuple(limits) == tuple(x.shape)
    return x if unchanged else lax.slice(x, firsts, limits, strides)


def pad(x: Any, dims: Sequence[int], pads: Sequence[tuple[int, int]], dilation: Sequence[int] | None = None) -> Any:
    """Pad dimensions with zeros, negatively as well, and between by dilation."""
    config = [(0, 0, 0)] * x.ndim
    for i, dim in enumerate(dims):
        config[dim] = (*pads[i], (dilation[i] - 1) if dilation else 0)
    return x if all(c == (0, 0, 0) for c in config) else lax.pad(x, np.zeros((), x.dtype), config)


def taps(window: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a kernel's taps, the last index fastest."""
    return itertools.product(*map(range, window))


def interleave(parts: Sequence[Any], dims: Sequence[int], periods: Sequence[int], sizes: Sequence[int]) -> Any:
    """Join phases: value ``q`` of phase ``p`` goes to ``q * period + p``.

    Args:
      parts: arrays of one shape, the phase of the last dimension fastest.
      dims: the dimensions that have phases.
      periods: how many phases each has.
      sizes: of these dimensions in the result; values beyond are dropped.
    """
    for dim, period, size in reversed(list(zip(dims, periods, sizes, strict=True))):
        joined = []
        for i in range(0, len(parts), period):
            group = parts[i : i + period]
            if period > 1:
                shape = tuple(n * period if d == dim else n for d, n in enumerate(group[0].shape))
                group = [lax.reshape(jnp.stack(group, dim + 1), shape)]
            joined.append(lax.slice_in_dim(group[0], 0, size, 1, dim))
        parts = joined
    return parts[0]


def dot(a: Any, b: Any, contract: tuple[tuple[int, ...], tuple[int, ...]], conv: ConvParams) -> Any:
    """Return a matrix product over ``contract``, in the dtype of sums."""
    return lax.dot_general(a, b, (contract, ((), ())), precision=conv.precision, preferred_element_type=conv.sum_dtype)


def unravel_index(index: Any, counts: Sequence[int], steps: Sequence[int]) -> list[Any]:
    """Return a loop index's coordinates, last fastest, times steps, as int32."""
    starts: list[Any] = []
    # For few positions (index * ceil(2**12 / n)) >> 12 is exact: XLA fuses it, not a division.
    few = math.prod(counts) <= _FEW_POSITIONS
    for count, step in reversed(list(zip(counts, steps, strict=True))):
        if few:
            outer = lax.shift_right_logical(index * np.int32(-(-4096 // count)), np.int32(12))
        else:
            outer = lax.div(index, np.int32(count))
        starts.insert(0, (index - outer * np.int32(count)) * np.int32(step))
        index = outer
    return starts
