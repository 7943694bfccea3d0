"""Spectrograms and cepstral coefficients of audio.

Kernels: spectrogram_op.cc, mfcc_op.cc in tensorflow/core/kernels.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError

_F32 = np.float32


@op("AudioSpectrogram")
def audio_spectrogram(input, *, window_size, stride, magnitude_squared=False):
    """Return spectrograms of channels under a Hann window.

    In float32, where TensorFlow (core/kernels/spectrogram.cc) computes in float64.
    """
    samples = jnp.asarray(input)
    if samples.ndim != 2:
        raise OpError(f"input must be samples by channels, not of rank {samples.ndim}")
    if window_size < 2 or stride < 1:
        raise OpError(f"window_size {window_size} must be 2 or more, and stride {stride} positive")
    length, channels = samples.shape
    fft_length = 1 << (window_size - 1).bit_length()
    slices = 1 + (length - window_size) // stride if length >= window_size else 0
    if slices == 0:
        return jnp.zeros((channels, 0, 1 + fft_length // 2), _F32)
    where = np.arange(slices)[:, None] * stride + np.arange(window_size)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_size) / window_size)).astype(_F32)
    frames = samples.T[:, where.astype(np.int32)] * window
    spectrum = jnp.fft.rfft(frames, fft_length)
    power = lax.real(spectrum) ** 2 + lax.imag(spectrum) ** 2
    return power if magnitude_squared else jnp.sqrt(power)


def _mel(frequency: Any) -> Any:
    return 1127.0 * np.log1p(np.asarray(frequency, np.float64) / 700.0)


def _mel_weights(bins: int, rate: float, low: float, high: float, channels: int) -> np.ndarray:
    """Return triangular weights of spectrum bins, as mfcc_mel_filterbank.cc."""
    # A bin between two centers counts for both, in proportion. The bin at 0 Hz is excluded.
    spacing = (_mel(high) - _mel(low)) / (channels + 1)
    centers = _mel(low) + spacing * np.arange(1, channels + 2)
    step = 0.5 * rate / (bins - 1)
    first, last = int(1.5 + low / step), int(high / step)
    used = np.arange(first, min(last, bins - 1) + 1)
    mels = _mel(used * step)
    band = np.searchsorted(centers[:channels], mels, side="left") - 1
    left = np.where(band >= 0, centers[np.maximum(band, 0)], _mel(low))
    share = (centers[band + 1] - mels) / (centers[band + 1] - left)
    weights = np.zeros((bins, channels))
    falling, rising = band >= 0, band + 1 < channels
    weights[used[falling], band[falling]] += share[falling]
    weights[used[rising], band[rising] + 1] += 1 - share[rising]
    return weights


@op("Mfcc")
def mfcc(
    spectrogram,
    sample_rate: Static,
    *,
    upper_frequency_limit=4000.0,
    lower_frequency_limit=20.0,
    filterbank_channel_count=40,
    dct_coefficient_count=13,
):
    """Return mel-frequency cepstral coefficients.

    As core/kernels/mfcc.cc and mfcc_dct.cc: a mel filter bank of magnitudes, its logarithm, and a cosine transform.

    Args:
      spectrogram: ``[channels, windows, bins]``, squared magnitudes.
      sample_rate: scalar int, in Hz.
      upper_frequency_limit: in Hz, within the spectrum.
      lower_frequency_limit: in Hz.
    """
    spectrum, rate = jnp.asarray(spectrogram), int(sample_rate)
    if spectrum.ndim != 3:
        raise OpError(f"a spectrogram has rank 3, not {spectrum.ndim}")
    bins, channels = spectrum.shape[2], filterbank_channel_count
    if channels < 1 or rate <= 0 or bins < 2 or not 0 <= lower_frequency_limit < upper_frequency_limit:
        raise OpError(f"no filter bank for {bins} bins, rate {rate} and {channels} channels")
    if not 1 <= dct_coefficient_count <= channels:
        raise OpError(f"dct_coefficient_count {dct_coefficient_count} must be in [1, {channels}]")
    if int(upper_frequency_limit / (0.5 * rate / (bins - 1))) >= bins:
        raise OpError(f"upper_frequency_limit {upper_frequency_limit} lies beyond the spectrum")
    weights = _mel_weights(bins, rate, lower_frequency_limit, upper_frequency_limit, channels)
    angle = np.arange(dct_coefficient_count) * (np.pi / channels)
    cosines = np.sqrt(2.0 / channels) * np.cos(angle * (np.arange(channels)[:, None] + 0.5))

    def product(x: Any, y: np.ndarray) -> Any:
        return lax.dot_general(x, y.astype(_F32), (((2,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)

    energy = product(jnp.sqrt(spectrum), weights)
    return product(jnp.log(jnp.maximum(energy, _F32(1e-12))), cosines)
