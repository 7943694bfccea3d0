"""Static and traced values: predicates, shape vectors, axes, handles of variables."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.jaxprs.compat import is_traced
from tf2jax_lite.support.errors import OpError

from .symbolic_float import FloatDim, is_float_dim

LOCAL = "<local>/"
"""Prefix of the names of resources that live for one call of the converted function, such as stacks."""

OF_ASSIGNMENT = "_of_assignment"
"""Attribute of nodes that read the result of a TF1 assignment, which TensorFlow does not differentiate."""


_INTEGER_DTYPE = "integer dtype"  # metadata of object dtypes: the dtype that TensorFlow has there


class _Unknown:
    """A traced value in evaluation by NumPy, such as trip-count inference."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


class Resource:
    """A resource tensor: the handle of a variable or TensorArray, or a lookup table."""


@dataclasses.dataclass(frozen=True)
class VariableHandle(Resource):
    """A resource tensor: the name of a variable. The value lives in the trace's state."""

    name: str
    dtype: np.dtype | None = None
    shape: tuple[int | None, ...] | None = None


def canonical(dtype: Any) -> np.dtype:
    """Return the dtype that JAX uses for ``dtype``.

    It is the same in 64-bit mode, else the one of 32 bits.
    """
    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def is_static(value: Any) -> bool:
    """Return whether a value is static: a NumPy array or scalar."""
    return isinstance(value, (np.ndarray, np.generic))


def is_foldable(value: Any) -> bool:
    """Return whether NumPy alone can evaluate ops on a value.

    Such a value is static, or a list of static length.
    """
    return is_static(value) or bool(getattr(value, "is_foldable", False))


def is_string(value: Any) -> bool:
    """Return whether a value holds string data (an object array of bytes)."""
    return isinstance(value, np.ndarray) and value.dtype == object and any(isinstance(v, bytes) for v in value.flat)


def is_symbolic(value: Any) -> bool:
    """Return whether a static value holds symbolic dimensions.

    It is then an object array of them and of ints.
    """
    return isinstance(value, np.ndarray) and value.dtype == object and not is_string(value)


def dims_array(shape: Any, dtype: Any = np.int32) -> np.ndarray:
    """Return a shape as a static vector of ``dtype``, or of objects if symbolic."""
    shape = tuple(shape)
    if all(isinstance(d, (int, np.integer)) for d in shape):
        return np.array(shape, dtype)
    out = np.empty(len(shape), dtype=dims_dtype(dtype))
    out[:] = shape
    return out


@functools.cache
def dims_dtype(dtype: Any) -> np.dtype:
    """Return the object dtype of static vectors that hold symbolic dimensions.

    It stands for integers of ``dtype``.
    """
    return np.dtype(object, metadata={_INTEGER_DTYPE: np.dtype(dtype)})


def dims(value: Any) -> Shape:
    """Return static dimensions as a tuple of ints and symbolic dimensions."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu":
        return tuple(value.reshape(-1).tolist())
    return tuple(int(d) if isinstance(d, (int, np.integer)) else d for d in np.asarray(value).reshape(-1))


def static_value(value: Any) -> np.ndarray | None:
    """Return a static value, or a concrete array outside ``jit``, as NumPy; else None."""
    if is_static(value):
        return np.asarray(value)
    if isinstance(value, jax.Array) and not is_traced(value):
        return np.asarray(value)
    return None


def as_array(value: Any) -> Any:
    """Return a value as an operand of ``jax.lax``.

    It has a canonical dtype, and arrays in place of symbolic dimensions.

    Traced values and handles are returned unchanged; NumPy values stay NumPy.
    """
    if not is_static(value):
        return value
    if value.dtype == object:
        if is_string(value) or value.size == 0:
            raise OpError("string data reaches a computation that JAX would have to trace; JAX has no string arrays")
        default = np.float32 if is_float_dim(value) else np.int64
        dtype = canonical((value.dtype.metadata or {}).get(_INTEGER_DTYPE, default))
        flat = [v.traced(dtype) if isinstance(v, FloatDim) else jnp.asarray(v, dtype) for v in value.reshape(-1)]
        return jnp.stack(flat).reshape(value.shape) if value.ndim else flat[0]
    dtype = canonical(value.dtype)
    return np.asarray(value) if dtype == value.dtype else np.asarray(value).astype(dtype)


def normalize_axis(axis: Any, rank: int) -> int:
    """Return ``axis`` as an int in ``[0, rank)``."""
    axis = int(axis)
    if not -rank <= axis < rank:
        raise OpError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank if rank else 0


def normalize_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Return static ``axes`` as ints in ``[0, rank)``, in the given order."""
    return tuple(normalize_axis(axis, rank) for axis in np.asarray(axes).reshape(-1))


Array: TypeAlias = jax.Array
"""A traced or concrete JAX array."""


Dim: TypeAlias = Any
"""A dimension: an int, or a symbolic dimension of `jax.export`, which has the operators of an int."""

Shape: TypeAlias = tuple[Dim, ...]


DType: TypeAlias = np.dtype[Any]
