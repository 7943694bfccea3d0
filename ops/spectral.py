"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from .registry import Static, op
from .values import canonical

_COMPLEX64, _FLOAT32 = np.dtype(np.complex64), np.dtype(np.float32)


def _fft(name: str, fn: Any, axes: int) -> None:
    def call(input: Any) -> Any:
        input = jnp.asarray(input)
        return fn(input, axes=tuple(range(-axes, 0))).astype(input.dtype)

    call.__doc__ = f"See tf.raw_ops.{name}."
    op(name)(call)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _fft(f"FFT{_suffix}", jnp.fft.fftn, _count)
    _fft(f"IFFT{_suffix}", jnp.fft.ifftn, _count)


def _real_fft(suffix: str, axes: int) -> None:
    def rfft(input: Any, fft_length: Static, *, Tcomplex: Any = _COMPLEX64) -> Any:
        lengths = tuple(int(n) for n in fft_length)
        out = jnp.fft.rfftn(jnp.asarray(input), s=lengths, axes=tuple(range(-axes, 0)))
        return out.astype(canonical(Tcomplex))

    def irfft(input: Any, fft_length: Static, *, Treal: Any = _FLOAT32) -> Any:
        lengths = tuple(int(n) for n in fft_length)
        out = jnp.fft.irfftn(jnp.asarray(input), s=lengths, axes=tuple(range(-axes, 0)))
        return out.astype(canonical(Treal))

    rfft.__doc__, irfft.__doc__ = f"See tf.raw_ops.RFFT{suffix}.", f"See tf.raw_ops.IRFFT{suffix}."
    op(f"RFFT{suffix}")(rfft)
    op(f"IRFFT{suffix}")(irfft)


for _count, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _real_fft(_suffix, _count)
