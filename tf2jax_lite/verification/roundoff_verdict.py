"""Decide whether rounding alone explains a difference that exceeds the tolerance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .compare import OutputComparison
from .float64_reference import evaluate_in_float64
from .roundoff_error import round_off
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
