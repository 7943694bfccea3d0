"""Tell round-off from wrong results, by both sides' errors to float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from tf2jax_lite.lowering import Program
from tf2jax_lite.passes.float64 import widen, widen_array
from tf2jax_lite.pipeline.converted_function import ConvertedFunction

# Two orders of summation differ in their error by a small factor; a wrong formula by orders of magnitude.
_FACTOR = 32.0
# Error in units in the last place of the largest element that always counts as round-off.
_FLOOR = 16.0


@dataclasses.dataclass(frozen=True)
class RoundOff:
    """Errors of one result of TensorFlow and JAX with respect to the same in float64.

    Attributes:
      tensorflow_error, jax_error: largest absolute difference from the float64 result, relative to its largest element.
      unit: the rounding of the result's dtype: 1.2e-7 for float32.
      wrong: "" if both are off by round-off alone; else whose error is beyond it, "tensorflow" or "jax". The float64
        result comes from the converted graph: of a wrong op it is wrong, too, and TensorFlow stands alone.
    """

    tensorflow_error: float
    jax_error: float
    unit: float
    wrong: str

    @property
    def ok(self) -> bool:
        """Return whether the difference is round-off."""
        return not self.wrong


def in_float64(
    converted: ConvertedFunction, params: Mapping[str, Any], inputs: Sequence[Any], rng: Any = None
) -> list[np.ndarray]:
    """Return a converted function's flat results, computed in float64 throughout.

    Args:
      rng: a key, if it draws. (Numbers drawn in float64 are others than in float32.)
    """
    program = Program(widen(converted.program.graph), converted.config, None, converted.program.evaluator)
    in_double = ConvertedFunction(program, converted.interface, converted.config, promote_dtypes=True)
    with jax.enable_x64(True):
        state = {name: widen_array(value) for name, value in params.items()}
        results, _ = in_double.flat_call(state, [widen_array(np.asarray(x)) for x in inputs], rng, promote_dtypes=True)
        return [np.asarray(r) for r in results]


def round_off(expected: np.ndarray, actual: np.ndarray, reference: np.ndarray, scale: float | None = None) -> RoundOff:
    """Distinguish round-off from a wrong result.

    Args:
      reference: the result of `in_float64`.
      scale: magnitude that errors are relative to, if it is not the largest element of ``reference``.

    Returns:
      The errors. The larger one may exceed the smaller one by a factor and some units of rounding; NaN and infinities
      must have the same positions.
    """
    inexact = reference.dtype.kind in "fc"
    unit = float(ml_dtypes.finfo(expected.dtype).eps) if inexact else 0.0
    theirs, ours = _error(expected, reference, scale), _error(actual, reference, scale)
    floor = _FLOOR * unit
    if inexact and max(theirs, ours) <= floor:
        wrong = ""
    elif not inexact:
        wrong = "tensorflow" if theirs else ""
        wrong = "jax" if ours else wrong
    else:
        allowed = floor + _FACTOR * min(theirs, ours)
        wrong = ""
        if not ours <= allowed:
            wrong = "jax"
        elif not theirs <= allowed:
            wrong = "tensorflow"
    return RoundOff(theirs, ours, unit, wrong)


def _error(value: np.ndarray, reference: np.ndarray, scale: float | None) -> float:
    if value.shape != reference.shape:
        return float("inf")
    if reference.dtype.kind not in "fc":
        return float(np.mean(value != reference)) if reference.size else 0.0
    double = value.astype(reference.dtype)
    finite = np.isfinite(reference)
    same = (double == reference) | (np.isnan(double) & np.isnan(reference))
    if not (same | (finite & np.isfinite(double))).all():
        return float("inf")
    scale = scale or np.max(np.abs(reference), initial=0, where=finite)
    far = np.max(np.abs(np.where(finite, double, 0) - np.where(finite, reference, 0)), initial=0)
    return float(far / scale) if scale else float(far)
