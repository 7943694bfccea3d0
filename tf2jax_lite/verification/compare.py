"""Compare two arrays: absolute, relative, ulp errors, NaN and infinities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS
from tf2jax_lite.lowering import Program

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4, "float64": 1e-4, "complex128": 1e-4}

# Number of listed positions of non-finite values.
_MAX_POSITIONS = 5

# Reinterpreted as integers of the same width, neighboring floats are neighboring integers.
_BITS = {2: np.int16, 4: np.int32, 8: np.int64}


@dataclasses.dataclass(frozen=True)
class OutputComparison:
    """One array of TensorFlow's and one of JAX's.

    A result, a gradient, or a variable after the call.

    Attributes:
      name: the array's name.
      dtype, shape: as TensorFlow gave them.
      max_abs_error: largest absolute difference; for integers, strings and booleans the number that differ.
      max_rel_error: largest absolute difference, relative to the largest magnitude of TensorFlow's array.
      ok: whether dtype and shape agree, NaN and infinities have the same positions, and everything else is close:
        ``|jax - tf| <= rtol * (|tf| + max |tf|)``.
      problem: text about a difference other than in values.
      max_ulp: largest difference in units in the last place; None unless real floating.
      nan, infinite: number of NaN and infinities, TensorFlow's and JAX's.
      positions: of the first elements where only one side is NaN or infinite, or infinities have different signs.
      kind: ``result``, ``gradient`` or ``variable``; ``input`` of the core, of a split model.
      against: ``jax``, or the backend of an artifact; ``host`` for the part that it leaves in TensorFlow.
      note: why values are not compared (random numbers), or how they were.
      tensorflow_error, jax_error: where the difference exceeds the tolerance, each side's error with respect to the
        results of TensorFlow's ops in float64, relative to the largest magnitude; None if unknown. ``ok`` is true
        nonetheless if both are round-off.
    """

    name: str
    dtype: str
    shape: list[int]
    max_abs_error: float
    max_rel_error: float
    ok: bool
    problem: str = ""
    max_ulp: int | None = None
    nan: tuple[int, int] = (0, 0)
    infinite: tuple[int, int] = (0, 0)
    positions: tuple[tuple[int, ...], ...] = ()
    kind: str = "result"
    against: str = "jax"
    note: str = ""
    tensorflow_error: float | None = None
    jax_error: float | None = None

    @property
    def verdict(self) -> str:
        """``agrees``, ``within round-off`` or ``differs``."""
        if not self.ok:
            return "differs"
        return "agrees" if self.tensorflow_error is None else "within round-off"

    @property
    def remarks(self) -> str:
        """Further remarks in one line."""
        parts = ["" if self.ok else self.problem, self.note]
        if self.tensorflow_error is not None and self.jax_error is not None:
            parts.append(f"from float64: TensorFlow {self.tensorflow_error:.2g}, JAX {self.jax_error:.2g}")
        return "; ".join(filter(None, parts))

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {**dataclasses.asdict(self), "verdict": self.verdict}


def failed(name: str, problem: str, *, kind: str = "result", against: str = "jax") -> OutputComparison:
    """Return the comparison of something that could not be computed."""
    return OutputComparison(name, "", [], float("nan"), float("nan"), False, problem, kind=kind, against=against)


def is_float(dtype: Any) -> bool:
    """Return whether a dtype is real floating (bfloat16 and its kin included)."""
    dtype = np.dtype(dtype)
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def tolerance_of(dtype: Any, rtol: float | None = None) -> float:
    """Return the relative error that passes for a dtype; integers are to be equal."""
    name = np.dtype(dtype).name
    return TOLERANCE.get(name, 0.0) if rtol is None or name not in TOLERANCE else rtol


def compare_arrays(
    name: str,
    expected: np.ndarray,
    actual: np.ndarray,
    rtol: float | None = None,
    *,
    kind: str = "result",
    against: str = "jax",
    loose_dtype: bool = False,
    values: bool = True,
    scale: float | None = None,
) -> OutputComparison:
    """Compare an array with TensorFlow's.

    Args:
      loose_dtype: another dtype of the same kind is no problem; the coarser one's tolerance holds.
      values: compare values; otherwise dtype and shape only.
      scale: magnitude that errors are relative to, if it is not the array's own.
    """
    found = OutputComparison(
        name, str(expected.dtype), list(expected.shape), float("nan"), float("nan"), False, kind=kind, against=against
    )
    same_dtype = expected.dtype == actual.dtype or (loose_dtype and _family(expected.dtype) == _family(actual.dtype))
    if expected.dtype.kind in "OSU" and actual.dtype.kind in "OSU":
        same_dtype = True
    if not same_dtype or expected.shape != actual.shape:
        return dataclasses.replace(found, problem=f"JAX gives {actual.dtype}{list(actual.shape)}")
    if not values:
        note = "draws random numbers: only dtype and shape are compared"
        return dataclasses.replace(found, max_abs_error=0.0, max_rel_error=0.0, ok=True, note=note)
    if _family(expected.dtype) not in "fc":
        differing = int(np.sum(expected != actual))
        return dataclasses.replace(
            found, max_abs_error=float(differing), max_rel_error=float(differing), ok=differing == 0
        )
    tolerance = max(tolerance_of(expected.dtype, rtol), tolerance_of(actual.dtype, rtol))
    double = np.complex128 if expected.dtype.kind == "c" else np.float64
    e, a = expected.astype(double), actual.astype(double)
    with np.errstate(all="ignore"):
        unlike = (np.isnan(e) != np.isnan(a)) | ((np.isinf(e) | np.isinf(a)) & ~np.isnan(e) & ~np.isnan(a) & (e != a))
        usable = np.isfinite(e) & np.isfinite(a)
        difference = np.abs(np.where(usable, e, 0) - np.where(usable, a, 0))
        worst = float(np.max(difference, initial=0.0))
        scale = scale or float(np.max(np.abs(e[np.isfinite(e)]), initial=0.0)) or 1.0
        close = difference <= tolerance * (np.abs(np.where(usable, e, 0)) + scale)
    is_unlike = bool(np.any(unlike))
    positions = tuple(tuple(int(i) for i in p) for p in np.argwhere(unlike)[:_MAX_POSITIONS])
    return dataclasses.replace(
        found,
        max_abs_error=worst if not is_unlike else float("inf"),
        max_rel_error=worst / scale if not is_unlike else float("inf"),
        ok=bool(np.all(close)) and not is_unlike,
        problem=f"NaN or infinities differ at {int(np.sum(unlike))} position(s)" if is_unlike else "",
        max_ulp=_ulp(expected, actual, usable),
        nan=(int(np.sum(np.isnan(e))), int(np.sum(np.isnan(a)))),
        infinite=(int(np.sum(np.isinf(e))), int(np.sum(np.isinf(a)))),
        positions=positions,
    )


def relative_error(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the difference to the largest magnitude; inf if shape or NaN differ."""
    found = compare_arrays("", expected, actual, loose_dtype=True)
    if found.problem:
        return float("inf")
    if _family(expected.dtype) not in "fc":
        return 1.0 if found.max_abs_error else 0.0
    return found.max_rel_error


