"""Fourier transforms.

Kernels: fft_ops.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, normalize_axes

_COMPLEX64, _FLOAT32 = np.dtype(np.complex64), np.dtype(np.float32)


def _fft(name: str, fn: Any, axes: int) -> None:
    def call(input):
        input = jnp.asarray(input)
        return fn(input, axes=tuple(range(-axes, 0))).astype(input.dtype)

    kind = "inverse Fourier transform" if name.startswith("I") else "Fourier transform"
    call.__doc__ = f"Return the {kind} over the last {axes} dimension(s). TF: tf.raw_ops.{name}."
    op(name, f"Batch{name}", pattern=Pattern.MATERIALIZED)(call)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _fft(f"FFT{_suffix}", jnp.fft.fftn, _count)
    _fft(f"IFFT{_suffix}", jnp.fft.ifftn, _count)


def _resized(x: Any, sizes: tuple[Any, ...]) -> Any:
    """Truncate or pad the last dimensions to sizes, some of which may be symbolic."""
    for axis, wanted in enumerate(sizes, x.ndim - len(sizes)):
        size = x.shape[axis]
        if size != wanted:
            more = max_dim(wanted - size, 0)
            x = lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])
            x = lax.slice_in_dim(x, 0, wanted, axis=axis)
    return x


def _real_fft(suffix: str, axes: int) -> None:
    def rfft(input, fft_length: Static, *, Tcomplex=_COMPLEX64):
        input, lengths = jnp.asarray(input), dims(fft_length)
        if all(isinstance(n, int) for n in (*lengths, *input.shape)):
            out = jnp.fft.rfftn(input, s=lengths, axes=tuple(range(-axes, 0)))
        else:
            out = lax.fft(_resized(input, lengths), lax.FftType.RFFT, lengths)
        return out.astype(canonical(Tcomplex))

    def irfft(input, fft_length: Static, *, Treal=_FLOAT32):
        input, lengths = jnp.asarray(input), dims(fft_length)
        if all(isinstance(n, int) for n in (*lengths, *input.shape)):
            out = jnp.fft.irfftn(input, s=lengths, axes=tuple(range(-axes, 0)))
        else:
            half = (*lengths[:-1], lengths[-1] // 2 + 1)
            out = lax.fft(_resized(input, half), lax.FftType.IRFFT, lengths)
        return out.astype(canonical(Treal))

    rfft.__doc__ = f"""Return the Fourier transform of real numbers. TF: tf.raw_ops.RFFT{suffix}.

    Args:
      input: real numbers; the last {axes} dimension(s) are transformed.
      fft_length: static ints, [{axes}], sizes to which these dimensions are truncated or padded with zeros.
      Tcomplex: dtype of the result.

    Returns:
      The nonnegative frequencies: the last dimension has size ``fft_length[-1] // 2 + 1``.
    """
    irfft.__doc__ = f"""Return the inverse Fourier transform to real numbers. TF: tf.raw_ops.IRFFT{suffix}.

    Args:
      input: complex numbers of nonnegative frequencies; the last {axes} dimension(s) are transformed.
      fft_length: static ints, [{axes}], sizes of these dimensions in the result.
      Treal: dtype of the result.
    """
    op(f"RFFT{suffix}", pattern=Pattern.MATERIALIZED)(rfft)
    op(f"IRFFT{suffix}", pattern=Pattern.MATERIALIZED)(irfft)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _real_fft(_suffix, _count)


def _transformed(fn: Any, input: Any, fft_length: Any, axes: Any, dtype: Any, *, half: bool = False) -> Any:
    """Transform over any dimensions, truncated or zero-padded to ``fft_length``."""
    # TensorFlow's kernels, for GPU only, take the last dimensions alone; its documentation has no such limit.
    input, lengths = jnp.asarray(input), dims(fft_length)
    which = normalize_axes(axes, input.ndim)
    if np.ndim(fft_length) != 1 or np.ndim(axes) != 1 or len(lengths) != len(which):
        raise OpError(f"fft_length and axes must be vectors of one length, not {list(lengths)} and {list(which)}")
    if len(set(which)) != len(which) or not which:
        raise OpError(f"axes {list(which)} must name at least one dimension, and none twice")
    if any(isinstance(n, int) and n < 0 for n in lengths):
        raise OpError(f"fft_length must not be negative, got {list(lengths)}")
    if 0 in (*lengths, *(d for i, d in enumerate(input.shape) if i not in which)):
        sizes = dict(zip(which, lengths, strict=True))
        if half and lengths[-1] != 0:
            sizes[which[-1]] = lengths[-1] // 2 + 1
        return jnp.zeros([sizes.get(i, d) for i, d in enumerate(input.shape)], canonical(dtype))
    return fn(input, s=lengths, axes=which).astype(canonical(dtype))


@op("FFTND", pattern=Pattern.MATERIALIZED)
def fftnd(input, fft_length: Static, axes: Static):
    """Return the Fourier transform over any dimensions.

    Args:
      fft_length: ``[n]``, ints: the size to which each dimension is truncated or zero-padded.
    """
    return _transformed(jnp.fft.fftn, input, fft_length, axes, input.dtype)


@op("IFFTND", pattern=Pattern.MATERIALIZED)
def ifftnd(input, fft_length: Static, axes: Static):
    """Return the inverse Fourier transform over any dimensions.

    Arguments are those of `fftnd`.
    """
    return _transformed(jnp.fft.ifftn, input, fft_length, axes, input.dtype)


@op("RFFTND", pattern=Pattern.MATERIALIZED)
def rfftnd(input, fft_length: Static, axes: Static, *, Tcomplex=_COMPLEX64):
    """Return the Fourier transform of real numbers over any dimensions."""
    return _transformed(jnp.fft.rfftn, input, fft_length, axes, Tcomplex, half=True)


@op("IRFFTND", pattern=Pattern.MATERIALIZED)
def irfftnd(input, fft_length: Static, axes: Static, *, Treal=_FLOAT32):
    """Return the inverse Fourier transform to real numbers over any dimensions."""
    return _transformed(jnp.fft.irfftn, input, fft_length, axes, Treal)
