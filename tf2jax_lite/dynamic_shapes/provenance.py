"""Provenance of a small vector's entries: static, or a traced scalar + offset.

A slice such as ``x[:2, i:i + 3]`` gets its bounds as vectors packed from constants and traced scalars. Its size is
static if the bounds are, or if they are one traced scalar with different offsets. JAX's tracers refer to the equations
that computed them (`equation_of`), which this module follows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import constant_of, equation_of, identity_of
from tf2jax_lite.values.static import dims, static_value

FORWARDING = ("broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "copy", "copy_p")
_PURE = ("add", "sub", "mul", "neg", "div", "rem", "min", "max", "convert_element_type", "dim_as_value")
_OF_ARRAYS = ("reduce_max", "reduce_min", "reduce_sum", "slice", "squeeze")
_OF_VECTORS = {"reduce_max": max, "reduce_min": min, "reduce_sum": sum, "reduce_prod": math.prod}
_MAX_DEPTH = 32
_MAX_LENGTH = 32
_MAX_NAME = 6


@dataclasses.dataclass(frozen=True)
class Entry:
    """One integer: ``base + offset``, or ``offset`` (int or dimension) without base."""

    base: Any
    offset: Any

    @property
    def is_known(self) -> bool:
        """Return whether the value is static."""
        return self.base is None

    def minus(self, other: Entry) -> Any:
        """Return the difference if it is static, else None."""
        same = self.base is other.base or (self.base is not None and name_of(self.base) == name_of(other.base))
        return self.offset - other.offset if same else None


def entries(vector: Any, length: int) -> list[Entry]:
    """Return the entries of a vector."""
    found = static_value(vector)
    if found is not None:
        return [Entry(None, d) for d in dims(found)]
    return _vector(vector, length, 0) or [Entry((vector, i), 0) for i in range(length)]


def name_of(base: Any) -> Any:
    """Return a traced scalar's identity: the expression that computes it."""
    if isinstance(base, tuple):
        return (name_of(base[0]), base[1])
    return _structure(base, 0)


def _structure(tracer: Any, depth: int) -> Any:
    value = constant_of(tracer)
    if value is not None and value.ndim == 0:
        return value.item()
    name, operands, params = equation_of(tracer)
    whole = name in _PURE and all(getattr(o, "ndim", 1) == 0 for o in operands)
    if depth < _MAX_NAME and (whole or name in _OF_ARRAYS):
        return (name, str(params), *(_structure(o, depth + 1) for o in operands))
    return identity_of(tracer)


def value_of(entry: Entry) -> Any:
    """Return the traced scalar of an entry."""
    base = entry.base
    if isinstance(base, tuple):
        base = lax.index_in_dim(base[0], base[1], keepdims=False)
    if isinstance(entry.offset, int) and entry.offset == 0:
        return base
    return lax.add(base, lax.convert_element_type(entry.offset, base.dtype))


def moved_from(tracer: Any) -> Iterator[Any]:
    """Yield a value, and the earlier ones whose moved or cast elements it holds."""
    for _ in range(_MAX_DEPTH):
        yield tracer
        name, operands, _ = equation_of(tracer)
        if name not in (*FORWARDING, "slice", "transpose", "truncate"):
            return
        tracer = operands[0]


def column_sources(vector: Any) -> Iterator[Any]:
    """Yield a vector, and the earlier vectors that it was sliced from.

    Each of those became the first column of a matrix that was then sliced. Indices of a sparse tensor are packed and
    unpacked in this way.
    """
    current = vector
    for _ in range(_MAX_DEPTH):
        if current.ndim == 1:
            yield current
        name, operands, params = equation_of(current)
        if name == "concatenate" and current.ndim == 2 and params["dimension"] == 1 and operands[0].shape[1] == 1:
            pass
        elif name == "slice" and current.ndim == 2:
            whole = params["start_indices"] == (0, 0) and params["strides"] in (None, (1, 1))
            if not whole or current.shape != (operands[0].shape[0], 1):
                return
        elif name not in FORWARDING or math.prod(current.shape[1:]) != 1 or current.shape[0] != operands[0].shape[0]:
            return
        current = operands[0]
        if current.ndim not in (1, 2):
            return


