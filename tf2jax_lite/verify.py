"""TensorFlow beside JAX: every signature of a SavedModel on the same inputs, output by output."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from . import api
from .errors import InputError, InvalidModelError
from .loading import saved_model

__all__ = ["OutputComparison", "SignatureComparison", "random_inputs", "verify_saved_model"]

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4, "float64": 1e-4, "complex128": 1e-4}
_UNKNOWN_DIMENSION = 2


@dataclasses.dataclass(frozen=True)
class OutputComparison:
    """One output of one signature.

    Attributes:
      name: the output's name.
      dtype, shape: as TensorFlow gave them.
      max_abs_error: largest absolute difference.
      max_rel_error: largest absolute difference, relative to the largest magnitude of TensorFlow's output.
      ok: whether dtype and shape agree and the relative error is within tolerance.
      problem: what is wrong, if it is not the numbers.
    """

    name: str
    dtype: str
    shape: list[int]
    max_abs_error: float
    max_rel_error: float
    ok: bool
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class SignatureComparison:
    """One signature: its outputs compared, or the error that kept it from running."""

    signature: str
    outputs: list[OutputComparison]
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return not self.error and all(o.ok for o in self.outputs)

    def as_json(self) -> dict[str, Any]:
        """Returns the comparison as plain JSON data."""
        return {**dataclasses.asdict(self), "ok": self.ok}


def verify_saved_model(
    path: str | os.PathLike[str],
    signatures: Sequence[str] | None = None,
    tags: Sequence[str] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    *,
    seed: int = 0,
    rtol: float | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> list[SignatureComparison]:
    """Converts signatures and compares them, jitted, with TensorFlow on the same inputs.

    Args:
      path: the SavedModel directory.
      signatures: names of signatures; all by default.
      tags: which MetaGraph.
      inputs: arrays by input name; drawn from the signature where not given.
      seed: for the inputs that are drawn.
      rtol: tolerance on the relative error; by default 1e-4 (1e-2 for float16, 5e-2 for bfloat16; integers are equal).
      progress: called with each signature's name before it runs.

    Raises:
      InvalidModelError: the model cannot be read, or has no such signature.
      InputError: a given input does not fit.
    """
    restored = saved_model.load(path, tags)
    names = list(signatures or saved_model.signature_names(restored))
    if not names:
        raise InvalidModelError(f"{os.fspath(path)}: has no signatures to verify.")
    results = []
    for name in names:
        progress(name)
        function = saved_model.signature(restored, name, path)
        try:
            results.append(_compare(name, function, inputs or {}, seed, rtol))
        except InputError:
            raise
        except Exception as error:  # the verdict on a signature that does not convert or run is its error
            results.append(SignatureComparison(name, [], f"{type(error).__name__}: {error}"))
    return results


def random_inputs(specs: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Returns inputs for a signature: floats in [0, 1), integers in [0, 4), unknown dimensions 2."""
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for name, spec in sorted(specs.items()):
        shape = [d if d is not None else _UNKNOWN_DIMENSION for d in (spec.shape.as_list() if spec.shape.rank else [])]
        dtype = spec.dtype
        if dtype == tf.bool:
            out[name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype == tf.string:
            out[name] = np.full(shape, b"", object)
        elif dtype.is_integer:
            out[name] = rng.integers(0, 4, shape).astype(dtype.as_numpy_dtype)
        else:
            out[name] = rng.random(shape).astype(dtype.as_numpy_dtype)
    return out


def _compare(
    name: str, function: Any, given: Mapping[str, np.ndarray], seed: int, rtol: float | None
) -> SignatureComparison:
    specs = function.structured_input_signature[1]
    unknown = sorted(set(given) - set(specs))
    if unknown:
        raise InputError(f"signature {name!r} has no input(s) {unknown}; its inputs are {sorted(specs)}.")
    arrays = random_inputs(specs, seed)
    for key, value in given.items():
        spec = specs[key]
        if not spec.shape.is_compatible_with(value.shape):
            raise InputError(f"signature {name!r}: input {key!r} has shape {value.shape}, expected {spec.shape}.")
        arrays[key] = np.asarray(value).astype(spec.dtype.as_numpy_dtype)
    expected = function(**{key: tf.constant(value) for key, value in arrays.items()})
    with jax.enable_x64(True):
        converted, params = api.convert_from_restored(function)
        key = jax.random.key(seed) if converted.fn.converted.program.random_nodes else None  # type: ignore[attr-defined]
        actual, _ = jax.jit(converted)(params, rng=key, **arrays)
    outputs = []
    for output in sorted(expected):
        outputs.append(_compare_output(output, expected[output].numpy(), np.asarray(actual[output]), rtol))
    return SignatureComparison(name, outputs)


def _compare_output(name: str, expected: np.ndarray, actual: np.ndarray, rtol: float | None) -> OutputComparison:
    dtype, shape = str(expected.dtype), list(expected.shape)
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        problem = f"JAX gives {actual.dtype}{list(actual.shape)}"
        return OutputComparison(name, dtype, shape, float("nan"), float("nan"), False, problem)
    if expected.dtype.kind in "OSUb":
        differing = int(np.sum(expected != actual))
        return OutputComparison(name, dtype, shape, float(differing), float(differing), differing == 0)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    e, a = expected.astype(wide), actual.astype(wide)
    same = (e == a) | (np.isnan(e) & np.isnan(a))
    difference = np.where(same, 0.0, np.abs(np.where(same, 0, e) - np.where(same, 0, a)))
    worst = float(np.max(difference, initial=0.0))
    finite = np.abs(e[np.isfinite(e)])
    scale = float(np.max(finite, initial=0.0)) or 1.0
    tolerance = rtol if rtol is not None else TOLERANCE.get(expected.dtype.name, 0.0)
    return OutputComparison(name, dtype, shape, worst, worst / scale, bool(worst / scale <= tolerance))
