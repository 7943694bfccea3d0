"""Inputs for a function: drawn from its signature, or given by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.calling.names import accepted_names, match_arrays
from tf2jax_lite.calling.structures import TensorArgument
from tf2jax_lite.support.errors import InputError
from tf2jax_lite.support.limits import check_bytes

from .index_ranges import Range

# Size of unknown dimensions other than the batch: small, but large enough for convolutions of an image.
_UNKNOWN = 4
_UNKNOWN_IMAGE = 32
# Exclusive upper bound of integers that index no table.
_SMALL = 4


def given_values(name: str, arguments: Mapping[str, TensorArgument], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return given arrays by argument; `match_arrays` says how they may be named."""
    chosen, left = match_arrays(arguments, given)
    found: dict[str, np.ndarray] = {}
    for path, key in chosen.items():
        spec, value = arguments[path], np.asarray(given[key])
        shape = spec.shape
        if shape is not None and (
            len(shape) != value.ndim or any(d is not None and d != v for d, v in zip(shape, value.shape, strict=True))
        ):
            raise InputError(f"signature {name!r}: input {path!r} has shape {value.shape}, expected {list(shape)}.")
        if spec.dtype is None:
            found[path] = _strings(value)
        elif value.dtype.kind in "SUO":
            raise InputError(f"signature {name!r}: input {path!r} has dtype {value.dtype}, expected {spec.dtype}.")
        else:
            found[path] = value.astype(spec.dtype)
    if left:
        names = "; ".join(" or ".join(map(repr, accepted_names(path, spec))) for path, spec in arguments.items())
        raise InputError(f"signature {name!r} has no input(s) {', '.join(left)}. The names are {names}.")
    return found


def draw(
    arguments: Mapping[str, TensorArgument], ranges: Mapping[int, Range], seed: int, batch: int
) -> dict[str, np.ndarray]:
    """Draw inputs.

    Floats in [0, 1), integers in the range of the indexed axis, else in [0, 4), strings of some words.

    Args:
      ranges: of integer arguments, by index; see `tf2jax_lite.verification.index_ranges.index_ranges`.
      batch: size of an unknown first dimension.
    """
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for name, spec in sorted(arguments.items()):
        shape = _shape(spec, batch)
        dtype = spec.dtype
        check_bytes(shape, 8, f"the input drawn for {name!r}", option="max_input_bytes")  # numpy draws in 64 bits
        if dtype is None:
            out[name] = _words(rng, shape)
        elif dtype.kind == "b":
            out[name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            known = ranges.get(spec.index)
            limit = _SMALL if known is None else min(known.limit, int(np.iinfo(dtype).max))
            out[name] = rng.integers(0, max(limit, 1), shape).astype(dtype)
        elif dtype.kind == "c":
            out[name] = (rng.random(shape) + 1j * rng.random(shape)).astype(dtype)
        else:
            out[name] = np.asarray(rng.random(shape)).astype(dtype)
    return out


def _words(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    out = np.empty(shape, object)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
    for i in np.ndindex(*shape):
        out[i] = b" ".join(rng.choice(letters, rng.integers(1, 9)).tobytes() for _ in range(rng.integers(1, 6)))
    return out


def _shape(spec: TensorArgument, batch: int) -> list[int]:
    shape = spec.shape or ()
    # A batch of images: several unknown dimensions, and channels.
    floating = spec.dtype is not None and spec.dtype.kind not in "iub"
    other = _UNKNOWN_IMAGE if len(shape) >= 4 and floating else _UNKNOWN
    return [(batch if i == 0 else other) if d is None else d for i, d in enumerate(shape)]


def _strings(value: np.ndarray) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = [v.encode() if isinstance(v, str) else bytes(v) for v in value.reshape(-1)]
    out.reshape(-1)[:] = flat
    return out
