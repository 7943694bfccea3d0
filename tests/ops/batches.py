"""Batched checks of op cases, in one ``tf.function`` and one ``jax.jit``.

Compiling costs more than all else in a small case. The cases of a batch that agrees with TensorFlow have passed. The
cases of any other batch are checked one by one, so that a failure names its case.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import tensorflow as tf

from tests.compiling import fast_options

from . import harness
from .harness import Case, Gradient, Subject

__all__ = ["Together", "check", "plan", "tiered"]

SIZE = 16  # cases in a batch: of 8, 16 and 32 the least time for test_math and test_reduce together
LOW_PRECISION = ("float16", "bfloat16")
WITHOUT_X64 = 4  # cases in a batch that also run in 32-bit mode, where they qualify: a tenth of the time

_planned: dict[int, _Batch] = {}  # by the id of each case


def tiered(cases: Sequence[Case]) -> list[Any]:
    """Return the cases as pytest parameters, marked with their tiers.

    Of each op, the case with most features is in the default tier, and each case whose ``tier`` says so; of the cases
    that expect an error, the first of each op, too. The others are in the full tier.
    """
    chosen = {id(case) for case in representatives(cases)}
    params = []
    for case in cases:
        tier = case.tier or ("default" if id(case) in chosen else "full")
        marks = () if tier == "default" else getattr(pytest.mark, tier)
        params.append(pytest.param(case, id=str(case), marks=marks))
    return params


def representatives(cases: Sequence[Case]) -> list[Case]:
    """Return the case of each op with most features, and the first expected error."""
    chosen: dict[tuple[str, bool], Case] = {}
    for case in cases:
        key = case.op, bool(case.error)
        if key not in chosen or (not case.error and _features(case) > _features(chosen[key])):
            chosen[key] = case
    return list(chosen.values())


def _features(case: Case) -> tuple[int, int]:
    """Return a measure of a case: kinds of check it takes part in, then attributes."""
    arrays = [a for value in case.inputs for a in (value if isinstance(value, list) else [value])]
    dtypes = {a.dtype.name for a in arrays}
    differentiable = case.grad and any(harness.differentiable([a]) for a in arrays)
    checks = 3 * bool(case.symbolic) + 3 * differentiable + 2 * case.jit + case.vmap
    return checks + bool(dtypes.intersection(LOW_PRECISION)) + all(a.size > 1 for a in arrays), len(case.attrs)


def check(case: Case) -> None:
    """Compare the converted op with TensorFlow, in a batch if the session has one."""
    batch = _planned.get(id(case))
    if batch is None or not batch.passes():
        harness.check(case)


def plan(cases: Sequence[Case], eager: bool = True) -> None:
    """Put cases that will be checked in one process into batches.

    Args:
      eager: run a case of each op in a batch outside of ``jit``, too, which takes longer than all other checks.
    """
    for kind in (False, True):
        members = [c for c in cases if c.jit and not c.error and c.xla is kind]
        for start in range(0, len(members), SIZE):
            batch = _Batch(members[start : start + SIZE], eager)
            _planned.update((id(case), batch) for case in batch.cases)


@dataclasses.dataclass
class _Batch:
    """Cases that are checked at once, and whether they agreed with TensorFlow."""

    cases: list[Case]
    eager: bool
    agreed: bool | None = None

    def passes(self) -> bool:
        """Return whether all cases agree; check them at the first call."""
        if self.agreed is None:
            try:
                with jax.enable_x64(True):
                    _check_together(self.cases, self.eager)
            except Exception:  # the check of each case alone reports it
                self.agreed = False
            else:
                self.agreed = True
        return self.agreed


def _check_together(cases: list[Case], eager: bool) -> None:
    together = Together.of(cases)
    together.compare(jax.jit(together.program, compiler_options=fast_options())(*together.arguments))
    subjects, results = together.subjects, together.results
    run_eagerly = representatives(cases) if eager else []
    for subject, result in zip(subjects, results, strict=True):
        if subject.case.symbolic:
            harness.check_export(subject.case, subject, result.values)
        if subject.case in run_eagerly:
            harness.compare(subject.case, result.values, subject.converted(*subject.traced_arrays), "eager")
    part = {subject.case.op: index for index, subject in reversed(list(enumerate(subjects)))}
    chosen = sorted(part.values())[:WITHOUT_X64]
    harness.check_without_x64([subjects[i] for i in chosen], [results[i].values for i in chosen])


@dataclasses.dataclass(frozen=True)
class Together:
    """Cases as one program: values, values under ``vmap``, and gradients.

    Attributes:
      gradients: TensorFlow's gradients and ours, None where there are none.
    """

    subjects: list[Subject]
    results: list[_Result]
    gradients: list[Gradient | None]
    arguments: tuple[Any, Any, Any]

    @classmethod
    def of(cls, cases: Sequence[Case]) -> Together:
        """Convert the cases, and ask TensorFlow."""
        subjects = [Subject(case) for case in cases]
        inputs = [subject.traced_arrays for subject in subjects]
        rows = [
            harness.batched_inputs(arrays) if case.vmap and arrays else None
            for case, arrays in zip(cases, inputs, strict=True)
        ]
        results = _tensorflow(subjects, [None if row is None else row[1] for row in rows])
        gradients = [
            None if result.gradient is None else Gradient.from_tensorflow(subject.case, subject, *result.gradient)
            for subject, result in zip(subjects, results, strict=True)
        ]
        stacked = [None if row is None else row[0] for row in rows]
        points = [None if g is None else (g.points, g.cotangents) for g in gradients]
        return cls(subjects, results, gradients, (inputs, stacked, points))

    def program(self, inputs: Any, stacked: Any, points: Any) -> list[Any]:
        """Return values, values of stacked inputs and gradients of each case."""
        return [
            (
                subject.converted(*args),
                None if batch is None else jax.vmap(subject.converted)(*batch),
                None if gradient is None else gradient.backward(*point),
            )
            for subject, args, batch, gradient, point in zip(
                self.subjects, inputs, stacked, self.gradients, points, strict=True
            )
        ]

    def compare(self, found: Sequence[Any]) -> None:
        """Fail unless the results of `program` are TensorFlow's."""
        for index in range(len(self.subjects)):
            self.compare_case(index, found[index])

    def compare_case(self, index: int, found: tuple[Any, Any, Any]) -> None:
        """Fail unless the results of one case are TensorFlow's."""
        case, result, gradient = self.subjects[index].case, self.results[index], self.gradients[index]
        values, mapped, derivatives = found
        harness.compare(case, result.values, values, "jit")
        if gradient is not None:
            gradient.compare(derivatives)
        if mapped is not None:
            for position, row in enumerate([result.values, result.other_values]):
                harness.compare(case, row, [np.asarray(v)[position] for v in mapped], f"vmap row {position}", 10.0)


