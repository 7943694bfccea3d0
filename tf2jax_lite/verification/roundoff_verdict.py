"""Decide whether rounding alone explains a difference that exceeds the tolerance."""

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

from .compare import OutputComparison
from .float64_reference import evaluate_in_float64
from .runners import named
from .targets import Target

# Fraction of a difference that may remain in float64; the rest is rounding.
_SHARE = 1e-3
# TensorFlow's error may be this many times the difference. Beyond, float64 computed something else: other random
# numbers, another branch.
_FAR = 8.0


class RoundoffCheck:
    """Decides about the results of one call.

    Computes nothing until one of them differs. A difference is round-off if TensorFlow's ops and JAX's agree in
    float64, and if JAX's error with respect to that is larger than TensorFlow's by no more than different orders of
    summation explain. A wrong op fails the first test, since its error remains in float64.
    """

    def __init__(self, target: Target, inputs: Sequence[Any]):
        self._target = target
        self._inputs = inputs
        self._is_evaluated = False
        self._error = 0.0
        self._references: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, found: OutputComparison, expected: np.ndarray, actual: np.ndarray) -> OutputComparison:
        """Return the comparison with both errors, agreeing if they are round-off."""
        if found.ok or found.problem:
            return found
        if not self._is_evaluated:
            self._is_evaluated = True
            self._evaluate()
        reference = self._references.get((found.kind, found.name))
        return found if reference is None else with_verdict(found, expected, actual, reference, self._error)

    def _evaluate(self) -> None:
        try:
            reference = evaluate_in_float64(self._target, self._inputs)
        except Exception:  # without a reference, the verdict stays as it is
            return
        if reference is None:
            return
        self._error = reference.error
        self._references = {
            ("result", n): v for n, v in named(self._target, reference.results).items() if v is not None
        }
        self._references |= {("variable", n): v for n, v in reference.variables.items()}


def with_verdict(
    found: OutputComparison,
    expected: np.ndarray,
    actual: np.ndarray,
    reference: np.ndarray,
    error: float,
    scale: float | None = None,
) -> OutputComparison:
    """Return a comparison with both sides' errors; round-off agrees.

    Args:
      reference: TensorFlow's in float64.
      error: relative difference of the two sides in float64.
    """
    errors = round_off(expected, actual, reference, scale)
    same = error <= _SHARE * found.max_rel_error
    near = errors.tensorflow_error <= _FAR * found.max_rel_error
    return dataclasses.replace(
        found,
        ok=same and near and errors.wrong != "jax",
        tensorflow_error=errors.tensorflow_error,
        jax_error=errors.jax_error,
    )


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
