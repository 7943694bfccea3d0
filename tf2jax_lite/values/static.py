"""What flows between ops while tracing: static numpy values, traced arrays, and handles."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.errors import OpError

from .symbolic_float import RealSize, is_real_size

__all__ = [
    "LOCAL",
    "OF_ASSIGNMENT",
    "UNKNOWN",
    "VariableHandle",
    "as_array",
    "canonical",
    "dims",
    "dims_array",
    "is_host",
    "is_static",
    "is_string",
    "is_symbolic",
    "known",
    "normalize_axes",
    "normalize_axis",
]


LOCAL = "<local>/"
"""How the names of resources begin that live as long as one call of the converted function, such as stacks."""

OF_ASSIGNMENT = "_of_assignment"
"""Attribute of nodes that read what a TF1 assignment returns, which TensorFlow takes no gradient of."""


_STANDS_FOR = "stands for"  # in the metadata of a dtype of objects: the integers that TensorFlow has there


class _Unknown:
    """What stands for a traced value where numpy alone runs, as in counting a loop's iterations."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


@dataclasses.dataclass(frozen=True)
class VariableHandle:
    """What a resource tensor is here: the name of a variable. The value lives in the trace's state."""

    name: str
    dtype: np.dtype | None = None
    shape: tuple[int | None, ...] | None = None


def canonical(dtype: Any) -> np.dtype:
    """Returns the dtype that JAX gives ``dtype``: the same with x64, its 32-bit sibling without."""
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def is_static(value: Any) -> bool:
    """Whether a value is known while tracing: numpy arrays and numpy scalars are."""
    return isinstance(value, (np.ndarray, np.generic))


def is_host(value: Any) -> bool:
    """Whether numpy alone can go on with a value: static ones, and lists of which at least the length is known."""
    return is_static(value) or bool(getattr(value, "is_host", False))


def is_string(value: Any) -> bool:
    """Whether a value holds string data (an object array of bytes)."""
    return isinstance(value, np.ndarray) and value.dtype == object and any(isinstance(v, bytes) for v in value.flat)


def is_symbolic(value: Any) -> bool:
    """Whether a static value holds symbolic dimensions (an object array of dimension expressions and ints)."""
    return isinstance(value, np.ndarray) and value.dtype == object and not is_string(value)


def dims_array(shape: Any, dtype: Any = np.int32) -> np.ndarray:
    """Returns a shape as a static vector: integers of ``dtype``, or objects if a dimension is symbolic."""
    shape = tuple(shape)
    if all(isinstance(d, (int, np.integer)) for d in shape):
        return np.array(shape, dtype)
    out = np.empty(len(shape), dtype=of_sizes(dtype))
    out[:] = shape
    return out


@functools.cache
def of_sizes(dtype: Any) -> np.dtype:
    """Returns the dtype of static vectors with symbolic dimensions: objects that stand for integers of ``dtype``."""
    return np.dtype(object, metadata={_STANDS_FOR: np.dtype(dtype)})


def dims(value: Any) -> tuple[Any, ...]:
    """Returns a static vector (or scalar) of dimensions as a tuple of Python ints and dimension expressions."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return tuple(value.reshape(-1).tolist())
    return tuple(int(d) if isinstance(d, (int, np.integer)) else d for d in np.asarray(value).reshape(-1))


def known(value: Any) -> np.ndarray | None:
    """Returns a value as numpy if it is known now (static, or a concrete array outside ``jit``), else None."""
    if is_static(value):
        return np.asarray(value)
    if isinstance(value, jax.Array) and not is_traced(value):
        return np.asarray(value)
    return None


def as_array(value: Any) -> Any:
    """Returns a value as something that ``jax.lax`` takes: canonical dtype, symbolic dimensions made arrays.

    Traced values and handles come back as they are; numpy values stay numpy.

    Raises:
      OpError: the value is string data, which JAX cannot hold.
    """
    if not is_static(value):
        return value
    if value.dtype == object:
        if is_string(value) or value.size == 0:
            raise OpError("string data reaches a computation that JAX would have to trace; JAX has no string arrays")
        meant = np.float32 if is_real_size(value) else np.int64  # if nothing says it
        dtype = canonical((value.dtype.metadata or {}).get(_STANDS_FOR, meant))
        flat = [v.traced(dtype) if isinstance(v, RealSize) else jnp.asarray(v, dtype) for v in value.reshape(-1)]
        return jnp.stack(flat).reshape(value.shape) if value.ndim else flat[0]
    dtype = canonical(value.dtype)
    return np.asarray(value) if dtype == value.dtype else np.asarray(value).astype(dtype)


def normalize_axis(axis: Any, rank: int) -> int:
    """Returns ``axis`` as an int in ``[0, rank)``.

    Raises:
      OpError: it is out of range.
    """
    axis = int(axis)
    if not -rank <= axis < rank:
        raise OpError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank if rank else 0


def normalize_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Returns ``axes`` (a static scalar or vector) as ints in ``[0, rank)``, in the given order."""
    return tuple(normalize_axis(axis, rank) for axis in np.asarray(axes).reshape(-1))
