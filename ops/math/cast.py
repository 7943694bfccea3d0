"""Casts and bitcasts.

Kernels: cast_op.cc, bitcast_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError
from tf2jax_lite.values.int64 import U32Pair, from_u32_pair, is_int64, to_32_bits, to_u32_pair
from tf2jax_lite.values.static import as_array, canonical, dims_dtype, is_string, is_symbolic
from tf2jax_lite.values.symbolic_float import FloatDim, is_float_dim, truncate_to_dim

# Low bits of the mantissa that a truncating cast clears before it rounds. TensorFlow rounds other pairs of dtypes.
_TRUNCATED = {("float64", "float32"): 29, ("float64", "float16"): 42, ("float32", "float16"): 13}
_TRUNCATED |= {("float32", "bfloat16"): 16, ("complex128", "complex64"): 29}


def _fold_cast(x: Any, *, DstT: Any, Truncate: bool) -> Any:
    x = np.asarray(x)
    if is_string(x):
        raise OpError("strings cannot be cast")
    if is_symbolic(x):
        return _fold_cast_of_sizes(x, np.dtype(DstT))
    given = x
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(DstT, jnp.complexfloating):
        x = np.real(x)
    to_integer = jnp.issubdtype(x.dtype, jnp.floating) and np.issubdtype(DstT, np.integer)
    if (Truncate and (x.dtype.name, np.dtype(DstT).name) in _TRUNCATED) or (to_integer and x.size):
        with np.errstate(invalid="ignore"):
            whole = x.astype(np.float64)
        limits = np.iinfo(DstT) if to_integer else None
        if limits is None or not np.all((whole > limits.min - 1.0) & (whole < limits.max + 1.0)):
            # NumPy's result outside of the range depends on the machine.
            return cast(as_array(given), DstT=DstT, Truncate=Truncate)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x.astype(DstT))


def _fold_cast_of_sizes(x: np.ndarray, dtype: np.dtype) -> Any:
    """Cast symbolic dimensions: symbolic as integers and floats, else arrays."""
    if dtype.kind in "iu" and not is_float_dim(x):
        return x
    if dtype.kind in "iu":
        change: Any = truncate_to_dim
    elif dtype.name in ("float32", "float64"):
        change = _as_real
    else:
        return cast(as_array(x), DstT=dtype)
    out = np.empty(x.shape, dims_dtype(dtype))
    out.flat[:] = [change(v) for v in x.flat]
    return out


def _as_real(size: Any) -> Any:
    return size if isinstance(size, (FloatDim, float, np.floating)) else FloatDim(size)


def _truncated(x: Any, bits: int) -> Any:
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(_truncated(lax.real(x), bits), _truncated(lax.imag(x), bits))
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    mask = np.array((1 << 8 * x.dtype.itemsize) - (1 << bits), unsigned)
    cleared_bits = lax.bitwise_and(lax.bitcast_convert_type(x, unsigned), jnp.broadcast_to(mask, x.shape))
    # As a difference, so that the derivative is that of a cast.
    cleared = lax.bitcast_convert_type(cleared_bits, x.dtype)
    return lax.select(lax.is_finite(x), lax.add(x, lax.stop_gradient(lax.sub(cleared, x))), x)


def _to_integer(x: Any, dtype: np.dtype) -> Any:
    """Convert floats to integers as TensorFlow does on x86 processors.

    Outside of the range of 8 and 16 bits the result saturates, and NaN is 0, as in XLA. TensorFlow's vectorized kernel
    saturates within the range of int32; it wraps the elements that do not fill a vector, which depends on the size.
    Outside of the range of 32 and 64 bits the result is the minimum of int32 or int64; negative numbers wrap in
    unsigned dtypes.
    """
    if dtype.itemsize < 4:
        return lax.convert_element_type(x, dtype)
    if x.dtype.itemsize < 4:
        x = lax.convert_element_type(x, np.float32)  # the bounds below are out of range for 16 bits
    out = lax.convert_element_type(x, dtype)
    if dtype.kind == "u":
        signed = lax.convert_element_type(x, np.dtype(f"int{8 * dtype.itemsize}"))
        return lax.select(lax.lt(x, jnp.zeros_like(x)), lax.convert_element_type(signed, dtype), out)
    inside = lax.lt(
        x, jnp.full_like(x, 2.0 ** (8 * dtype.itemsize - 1))
    )  # false for NaN; XLA saturates at the lower end
    return lax.select(inside, out, jnp.full_like(out, np.iinfo(dtype).min))


@op("Cast", fold=_fold_cast, int64="pair")
def cast(x, *, DstT, Truncate=False):
    """Cast to another dtype. TF: core/kernels/cast_op.cc.

    Without 64-bit mode, signed integers cast to uint64 keep both words (`Words`): counters of random generators are
    made from seeds so.
    """
    if isinstance(x, U32Pair) and np.dtype(DstT).itemsize == 8 and np.dtype(DstT).kind in "iu":
        return x.astype(DstT)
    x = jnp.asarray(to_32_bits(x))
    if DstT == np.uint64 and canonical(DstT) != DstT and jnp.issubdtype(x.dtype, jnp.signedinteger):
        return from_u32_pair(to_u32_pair(x), DstT)
    dtype = canonical(DstT)
    if x.dtype == dtype:
        return x
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = lax.real(x)
        if dtype.kind in "iu" and dtype.itemsize < 4:
            # TensorFlow has no vectorized kernel, and wraps.
            x = jnp.asarray(_to_integer(x, np.dtype(np.int32)))
    if dtype == np.bool_:
        return lax.ne(x, jnp.zeros_like(x))
    if jnp.issubdtype(x.dtype, jnp.floating) and dtype.kind in "iu":
        return _to_integer(x, dtype)
    bits = _TRUNCATED.get((x.dtype.name, dtype.name)) if Truncate else None
    return lax.convert_element_type(x if bits is None else _truncated(x, bits), dtype)


def _bitcast_shape(shape: tuple[Any, ...], before: np.dtype, after: np.dtype) -> tuple[Any, ...]:
    """Return the shape of a bitcast."""
    if before.itemsize >= after.itemsize:
        ratio = before.itemsize // after.itemsize
        return shape if ratio == 1 else (*shape, ratio)
    ratio = after.itemsize // before.itemsize
    if not shape or shape[-1] != ratio:
        raise OpError(f"cannot bitcast from {before} to {after}: the last dimension of {shape} is not {ratio}")
    return shape[:-1]


def _fold_bitcast(input: Any, *, type: Any) -> Any:
    input, dtype = np.asarray(input), np.dtype(type)
    if input.dtype == object:
        raise OpError("symbolic dimensions and strings have no bits to reinterpret")
    shape = _bitcast_shape(input.shape, input.dtype, dtype)
    return np.frombuffer(input.tobytes(), dtype).reshape(shape)


def _part(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the real part, the dtype itself if it is real."""
    return np.dtype(f"float{4 * dtype.itemsize}") if dtype.kind == "c" else dtype


