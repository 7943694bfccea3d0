"""Primitives that change dynamic dimensions; `evaluator` removes them.

They stand in jaxprs that `driver` traces with symbolic dimensions, and never reach XLA or a stored artifact.
"""

from __future__ import annotations

from typing import Any

from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, ShapedArray, max_dim, register

truncate_p = Primitive("truncate")
"""Keep the first ``count`` rows of an array.

Operands: the array and ``count``, an int32 scalar. Parameters: ``dim``, the first dimension of the result; ``name``,
the variable that this equation defines as ``dim + 1`` (a variable is at least 1, a size at least 0), or "" where
``count`` is assumed to equal ``dim``; ``is_sure``, whether ``count`` never exceeds the capacity. If ``count`` is a
constant, the array is known to have ``dim`` rows.
"""


@truncate_p.def_abstract_eval
def _truncated(data: Any, count: Any, *, dim: Any, name: str, is_sure: bool) -> Any:
    del count, name, is_sure
    return ShapedArray((dim, *data.shape[1:]), data.dtype)


dynamic_reshape_p = Primitive("dynamic_reshape")
"""Reshape where JAX cannot prove that dimensions are not negative, or that both shapes have as many elements.

Parameters: ``shape``, of the result; ``real``, the same with products in terms of their factors; ``names``, for each
dimension the variable that this equation defines as the dimension plus 1, else "".
"""


@dynamic_reshape_p.def_abstract_eval
def _reshaped(x: Any, *, shape: Any, real: Any, names: Any) -> Any:
    del real, names
    return x.update(shape=shape)


extend_p = Primitive("extend")
"""Pad an array at the end of ``axis``, so that it is at least ``least`` long."""


@extend_p.def_abstract_eval
def _extended(x: Any, *, axis: int, least: Any) -> Any:
    return x.update(shape=(*x.shape[:axis], max_dim(x.shape[axis], least), *x.shape[axis + 1 :]))


def _batched(args: Any, dims: Any, *, axis: int, least: Any) -> Any:
    return extend_p.bind(*args, axis=axis + (axis >= dims[0]), least=least), dims[0]


register(
    extend_p,
    linear=lambda ct, x, *, axis, least: [lax.slice_in_dim(ct, 0, x.aval.shape[axis], axis=axis)],
    batch=_batched,
)
