"""The largest along an axis, in order: one sort of whole numbers on CPU where many are wanted.

XLA's CPU backend sorts one array of numbers with code of its own, but calls a comparator for each pair where an index
goes with each value, as it does for ``lax.top_k`` of many. Packing both into one number of 64 bits takes a third to a
fourth of the time (two cores, JAX 0.10). Arrays of 64 bits are nothing that JAX has in its 32-bit mode, so that they
are only in what `ranked` is lowered to on CPU: its name, parameters and derivatives are those of ``lax.top_k``, as
which it is lowered elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, Zero, ir, mlir_dialect, register
from tf2jax_lite.jaxprs.shard_map import lower_fun

__all__ = ["ranked"]

_FEWEST = 8  # the axis' size over k: XLA finds fewer than that without sorting all


def ranked(x: Any, k: Any) -> tuple[Any, Any]:
    """Returns what ``lax.top_k`` does: the ``k`` largest along the last axis, and their places.

    Args:
      x: an array of any real dtype, and at least one dimension.
      k: how many; at most the size of the last axis.

    Returns:
      Values of ``x``'s dtype and int32 places, the last axis of both ``k`` long.
    """
    return tuple(_ranked.bind(x, k=k, axis=x.ndim - 1, **_other_params()))


@functools.cache
def _other_params() -> dict[str, Any]:
    """Returns what else the primitive has for a parameter: from JAX 0.11 on whether it is stable."""
    (equation,) = jax.make_jaxpr(lambda x: lax.top_k(x, 1))(jax.ShapeDtypeStruct((2,), np.float32)).eqns
    return {name: value for name, value in equation.params.items() if name not in ("k", "axis")}


def _plain(x: Any, **params: Any) -> Any:
    return lax.top_k_p.bind(x, **params)


def _packs(x: Any, k: Any, axis: int) -> bool:
    # Which NaN of 16 bits come first, XLA decides elsewhere; sizes that are unknown cannot be packed.
    ordered = x.dtype == np.float32 or (jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize in (1, 2, 4))
    size = x.shape[axis]
    return ordered and all(isinstance(d, int) for d in (k, *x.shape)) and size > 1 and k * _FEWEST >= size


def _flipped(bits: Any) -> Any:
    """Turns floating-point numbers' bits into whole numbers in the same order, and back."""
    return jnp.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def _key(x: Any) -> Any:
    """Returns int32 that is the smaller the larger x."""
    if x.dtype == np.float32:
        x = _flipped(lax.bitcast_convert_type(x, np.int32))
    elif x.dtype == np.uint32:
        x = lax.bitcast_convert_type(x ^ np.uint32(1 << 31), np.int32)
    return ~lax.convert_element_type(x, np.int32)


def _value(key: Any, dtype: Any) -> Any:
    key = ~key
    if dtype == np.float32:
        return lax.bitcast_convert_type(_flipped(key), np.float32)
    if dtype == np.uint32:
        return lax.bitcast_convert_type(key, np.uint32) ^ np.uint32(1 << 31)
    return lax.convert_element_type(key, dtype)


def _packed(x: Any, *, k: int, axis: int, **other: Any) -> Any:
    if not _packs(x, k, axis):
        return _plain(x, k=k, axis=axis, **other)
    place = lax.broadcasted_iota(np.int32, x.shape, axis)
    pairs = _pairs.bind(jnp.stack([place, _key(x)], axis=-1), axis=axis)
    place, key = (lax.slice_in_dim(pairs[..., i], 0, k, axis=axis) for i in range(2))
    return [_value(key, x.dtype), place]


def _lower_pairs(ctx: Any, pairs: Any, *, axis: int) -> Any:
    """Sorts by hand-written operations, as their numbers have 64 bits."""
    del ctx
    hlo = mlir_dialect("stablehlo")
    wide = ir.IntegerType.get_signless(64)
    shape = ir.RankedTensorType(pairs.type).shape[:-1]
    word, type_ = ir.RankedTensorType.get([], wide), ir.RankedTensorType.get(shape, wide)
    packed = hlo.BitcastConvertOp(type_, pairs).result
    sort = hlo.SortOp([type_], [packed], dimension=axis, is_stable=True)
    block = sort.regions[0].blocks.append(word, word)
    with ir.InsertionPoint(block):
        order, kind = hlo.ComparisonDirectionAttr.get("LT"), hlo.ComparisonTypeAttr.get("SIGNED")
        hlo.ReturnOp([hlo.CompareOp(block.arguments[0], block.arguments[1], order, compare_type=kind).result])
    return [hlo.BitcastConvertOp(pairs.type, sort.results[0]).result]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    values, places = _ranked.bind(*primals, **params)
    none = Zero(jax.typeof(places).to_tangent_aval())
    (tangent,) = tangents
    if isinstance(tangent, Zero):
        return (values, places), (Zero(jax.typeof(values).to_tangent_aval()), none)
    moved = jnp.take_along_axis(tangent, places, axis=params["axis"], mode="promise_in_bounds")
    return (values, places), (moved, none)


def _batched(args: Sequence[Any], dims: Sequence[Any], *, axis: int, **other: Any) -> tuple[Any, tuple[int, int]]:
    return _ranked.bind(jnp.moveaxis(args[0], dims[0], 0), axis=axis + 1, **other), (0, 0)


_pairs = Primitive("sort_pairs")  # only ever in what is lowered for CPU
register(_pairs, abstract=lambda pairs, *, axis: pairs, lowering=_lower_pairs)

_ranked = Primitive("top_k")  # its name and parameters are those of what it is on all platforms but one
register(
    _ranked,
    multiple_results=True,
    impl=lambda x, **params: jax.jit(lambda x: _ranked.bind(x, **params))(x),
    abstract=lax.top_k_p,
    jvp=_jvp,
    batch=_batched,
    lowering=lower_fun(_plain, multiple_results=True),
    cpu_lowering=lower_fun(_packed, multiple_results=True),
)
