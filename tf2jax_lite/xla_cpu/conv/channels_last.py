"""Convolutions with channels last, XLA:CPU's order."""

from __future__ import annotations

from typing import Any

from jax import lax

from tf2jax_lite.jaxprs.convolutions import ConvParams, reorder


def _channels_last(rank: int) -> lax.ConvDimensionNumbers:
    values = (0, rank + 1, *range(1, rank + 1))
    return lax.ConvDimensionNumbers(values, (rank + 1, rank, *range(rank)), values)


def is_channels_last(specs: Any) -> bool:
    """Return whether dimensions are in XLA:CPU's order for convolutions."""
    wanted = _channels_last(len(specs.out_spec) - 2)
    return all(tuple(getattr(specs, name)) == getattr(wanted, name) for name in ("lhs_spec", "rhs_spec", "out_spec"))


def convolve_channels_last(lhs: Any, rhs: Any, **keywords: Any) -> Any:
    """Return the primitive's result, computed with channels last.

    XLA brings dimensions into this order by itself, but not inside loops: there it takes ten and more times as long for
    the input gradient, whose kernel has its channels exchanged.
    """
    specs = keywords["dimension_numbers"]
    if is_channels_last(specs) or keywords["batch_group_count"] > 1:
        return lax.conv_general_dilated_p.bind(lhs, rhs, **keywords)
    wanted = _channels_last(lhs.ndim - 2)
    lhs, rhs = reorder(lhs, specs.lhs_spec, wanted.lhs_spec), reorder(rhs, specs.rhs_spec, wanted.rhs_spec)
    out = lax.conv_general_dilated_p.bind(lhs, rhs, **{**keywords, "dimension_numbers": wanted})
    return reorder(out, wanted.out_spec, specs.out_spec)


def convolve_directly(lhs: Any, rhs: Any, conv: ConvParams, **changes: Any) -> Any:
    """Return the primitive's own result, with ``changes`` of parameters."""
    return convolve_channels_last(lhs, rhs, **{**conv.keywords, **changes})