@op("Bitcast", fold=_fold_bitcast, int64="pair")
def bitcast(input, *, type):
    """Reinterpret bits as another dtype.

    TF: core/kernels/bitcast_op.cc.
    """
    dtype = np.dtype(type)
    if isinstance(input, U32Pair):
        if dtype.itemsize == 8 and dtype.kind in "iu":
            return input.astype(dtype)
        if dtype.itemsize < 8:
            return lax.reshape(bitcast(input.data, type=dtype), (*input.shape, 8 // dtype.itemsize))
    elif is_int64(input):
        return bitcast(from_u32_pair(to_u32_pair(input), input.dtype), type=dtype)
    input = jnp.asarray(to_32_bits(input))
    if canonical(dtype) != dtype:
        if dtype.kind in "iu" and input.dtype.kind in "iu" and input.dtype.itemsize == 4:
            _bitcast_shape(input.shape, input.dtype, dtype)
            return from_u32_pair(lax.bitcast_convert_type(input, np.uint32), dtype)
        raise UnsupportedAttributeError(f"the bits of {dtype} need jax_enable_x64")
    shape = _bitcast_shape(input.shape, input.dtype, dtype)
    if input.dtype == dtype:
        return input
    if input.dtype.kind != "c" and dtype.kind != "c":
        return lax.bitcast_convert_type(input, dtype)
    # JAX does not bitcast complex numbers: they are pairs of floats.
    if input.dtype.kind == "c":
        input = lax.concatenate([lax.expand_dims(f(input), (input.ndim,)) for f in (lax.real, lax.imag)], input.ndim)
    part = _part(dtype)
    ratio = max(part.itemsize // input.dtype.itemsize, 1)
    flat = lax.reshape(input, (input.size // ratio, ratio) if ratio > 1 else (input.size,))
    out = lax.bitcast_convert_type(flat, part)
    if dtype.kind != "c":
        return lax.reshape(out, shape)
    out = lax.reshape(out, (*shape, 2))
    real, imag = (lax.index_in_dim(out, i, out.ndim - 1, keepdims=False) for i in range(2))
    return lax.complex(real, imag)


def _fold_to_bool(input: Any) -> Any:
    input = np.asarray(input)
    if input.ndim:
        return np.bool_(input.size > 0)
    return np.bool_(input != b"") if is_string(input) else np.bool_(input)


@op("ToBool", fold=_fold_to_bool)
def to_bool(input):
    """Return whether a scalar is not zero (a string: not empty), an array not empty."""
    input = jnp.asarray(input)
    if input.ndim:
        return np.bool_(True) if all(d != 0 for d in input.shape) else np.bool_(False)
    return lax.ne(input, jnp.zeros((), input.dtype))
