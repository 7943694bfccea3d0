"""Reader of the XLA protos in attributes of Xla* ops, without TensorFlow.

Field numbers are those of xla/xla_data.proto.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
from jax import lax

from tf2jax_lite.support.errors import OpError

Fields = Mapping[int, list[int]]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise OpError("a serialized proto in an attribute is damaged")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value - (1 << 64) if value >= 1 << 63 else value, position


def fields(text: str, *wanted: int) -> Fields:
    """Return integer fields, maybe packed, of a serialized proto by number."""
    data = text.encode("utf-8", "surrogateescape")
    found: dict[int, list[int]] = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        items = found.setdefault(number, [])
        if kind == 0:
            value, position = _varint(data, position)
            items.append(value)
        elif kind == 2:
            size, position = _varint(data, position)
            end = position + size
            if size < 0 or end > len(data):
                raise OpError("a serialized proto in an attribute is damaged")
            if wanted and number not in wanted:
                position = end
            while position < end:
                value, position = _varint(data, position)
                items.append(value)
        else:
            raise OpError(f"a serialized proto in an attribute has a field of wire type {kind}")
    return found


def _one(found: Fields, number: int) -> int:
    values = found.get(number)
    return values[-1] if values else 0


def _all(found: Fields, number: int) -> tuple[int, ...]:
    return tuple(found.get(number, ()))


def precision(text: str) -> tuple[lax.Precision, lax.Precision] | None:
    """Return both operands' precisions in a PrecisionConfig; None is the default."""
    levels = (lax.Precision.DEFAULT, lax.Precision.HIGH, lax.Precision.HIGHEST)
    chosen = _all(fields(text, 1), 1)
    if not any(chosen):
        return None
    if len(chosen) != 2 or max(chosen) > 2:
        raise OpError(f"operand precisions {chosen} are not supported")
    return levels[chosen[0]], levels[chosen[1]]


def conv_numbers(text: str) -> lax.ConvDimensionNumbers:
    """Return a ConvolutionDimensionNumbers."""
    found = fields(text)
    return lax.ConvDimensionNumbers(
        lhs_spec=(_one(found, 7), _one(found, 8), *_all(found, 11)),
        rhs_spec=(_one(found, 4), _one(found, 3), *_all(found, 6)),
        out_spec=(_one(found, 9), _one(found, 10), *_all(found, 12)),
    )


def dot_numbers(text: str) -> jax.lax.DotDimensionNumbers:
    """Return a DotDimensionNumbers as an argument of `jax.lax.dot_general`."""
    found = fields(text)
    return (_all(found, 1), _all(found, 2)), (_all(found, 3), _all(found, 4))


def gather_fields(text: str) -> tuple[lax.GatherDimensionNumbers, int]:
    """Return a GatherDimensionNumbers, and the index vector dimension."""
    found = fields(text)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=_all(found, 1),
        collapsed_slice_dims=_all(found, 2),
        start_index_map=_all(found, 3),
        operand_batching_dims=_all(found, 5),
        start_indices_batching_dims=_all(found, 6),
    )
    return numbers, _one(found, 4)


def scatter_fields(text: str) -> tuple[lax.ScatterDimensionNumbers, int]:
    """Return a ScatterDimensionNumbers, and the index vector dimension."""
    found = fields(text)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=_all(found, 1),
        inserted_window_dims=_all(found, 2),
        scatter_dims_to_operand_dims=_all(found, 3),
        operand_batching_dims=_all(found, 5),
        scatter_indices_batching_dims=_all(found, 6),
    )
    return numbers, _one(found, 4)
