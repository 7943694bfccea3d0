"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import max_dim
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, dims, normalize_axes

_COMPLEX64, _FLOAT32 = np.dtype(np.complex64), np.dtype(np.float32)


def _fft(name: str, fn: Any, axes: int) -> None:
    def call(input: Any) -> Any:
        input = jnp.asarray(input)
        return fn(input, axes=tuple(range(-axes, 0))).astype(input.dtype)

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name, f"Batch{name}", stored=True)(call)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _fft(f"FFT{_suffix}", jnp.fft.fftn, _count)
    _fft(f"IFFT{_suffix}", jnp.fft.ifftn, _count)


def _fitted(x: Any, sizes: tuple[Any, ...]) -> Any:
    """Returns an array with its last dimensions cut, or padded with zeros, to sizes of which some may be symbolic."""
    for axis, wanted in enumerate(sizes, x.ndim - len(sizes)):
        size = x.shape[axis]
        if size != wanted:
            more = max_dim(wanted - size, 0)
            x = lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])
            x = lax.slice_in_dim(x, 0, wanted, axis=axis)
    return x


def _real_fft(suffix: str, axes: int) -> None:
    def rfft(input: Any, fft_length: Static, *, Tcomplex: Any = _COMPLEX64) -> Any:
        input, lengths = jnp.asarray(input), dims(fft_length)
        if all(isinstance(n, int) for n in (*lengths, *input.shape)):
            out = jnp.fft.rfftn(input, s=lengths, axes=tuple(range(-axes, 0)))
        else:
            out = lax.fft(_fitted(input, lengths), lax.FftType.RFFT, lengths)
        return out.astype(canonical(Tcomplex))

    def irfft(input: Any, fft_length: Static, *, Treal: Any = _FLOAT32) -> Any:
        input, lengths = jnp.asarray(input), dims(fft_length)
        if all(isinstance(n, int) for n in (*lengths, *input.shape)):
            out = jnp.fft.irfftn(input, s=lengths, axes=tuple(range(-axes, 0)))
        else:
            half = (*lengths[:-1], lengths[-1] // 2 + 1)
            out = lax.fft(_fitted(input, half), lax.FftType.IRFFT, lengths)
        return out.astype(canonical(Treal))

    rfft.__doc__, irfft.__doc__ = f"See tf.raw_ops.RFFT{suffix}.", f"See tf.raw_ops.IRFFT{suffix}."
    op(f"RFFT{suffix}", stored=True)(rfft)
    op(f"IRFFT{suffix}", stored=True)(irfft)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _real_fft(_suffix, _count)


def _transformed(fn: Any, input: Any, fft_length: Any, axes: Any, dtype: Any, *, half: bool = False) -> Any:
    """Transforms over any dimensions, cut or padded with zeros to ``fft_length``.

    TensorFlow's kernels, which only GPUs have, take the last dimensions alone; its documentation knows no such limit.

    Args:
      fn: what transforms, of `jax.numpy.fft`.
      input: an array.
      fft_length: how long the dimensions are, static.
      axes: which they are, static.
      dtype: of the result.
      half: whether only half of the last of them comes out.
    """
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


@op("FFTND", stored=True)
def fftnd(input: Any, fft_length: Static, axes: Static) -> Any:
    """Over any dimensions. See tf.raw_ops.FFTND."""
    return _transformed(jnp.fft.fftn, input, fft_length, axes, input.dtype)


@op("IFFTND", stored=True)
def ifftnd(input: Any, fft_length: Static, axes: Static) -> Any:
    """Inverse, over any dimensions. See tf.raw_ops.IFFTND."""
    return _transformed(jnp.fft.ifftn, input, fft_length, axes, input.dtype)


@op("RFFTND", stored=True)
def rfftnd(input: Any, fft_length: Static, axes: Static, *, Tcomplex: Any = _COMPLEX64) -> Any:
    """Of real numbers over any dimensions, half of the last of them. See tf.raw_ops.RFFTND."""
    return _transformed(jnp.fft.rfftn, input, fft_length, axes, Tcomplex, half=True)


@op("IRFFTND", stored=True)
def irfftnd(input: Any, fft_length: Static, axes: Static, *, Treal: Any = _FLOAT32) -> Any:
    """Inverse to real numbers over any dimensions, from half of the last of them. See tf.raw_ops.IRFFTND."""
    return _transformed(jnp.fft.irfftn, input, fft_length, axes, Treal)
