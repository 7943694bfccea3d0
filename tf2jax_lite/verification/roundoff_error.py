"""Round-off or a wrong result: both sides' distance from what the graph gives in float64."""

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

__all__ = ["RoundOff", "in_float64", "round_off"]

# Two orders of summation differ in their error by a small factor; a wrong formula by orders of magnitude.
_FACTOR = 32.0
# Units in the last place of the largest element that are nobody's fault.
_FLOOR = 16.0


@dataclasses.dataclass(frozen=True)
class RoundOff:
    """One result in float32 (or what it has), TensorFlow's and JAX's, against the same in float64.

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
        """Whether the difference is round-off."""
        return not self.wrong


def in_float64(
    converted: ConvertedFunction, params: Mapping[str, Any], inputs: Sequence[Any], rng: Any = None
) -> list[np.ndarray]:
    """Returns a converted function's flat results, computed in float64 throughout.

    Args:
      converted: the function.
      params: its params; floats are widened.
      inputs: flat inputs; floats are widened.
      rng: a key, if it draws. (Numbers drawn in float64 are others than in float32.)

    Raises:
      UnsupportedError: part of the graph is compiled (XlaCallModule), with its types.
    """
    program = Program(widen(converted.program.graph), converted.config, None, converted.program.evaluator)
    wide = ConvertedFunction(program, converted.interface, converted.config, promote_dtypes=True)
    with jax.enable_x64(True):
        state = {name: widen_array(value) for name, value in params.items()}
        results, _ = wide.flat_call(state, [widen_array(np.asarray(x)) for x in inputs], rng, promote_dtypes=True)
        return [np.asarray(r) for r in results]


def round_off(expected: np.ndarray, actual: np.ndarray, truth: np.ndarray, scale: float | None = None) -> RoundOff:
    """Tells round-off from a wrong result.

    Args:
      expected: TensorFlow's result.
      actual: JAX's.
      truth: what `in_float64` returns for it.
      scale: magnitude that errors are relative to, if it is not the largest element of ``truth``.

    Returns:
      The errors. Either side may be off by a factor more than the other and some units of rounding, no further; NaN
      and infinities have to stand in the same places.
    """
    inexact = truth.dtype.kind in "fc"
    unit = float(ml_dtypes.finfo(expected.dtype).eps) if inexact else 0.0
    theirs, ours = _error(expected, truth, scale), _error(actual, truth, scale)
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


def _error(value: np.ndarray, truth: np.ndarray, scale: float | None) -> float:
    if value.shape != truth.shape:
        return float("inf")
    if truth.dtype.kind not in "fc":
        return float(np.mean(value != truth)) if truth.size else 0.0
    wide = value.astype(truth.dtype)
    finite = np.isfinite(truth)
    same = (wide == truth) | (np.isnan(wide) & np.isnan(truth))
    if not (same | (finite & np.isfinite(wide))).all():
        return float("inf")
    scale = scale or np.max(np.abs(truth), initial=0, where=finite)
    far = np.max(np.abs(np.where(finite, wide, 0) - np.where(finite, truth, 0)), initial=0)
    return float(far / scale) if scale else float(far)
