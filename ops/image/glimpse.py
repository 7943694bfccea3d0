"""Glimpses: windows of images at given offsets, with noise outside of the image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Key
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import dims

from ._pixels import image_batch, pixels

_F32 = np.float32


def _glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool,
    normalized: bool,
    uniform: bool,
    noise: str,
    key: Any,
    version: int,
) -> Any:
    images, offsets = image_batch(input), jnp.asarray(offsets)
    if uniform and noise not in ("", "uniform"):
        raise OpError("uniform_noise and noise cannot be given at the same time")
    noise = noise or ("uniform" if uniform else "gaussian")
    if noise not in ("uniform", "gaussian", "zero"):
        raise OpError(f"noise must be 'uniform', 'gaussian' or 'zero', not {noise!r}")
    window = dims(size)
    image_size, half = np.array(images.shape[1:3], _F32), np.array(window, _F32) / 2
    corner = offsets * image_size if normalized else offsets
    if version == 1:
        corner = (corner / 2 + image_size / 2 if centered else corner) - half
    elif centered:
        corner = corner / 2 + image_size / 2 - half if normalized else corner + image_size / 2
    corner = corner.astype(np.int32)  # towards zero, as in C
    rows = (corner[:, :1] + np.arange(window[0], dtype=np.int32))[:, :, None]
    columns = (corner[:, 1:] + np.arange(window[1], dtype=np.int32))[:, None, :]
    inside = (rows >= 0) & (rows < images.shape[1]) & (columns >= 0) & (columns < images.shape[2])
    batch = lax.iota(np.int32, images.shape[0])[:, None, None]
    inner = pixels(images, batch, rows, columns)
    if noise == "zero":
        outer = jnp.zeros_like(inner)
    elif noise == "uniform":
        low, high = (f(images, (1, 2, 3), keepdims=True) for f in (jnp.min, jnp.max))
        outer = low + jax.random.uniform(key, inner.shape, inner.dtype) * (high - low)
    else:
        mean, deviation = (f(images, (1, 2), keepdims=True) for f in (jnp.mean, jnp.std))
        low, high = (f(images, (1, 2), keepdims=True) for f in (jnp.min, jnp.max))
        outer = jnp.clip(mean + jax.random.normal(key, inner.shape, inner.dtype) * deviation, low, high)
    return jnp.where(inside[..., None], inner, outer)


def _noisy(attrs: Mapping[str, Any]) -> bool:
    return attrs.get("noise") != "zero"


def _register(name: str, version: int) -> None:
    @op(name, draws=_noisy)
    def call(
        input,
        size: Static,
        offsets,
        *,
        centered=True,
        normalized=True,
        uniform_noise=True,
        noise="uniform",
        key: Key | None,
    ):
        """Extract windows from images, with noise outside of the image.

        TF: core/kernels/image/attention_ops.cc.

        The noise has TensorFlow's distribution, not its bits, which depend on the time.

        Args:
          offsets: float32 [batch, 2], (y, x) of each window; in version 2 of its corner unless ``centered`` and
            ``normalized``.
        """
        return _glimpse(
            input,
            size,
            offsets,
            centered=centered,
            normalized=normalized,
            uniform=uniform_noise,
            noise=noise,
            key=key,
            version=version,
        )


_register("ExtractGlimpse", 1)
_register("ExtractGlimpseV2", 2)
