"""Results that differ by more than the tolerance: whether rounding alone explains that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .compare import OutputComparison
from .float64_reference import in_tensorflow
from .roundoff_error import round_off
from .runners import named
from .targets import Subject

__all__ = ["Judge", "judged"]

# Which part of a difference may be there in float64, too: what is left is rounding.
_SHARE = 1e-3
# How many times the difference TensorFlow may be off. Where both sides are off by the same, float64 went another way:
# other random numbers, another branch.
_FAR = 8.0


class Judge:
    """Judges the results of one call; nothing is computed before one of them differs.

    A difference is round-off if TensorFlow's ops and JAX's give the same in float64, and if JAX's results are not
    farther from that than TensorFlow's by more than orders of summation are. A wrong op fails the first, as its error
    is there in float64, too.

    Args:
      subject: the function.
      inputs: its flat inputs.
    """

    def __init__(self, subject: Subject, inputs: Sequence[Any]):
        self._subject = subject
        self._inputs = inputs
        self._looked = False
        self._error = 0.0
        self._truths: dict[tuple[str, str], np.ndarray] = {}

    def __call__(self, found: OutputComparison, expected: np.ndarray, actual: np.ndarray) -> OutputComparison:
        """Returns the comparison, with both sides' errors where they are known, and as agreeing if they are round-off.

        Args:
          found: the comparison.
          expected: TensorFlow's array.
          actual: JAX's.
        """
        if found.ok or found.problem:
            return found
        if not self._looked:
            self._looked = True
            self._look()
        truth = self._truths.get((found.kind, found.name))
        return found if truth is None else judged(found, expected, actual, truth, self._error)

    def _look(self) -> None:
        try:
            wide = in_tensorflow(self._subject, self._inputs)
        except Exception:  # a graph that cannot be widened or walked is no reason to lose the verdict
            return
        if wide is None:
            return
        self._error = wide.error
        self._truths = {("result", n): v for n, v in named(self._subject, wide.results).items() if v is not None}
        self._truths |= {("variable", n): v for n, v in wide.variables.items()}


def judged(
    found: OutputComparison,
    expected: np.ndarray,
    actual: np.ndarray,
    truth: np.ndarray,
    error: float,
    scale: float | None = None,
) -> OutputComparison:
    """Returns a comparison with both sides' errors, and as agreeing if they are round-off.

    Args:
      found: the comparison, which differs.
      expected: TensorFlow's array.
      actual: JAX's.
      truth: TensorFlow's in float64.
      error: relative difference of the two sides in float64.
      scale: magnitude that errors are relative to, if it is not that of ``truth``.
    """
    errors = round_off(expected, actual, truth, scale)
    same = error <= _SHARE * found.max_rel_error
    near = errors.tensorflow_error <= _FAR * found.max_rel_error
    return dataclasses.replace(
        found,
        ok=same and near and errors.wrong != "jax",
        tensorflow_error=errors.tensorflow_error,
        jax_error=errors.jax_error,
    )