def _vector(tracer: Any, length: int, depth: int) -> list[Entry] | None:
    value = constant_of(tracer)
    if value is not None:
        return [Entry(None, int(v)) for v in value.reshape(-1)] if value.dtype.kind in "iu" else None
    if depth > _MAX_DEPTH:
        return None
    name, operands, params = equation_of(tracer)
    if name == "stack" and all(o.ndim == 0 for o in operands):
        return [_scalar(o, depth + 1) for o in operands]
    if name == "concatenate":
        out: list[Entry] = []
        for part in operands:
            size = part.shape[0]
            if not isinstance(size, int):
                return None
            out += _vector(part, size, depth + 1) or [Entry((part, i), 0) for i in range(size)]
        return out
    if name == "slice" and operands[0].ndim == 1:
        inner = _static_entries(operands[0], depth + 1)
        steps = (params["strides"] or (1,))[0]
        selected = slice(params["start_indices"][0], params["limit_indices"][0], steps)
        return None if inner is None else _own(tracer, inner[selected])
    if name == "gather" and operands[0].ndim == 1 and params["mode"] == lax.GatherScatterMode.PROMISE_IN_BOUNDS:
        inner, indices = _static_entries(operands[0], depth + 1), source_constant(operands[1])
        if inner is None or indices is None or indices.size != length:
            return None
        return _own(tracer, [inner[int(index)] for index in indices.reshape(-1)])
    if length > 1 and name == "convert_element_type" and np.issubdtype(tracer.dtype, np.signedinteger):
        inner = _static_entries(operands[0], depth + 1)
        return None if inner is None else _own(tracer, inner)
    if length == 1 and name in FORWARDING and operands and operands[0].size == 1:
        inner = operands[0]
        return [_scalar(inner, depth + 1)] if inner.ndim == 0 else _vector(inner, 1, depth + 1)
    return None


def _own(vector: Any, static_entries: list[Entry | None]) -> list[Entry]:
    """Return the entries of a vector, given its static ones."""
    return [Entry((vector, i), 0) if entry is None else entry for i, entry in enumerate(static_entries)]


def source_constant(tracer: Any) -> Any:
    """Return the elements of a constant that was only reshaped or cast, else None."""
    for _ in range(_MAX_DEPTH):
        value = constant_of(tracer)
        if value is not None:
            return value
        name, operands, _ = equation_of(tracer)
        if name not in FORWARDING or operands[0].size != tracer.size:
            return None
        tracer = operands[0]
    return None


def _static_entries(vector: Any, depth: int) -> list[Entry | None] | None:
    """Return a vector's static entries, None for others; None if none is static."""
    size = vector.shape[0]
    found = _vector(vector, size, depth) if isinstance(size, int) and size <= _MAX_LENGTH else None
    static_entries = [entry if entry.is_known else None for entry in found or ()]
    return static_entries if any(static_entries) else None


def _scalar(tracer: Any, depth: int) -> Entry:
    value = constant_of(tracer)
    if value is not None and value.dtype.kind in "iu":
        return Entry(None, int(value))
    own = Entry(tracer, 0)
    if depth > _MAX_DEPTH or not np.issubdtype(tracer.dtype, np.signedinteger):
        return own
    name, operands, params = equation_of(tracer)
    if name == "dim_as_value" and "dim" in params:
        return Entry(None, params["dim"])
    if name in ("add", "sub") and all(getattr(o, "ndim", 1) == 0 for o in operands):
        left, right = (_scalar(o, depth + 1) for o in operands)
        if right.is_known:
            return Entry(left.base, left.offset + right.offset if name == "add" else left.offset - right.offset)
        if left.is_known and name == "add":
            return Entry(right.base, left.offset + right.offset)
    if name in _OF_VECTORS and operands[0].ndim == 1:
        inner = _static_entries(operands[0], depth + 1)
        if inner and all(e is not None and isinstance(e.offset, int) for e in inner):
            return Entry(None, _OF_VECTORS[name]([e.offset for e in inner if e is not None]))
    if name in ("reshape", "squeeze") and operands[0].ndim == 1:
        inner = _static_entries(operands[0], depth + 1)
        if inner and inner[0] is not None:
            return inner[0]
    if name in ("convert_element_type", "reshape", "squeeze") and operands and operands[0].ndim == 0:
        inner = operands[0]
        if np.issubdtype(inner.dtype, np.signedinteger):
            entry = _scalar(inner, depth + 1)
            # The base keeps the dtype of the vector, so that entries stay comparable across casts of one variable.
            return entry if entry.is_known or inner.dtype == tracer.dtype else own
    return own
