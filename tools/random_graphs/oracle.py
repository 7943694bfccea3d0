"""TensorFlow beside the converted program, value by value.

A value agrees if it is TensorFlow's within the tolerance of its op's own tests. Differences of earlier values pass on
through a graph, and a comparison or a rounding makes large ones of small ones; so where a value does not agree, its
node alone runs in TensorFlow *on the converted program's own inputs*. That is exact in an eager run: each node is
judged by itself, and if all nodes are right, the graph is. Three things remain, and are counted: a compiled program
may hand a node inputs that are more precise than those it returns (fusion), a node with others inside has values of
its own that round, and cancellation makes the rounding of the inputs large. For these the node runs in TensorFlow on
inputs that are off by their own rounding, and the value must lie among the results ("rounding"), or it is no
farther from what TensorFlow computes in float64 than TensorFlow's own is ("float64"), or TensorFlow compiled by XLA
gives the same ("compiler").
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tests.ops.harness import TOLERANCE

from .programs import ERRORS, PARAM, Node, Program, Ref, make_variables, run, run_node, trace

TRIALS = 8


@dataclasses.dataclass(frozen=True)
class Finding:
    """A node that differs, or an error.

    Attributes:
      number: the node's, or -1.
    """

    kind: str
    how: str
    number: int
    op: str
    message: str


@dataclasses.dataclass
class Outcome:
    """What came of one program.

    Attributes:
      finding: the first difference, or None.
      explained: how many values differ for which reason.
    """

    finding: Finding | None = None
    explained: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    values: int = 0
    jitted: bool = False


def check(program: Program, jit: bool = True) -> Outcome:
    """Compare the converted program with TensorFlow's, eager and compiled.

    Raises:
      Refused: TensorFlow does not trace the program.
    """
    with jax.enable_x64(True):
        return _check(program, jit)


def _check(program: Program, jit: bool) -> Outcome:
    variables = make_variables(program)
    function, order = trace(program, variables)
    args = [tf.constant(p) for p in program.params]
    outcome = Outcome()
    specs = [tf.TensorSpec(p.shape, p.dtype) for p in program.params]
    try:
        jax_fn, params = tf2jax.convert(function, *specs)
    except Exception as error:
        outcome.finding = _failure("convert", error, program)
        return outcome
    try:
        expected = dict(zip(order, [t.numpy() for t in function(*args)], strict=True))
    except ERRORS:
        return outcome  # the graph's kernels refuse what eager ones took
    outcome.jitted = jit and all(node.jit for node in program.nodes)
    runs: dict[str, Callable[..., Any]] = {"eager": jax_fn}
    if outcome.jitted:
        runs["jit"] = jax.jit(jax_fn, compiler_options=fast_options())
    for how, call in runs.items():
        # Numpy arguments are static outside of jit: the ops' NumPy implementations run. Now and then, JAX's own arrays.
        arrays = how == "eager" and program.size() % 4 == 0
        try:
            results, _ = call(params, *(map(jax.numpy.asarray, program.params) if arrays else program.params))
            actual = dict(zip(order, map(np.asarray, results), strict=True))
        except Exception as error:
            if how == "jit" and "dynamic_shape_bound" in str(error):
                outcome.explained["bound"] += 1
                outcome.jitted = False
                continue
            outcome.finding = _failure(how, error, program)
            return outcome
        outcome.finding = _Judge(program, expected, actual, how, outcome, variables).first()
        if outcome.finding is not None:
            return outcome
    return outcome


def judge(
    program: Program, expected: Mapping[Ref, np.ndarray], actual: Mapping[Ref, np.ndarray], how: str
) -> Finding | None:
    """Return the first node of a run that is wrong, None if none is."""
    return _Judge(program, expected, actual, how, Outcome(), make_variables(program)).first()


def _failure(how: str, error: Exception, program: Program) -> Finding:
    text = str(error)
    named = [node for node in program.nodes if f"'n{node.number}'" in text or f"/n{node.number}'" in text]
    node = named[0] if named else None
    op = "" if node is None else node.op or node.kind
    return Finding(type(error).__name__, how, node.number if node else -1, op, text[:2000])


@dataclasses.dataclass
class _Judge:
    """One run of a converted program, against TensorFlow's."""

    program: Program
    expected: Mapping[Ref, np.ndarray]
    actual: Mapping[Ref, np.ndarray]
    how: str
    outcome: Outcome
    variables: Mapping[str, tf.Variable]

    def first(self) -> Finding | None:
        """Return the first node that is wrong."""
        state = dict(self.program.variables)
        values: dict[Ref, np.ndarray] = {Ref(PARAM, i): p for i, p in enumerate(self.program.params)}
        written: set[str] = set()  # by compound nodes, whose inner nodes may compute in float32
        for node in self.program.nodes:
            refs = [ref for ref in self.expected if ref.node == node.number]
            if node.kind in ("read", "add") and node.op in written:
                rtol, atol = TOLERANCE["float32"]
                node = dataclasses.replace(node, rtol=rtol, atol=atol)
            finding = self.judge(node, refs, values, state)
            if finding is not None:
                return finding
            for ref in refs:
                strings = self.expected[ref].dtype == object
                values[ref] = self.expected[ref] if strings else self.actual[ref]
            if node.kind in ("read", "assign", "add"):
                state[node.op] = self.actual[refs[0]]
                written.discard(node.op)
            elif node.bodies and state:
                with contextlib.suppress(*ERRORS):
                    self._run(node, values, state)
                    after = {name: variable.numpy() for name, variable in self.variables.items()}
                    written |= {name for name, value in after.items() if not _equal(state[name], value)}
                    state.update(after)
        return None

    def judge(
        self, node: Node, refs: list[Ref], values: Mapping[Ref, np.ndarray], state: Mapping[str, np.ndarray]
    ) -> Finding | None:
        """Return what is wrong with a node's results."""
        expected, actual = [self.expected[r] for r in refs], [self.actual[r] for r in refs]
        self.outcome.values += len(refs)
        message = _differ(node, expected, actual)
        if message is None:
            return None
        try:
            local = self._run(node, values, state)
        except ERRORS as error:  # TensorFlow refuses what it took a rounding error earlier
            self.outcome.explained[f"refused: {type(error).__name__}"] += 1
            return None
        message = _differ(node, local, actual)
        if message is None:
            self.outcome.explained["inputs"] += 1
            return None
        kind, text = message
        if kind == "value":
            if self._is_rounding(node, local, actual, values, state):
                self.outcome.explained["rounding"] += 1
                return None
            if self._is_closer(node, local, actual, values, state):
                self.outcome.explained["float64"] += 1
                return None
            if self.how == "jit" and self._is_compilers(node, actual):
                self.outcome.explained["compiler"] += 1
                return None
        return Finding(kind, self.how, node.number, node.op if node.kind == "op" else node.kind, text)

    def _run(self, node: Node, values: Mapping[Ref, Any], state: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, variable in self.variables.items():
            variable.assign(state[name])
        tensors = {ref: tf.constant(values[ref]) for ref in node.refs()}
        return [np.asarray(t.numpy()) for t in run_node(node, tensors, self.variables)]

    def _is_rounding(self, node: Node, local: Any, actual: Any, values: Any, state: Any) -> bool:
        exact = self.how == "eager" and node.kind == "op"  # then integers and booleans have no excuse
        if exact and not any(_inexact(v) for v in local):
            return False
        rng = np.random.default_rng(0)
        samples = [local]
        for trial in range(TRIALS):
            moved = {ref: _moved(values[ref], rng, trial) for ref in node.refs()}
            moved_state = {name: _moved(v, rng, trial) for name, v in state.items()}
            try:
                samples.append(self._run(node, moved, moved_state))
            except ERRORS:
                continue
        for index, value in enumerate(actual):
            column = [s[index] for s in samples if s[index].shape == value.shape]
            if exact and not _inexact(value):
                if not _equal(local[index], value):
                    return False
            elif not _within(column, value, node):
                return False
        return True

    def _is_compilers(self, node: Node, actual: list[np.ndarray]) -> bool:
        """Return whether TensorFlow, compiled by XLA, has the same result."""
        # XLA simplifies ``log(pow(x, y))``, for example.
        for name, variable in self.variables.items():
            variable.assign(self.program.variables[name])
        order: list[Ref] = []

        @tf.function(jit_compile=True, autograph=False)
        def compiled(*args: Any) -> list[Any]:
            values = run(self.program, args, self.variables)
            order[:] = [ref for ref in self.expected if ref.node == node.number]
            return [values[ref] for ref in order]

        try:
            theirs = [t.numpy() for t in compiled(*map(tf.constant, self.program.params))]
        except ERRORS:
            return False
        return _differ(node, theirs, actual) is None

    def _is_closer(self, node: Node, local: Any, actual: Any, values: Any, state: Any) -> bool:
        """Return whether results are as near to float64 ones as TensorFlow's are."""
        if node.kind != "op" or not all(_inexact(v) for v in local):
            return False
        widened = {ref: _wide(values[ref]) for ref in node.refs()}
        constants = tuple(
            _wide(np.asarray(v))
            if isinstance(v, np.ndarray | np.generic)
            else [_wide(e) for e in v]
            if _constants(v)
            else v
            for v in node.inputs
        )
        attrs = {k: _WIDE_TYPES.get(v, v) if isinstance(v, tf.DType) else v for k, v in node.attrs.items()}
        try:
            truth = self._run(dataclasses.replace(node, inputs=constants, attrs=attrs), widened, state)
        except ERRORS:
            return False
        for t, e, a in zip(truth, local, actual, strict=True):
            if t.shape != a.shape or t.dtype == e.dtype:
                return False
            ours, theirs = (np.abs(_wide(v) - t) for v in (a, e))
            eps = float(ml_dtypes.finfo(a.dtype).eps)
            scale = np.max(np.abs(t), initial=0, where=np.isfinite(t))
            same = (np.isnan(t) & np.isnan(_wide(a))) | (t == _wide(a))
            if not (same | (ours <= 4 * np.max(theirs, initial=0, where=np.isfinite(theirs)) + 4 * eps * scale)).all():
                return False
        return True


_WIDE_TYPES = {tf.float32: tf.float64, tf.float16: tf.float64, tf.bfloat16: tf.float64, tf.complex64: tf.complex128}


def _constants(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(v, Ref) for v in value)


def _inexact(value: np.ndarray) -> bool:
    return value.dtype.name in TOLERANCE


def _wide(value: np.ndarray) -> np.ndarray:
    if not _inexact(value):
        return value
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _moved(value: np.ndarray, rng: np.random.Generator, trial: int) -> np.ndarray:
    """Return a value off by its rounding: up, down, or either way."""
    if not _inexact(value):
        return value
    sign = (
        np.ones(value.shape)
        if trial == 0
        else -np.ones(value.shape)
        if trial == 1
        else rng.choice([-1, 1], value.shape)
    )
    with np.errstate(all="ignore"):
        return (_wide(value) * (1 + 2 * float(ml_dtypes.finfo(value.dtype).eps) * sign)).astype(value.dtype)


def _equal(expected: np.ndarray, actual: np.ndarray) -> bool:
    try:
        np.testing.assert_array_equal(actual, expected)
    except AssertionError:
        return False
    return True


def _within(samples: list[np.ndarray], value: np.ndarray, node: Node) -> bool:
    """Return whether elements lie among the samples', or near by their spread."""
    stack = np.stack([_wide(s) for s in samples])
    wide = _wide(value)
    if not _inexact(value):
        if value.dtype.kind in "iu":
            return bool(((stack.min(0) <= wide) & (wide <= stack.max(0))).all())
        return bool((stack == wide).any(0).all())
    rtol, atol = _tolerance(node, value)
    parts = [(stack.real, wide.real), (stack.imag, wide.imag)] if value.dtype.kind == "c" else [(stack, wide)]
    with np.errstate(all="ignore"):
        for sample, part in parts:
            low, high = np.nanmin(sample, 0), np.nanmax(sample, 0)
            margin = 2 * (high - low) + atol + rtol * np.maximum(np.abs(low), np.abs(high))
            near = (part >= low - margin) & (part <= high + margin)
            same = ((sample == part) | (np.isnan(sample) & np.isnan(part))).any(0)
            if not (near | same).all():
                return False
    return True


def _tolerance(node: Node, value: np.ndarray) -> tuple[float, float]:
    # Other nodes are inside of a compound one, and some of them may compute in float32, or in less.
    names = [value.dtype.name, *({"float32"} | _halves(node) if node.bodies else ())]
    rtol, atol = max(TOLERANCE[name] for name in names)
    return (node.rtol if node.rtol is not None else rtol), (node.atol if node.atol is not None else atol)


def _halves(node: Node) -> set[str]:
    """Return the dtypes of half precision that are computed in inside of a node."""
    found: set[str] = set()
    for inner in (inner for body in node.bodies for inner in body.nodes):
        flat = [v for value in inner.inputs for v in (value if isinstance(value, list) else [value])]
        found |= {v.dtype.name for v in flat if not isinstance(v, Ref)}
        found |= {v.name for v in inner.attrs.values() if isinstance(v, tf.DType)}
        found |= _halves(inner)
    return (found | {p.dtype.name for body in node.bodies for p in body.params}) & {"float16", "bfloat16"}


def _differ(node: Node, expected: list[np.ndarray], actual: list[np.ndarray]) -> tuple[str, str] | None:
    """Return in what respect two lists of results differ, and a text; None if in none."""
    if len(expected) != len(actual):
        return "number", f"{len(actual)} results, TensorFlow has {len(expected)}"
    for index, (e, a) in enumerate(zip(expected, actual, strict=True)):
        if e.dtype == object:
            continue
        if a.dtype != e.dtype:
            return "dtype", f"result {index} has dtype {a.dtype}, TensorFlow {e.dtype}"
        if a.shape != e.shape:
            return "shape", f"result {index} has shape {a.shape}, TensorFlow {e.shape}"
    try:
        if node.compare is not None:
            node.compare(expected, actual)
            return None
        for index, (e, a) in enumerate(zip(expected, actual, strict=True)):
            if e.dtype == object:
                continue
            if not _inexact(e):
                np.testing.assert_array_equal(a, e, err_msg=f"result {index}")
                continue
            rtol, atol = _tolerance(node, e)
            np.testing.assert_allclose(_wide(a), _wide(e), rtol=rtol, atol=atol, err_msg=f"result {index}")
    except (AssertionError, np.linalg.LinAlgError) as error:
        return "value", str(error)
    return None