def _family(dtype: np.dtype) -> str:
    if is_float(dtype):
        return "f"
    return {"u": "i"}.get(dtype.kind, dtype.kind)


def _ulp(expected: np.ndarray, actual: np.ndarray, usable: np.ndarray) -> int | None:
    if not is_float(expected.dtype) or expected.dtype != actual.dtype or expected.dtype.itemsize not in _BITS:
        return None
    e, a = _ordered(expected[usable]), _ordered(actual[usable])
    gaps = np.where(e > a, e, a).astype(np.uint64) - np.where(e > a, a, e).astype(np.uint64)
    return int(np.max(gaps, initial=0))


def _ordered(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values).view(_BITS[values.dtype.itemsize]).astype(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(_BITS[values.dtype.itemsize]).min) - bits, bits)


_Name = TypeVar("_Name")
# A boolean that is drawn in each call is the same in all calls of one side, and another in all of the other side, with
# a probability of at most 2**-9.
_CALLS = 5


@dataclasses.dataclass(frozen=True)
class _Fact:
    random: bool = False
    variable: str | None = None


def random_results(program: Program) -> tuple[list[bool], set[str]]:
    """Return for results whether they are random, and names of such variables."""
    graph = program.graph
    if not program.random_nodes:
        return [False] * len(graph.main.outputs), set()
    captured = {c.index: c.value for c in graph.captures}
    variables: set[str] = set()
    facts = []
    for index in range(len(graph.main.args)):
        value = captured.get(index)
        facts.append(_Fact(variable=value.name if isinstance(value, ir.Variable) else None))
    results = _propagate(program, graph.main, facts, variables)
    return [f.random for f in results], variables


def _propagate(program: Program, function: ir.Function, args: Sequence[_Fact], variables: set[str]) -> list[_Fact]:
    plan = program.plan(function)
    env: list[_Fact] = [_Fact()] * plan.size
    env[: len(args)] = args
    for step in plan.steps:
        inputs = [env[i] for i in step.inputs]
        named = {f.variable for f in inputs if f.variable}
        if step.node.op in CALLS:
            results = _propagate(program, program.function(step.kwargs["f"].name), inputs, variables)
        else:
            inner = any(program.effects(program.function(r.name)).needs_key for r in step.node.functions)
            random = step.op.draws_random(step.node.attrs) or inner or any(f.random for f in inputs)
            random = random or bool(named & variables)
            if random and (step.op.writes or step.node.functions):
                variables |= named
            handle = inputs[0].variable if len(inputs) == 1 and step.node.op in ("Identity", "EnsureShape") else None
            results = [_Fact(random, handle)] * len(step.outputs)
        for slot, fact in zip(step.outputs, results, strict=True):
            env[slot] = fact
    return [env[i] for i in plan.outputs]


def varying_values(
    names: set[_Name], first: Mapping[_Name, np.ndarray], call: Callable[[int], Mapping[_Name, np.ndarray]]
) -> set[_Name]:
    """Return the names of the values that are not the same in each call.

    Args:
      call: returns the values of a further call, given its number from 1.
    """
    varying: set[_Name] = set()
    for number in range(1, _CALLS):
        if varying == names:
            break
        values = call(number)
        varying |= {n for n in names - varying if not _equal(first[n], values[n])}
    return varying


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc" and b.dtype.kind in "fc")