class _Result(NamedTuple):
    """TensorFlow's results for a case.

    Attributes:
      other_values: results for the second row of the inputs that are stacked for ``vmap``.
      gradient: the arguments of `Gradient.from_tensorflow`, or None without a gradient.
    """

    values: list[Any]
    other_values: list[Any]
    gradient: tuple[list[int], list[np.ndarray], list[Any]] | None


def _tensorflow(subjects: list[Subject], others: list[list[np.ndarray] | None]) -> list[_Result]:
    """Run the ops of all subjects in one TensorFlow function."""
    upstream: list[Any] = []

    def everything(arrays: list[list[tf.Tensor]], others: list[list[tf.Tensor]]) -> list[Any]:
        upstream.clear()
        found = []
        for subject, tensors, other in zip(subjects, arrays, others, strict=True):
            values, gradients = subject.call_op(*tensors), None
            wanted = harness.differentiable(subject.traced_arrays)
            upstream.append(None)
            if subject.case.grad and wanted:
                try:
                    inexact, seeds = upstream[-1] = harness.upstream_gradients(values)
                    gradients = tf.gradients(
                        [values[i] for i in inexact], [tensors[i] for i in wanted], list(map(tf.constant, seeds))
                    )
                except harness.NO_GRADIENT:
                    gradients = None
            found.append((values, subject.call_op(*other) if other else [], gradients and _dense(gradients)))
        return found

    def constants(arrays: list[Any]) -> list[list[tf.Tensor]]:
        return [[tf.constant(v) for v in values or []] for values in arrays]

    function = tf.function(everything, autograph=False, jit_compile=subjects[0].case.xla)
    with tf.device("cpu:0"):
        found = function(constants([subject.traced_arrays for subject in subjects]), constants(others))
    return [
        _Result([t.numpy() for t in values], [t.numpy() for t in other], gradients and (*seeds, gradients))
        for (values, other, gradients), seeds in zip(found, upstream, strict=True)
    ]


def _dense(gradients: list[Any]) -> list[Any]:
    return [None if g is None else tf.convert_to_tensor(g) for g in gradients]
