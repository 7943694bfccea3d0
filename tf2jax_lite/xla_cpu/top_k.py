"""The largest values of an axis, in order: by one 64-bit sort on CPU.

XLA's CPU backend sorts one array of numbers with code of its own, but calls a comparator for each pair where an index
goes with each value, as in ``lax.top_k`` of many. Packing both into one 64-bit integer takes a third to a fourth of the
time (two cores, JAX 0.10). JAX has no 64-bit arrays in its 32-bit mode, so they occur only inside of one operation.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, ir, mlir_dialect, register

from . import cost_model
from .rules import Rule, by_table, with_cpu_rules


def _is_packed(x: Any, *, k: Any, axis: int, **_: Any) -> bool:
    # Which NaN of 16 bits come first, XLA decides elsewhere; dynamic sizes cannot be packed.
    ordered = x.dtype == np.float32 or (jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize in (1, 2, 4))
    size = x.shape[axis]
    return (
        ordered
        and all(isinstance(d, int) for d in (k, *x.shape))
        and size > 1
        and k * cost_model.TOP_K_MAX_RATIO >= size
    )


def _ordered_bits(bits: Any) -> Any:
    """Turn a float's bits into an integer of the same order, and back."""
    return jnp.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def _key(x: Any) -> Any:
    """Return int32 that is the smaller the larger x."""
    if x.dtype == np.float32:
        x = _ordered_bits(lax.bitcast_convert_type(x, np.int32))
    elif x.dtype == np.uint32:
        x = lax.bitcast_convert_type(x ^ np.uint32(1 << 31), np.int32)
    return ~lax.convert_element_type(x, np.int32)


def _value(key: Any, dtype: Any) -> Any:
    key = ~key
    if dtype == np.float32:
        return lax.bitcast_convert_type(_ordered_bits(key), np.float32)
    if dtype == np.uint32:
        return lax.bitcast_convert_type(key, np.uint32) ^ np.uint32(1 << 31)
    return lax.convert_element_type(key, dtype)


def _packed_sort(x: Any, *, k: int, axis: int, **_: Any) -> Any:
    index = lax.broadcasted_iota(np.int32, x.shape, axis)
    pairs = _sort_pairs_p.bind(jnp.stack([index, _key(x)], axis=-1), axis=axis)
    index, key = (lax.slice_in_dim(pairs[..., i], 0, k, axis=axis) for i in range(2))
    return [_value(key, x.dtype), index]


RULES = (
    Rule(
        "top_k_packed_sort",
        _is_packed,
        _packed_sort,
        "XLA calls a comparator for each pair of (value, index); packed as 64-bit integers they sort fast.",
    ),
)


def _lower_sort_pairs(ctx: Any, pairs: Any, *, axis: int) -> Any:
    """Sort by operations that are built here, as their numbers have 64 bits."""
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


_sort_pairs_p = Primitive("sort_pairs")  # only in CPU lowerings
register(_sort_pairs_p, abstract=lambda pairs, *, axis: pairs, lowering=_lower_sort_pairs)

with_cpu_rules(lax.top_k_p, by_table(RULES))
