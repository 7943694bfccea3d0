"""Find the nodes that differ, by lockstep evaluation of both sides.

Each node runs in TensorFlow on TensorFlow's values and in JAX on JAX's values; the difference of their results is the
accumulated error. Where it is large, the node runs in JAX once more on TensorFlow's values, which isolates its own
error. Calls and branches are entered, and loops iteration by iteration.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import re
import timeit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import CALLS, CASES, IFS, WHILES
from tf2jax_lite.lowering import Program, Trace
from tf2jax_lite.lowering.interpreter.frame import Frame
from tf2jax_lite.lowering.planning.plan import Plan, Step
from tf2jax_lite.ops.containers.lookup_table import Table
from tf2jax_lite.values import static

from .compare import is_float, relative_error, tolerance_of
from .eager_ops import run_node
from .results import Bisection, NodeError, Suspect, describe_inputs, short_attributes
from .targets import Target

# Longer loops are evaluated as one node.
_MAX_ITERATIONS = 64
# How much a node's error must exceed that of its inputs where the node cannot be run on TensorFlow's values.
_JUMP = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class ValuePair:
    """One tensor on both sides, and its relative error.

    The error is None for resources and strings. The error of a variant (a list of tensors) is that of the tensors in
    it.
    """

    tf: Any
    jax: Any
    error: float | None


class _TooLong(Exception):
    """A loop has too many iterations to enter."""


def bisect(
    target: Target,
    inputs: Sequence[np.ndarray],
    *,
    rtol: float | None = None,
    seed: int = 0,
    most: int = 5,
    timing: bool = False,
) -> Bisection:
    """Evaluate a function on both sides, node by node.

    Args:
      target: the function.
      inputs: its flat inputs.
      rtol: relative error above which a node is a suspect; default: the tolerance of its dtype.
      seed: for nodes that draw random numbers; TensorFlow's numbers are used for both sides.
      most: the maximum number of suspects to describe.
      timing: measure the time of each node in JAX, too.
    """
    evaluation = LockstepEvaluation(target, rtol, seed, most, timing)
    return evaluation.main(inputs)


class LockstepEvaluation:
    """Lockstep evaluation of a function, step by step; arguments as of `bisect`."""

    def __init__(self, target: Target, rtol: float | None, seed: int, most: int, timing: bool = False):
        converted = target.converted
        self._target = target
        self._program: Program = converted.program
        self._rtol = rtol
        self._most = most
        self._timing = timing
        self._trace = Trace(
            self._program, dict(target.params), jax.random.key(seed), promote_dtypes=converted.promote_dtypes
        )
        self._variables = {
            name: tf.Variable(tf.constant(np.asarray(value), tf.dtypes.as_dtype(converted.variables[name].dtype)))
            for name, value in target.params.items()
        }
        self._variable_errors: dict[str, float] = {}
        self._records: dict[tuple[str, ...], NodeError] = {}
        self._seconds: dict[tuple[str, ...], float | None] = {}
        self._runs: collections.Counter[tuple[str, ...]] = collections.Counter()
        self._suspects: dict[tuple[str, ...], Suspect] = {}
        self._not_run: dict[str, str] = {}
        self._functions: list[str] = []
        self._iterations: list[int] = []
        self._used: list[bool] = []
        self._tf_only = False

    def main(self, inputs: Sequence[np.ndarray]) -> Bisection:
        """Return the nodes that differ."""
        errors = [p.error for p in self.results(inputs) if p.error is not None]
        return Bisection(
            suspects=list(self._suspects.values()),
            nodes=[
                dataclasses.replace(record, seconds=None if once is None else once * self._runs[key])
                for key, record in self._records.items()
                for once in [self._seconds.get(key)]
            ],
            error=max(errors, default=0.0),
            not_run=dict(self._not_run),
        )

    def results(self, inputs: Sequence[Any]) -> list[ValuePair]:
        """Return the function's flat results on both sides."""
        graph = self._program.graph
        captured = {c.index: c.value for c in graph.captures}
        pairs = []
        for index in range(len(graph.main.args)):
            value = captured[index] if index in captured else inputs[index]
            if isinstance(value, ir.Variable):
                handle = static.VariableHandle(value.name, value.dtype, value.shape)
                pairs.append(ValuePair(self._variables[value.name].handle, handle, None))
            elif isinstance(value, Table):  # TensorFlow's own is in a session
                pairs.append(ValuePair(None, value, None))
            else:
                pairs.append(ValuePair(tf.constant(value), value, 0.0))
        return self._run(self._program.plan(graph.main), pairs, self._trace.root_frame())

    def _run(self, plan: Plan, args: Sequence[ValuePair], frame: Frame) -> list[ValuePair]:
        env: list[Any] = [None] * plan.size
        env[: len(args)] = args
        self._functions.append(plan.function.name)
        used = {*plan.outputs, *(i for step in plan.steps for i in step.inputs)}
        try:
            for step in plan.steps:
                # Kernels may leave unused results undefined.
                self._used = [slot in used for slot in step.outputs]
                results = self._step(step, [env[i] for i in step.inputs], frame)
                for slot, pair in zip(step.outputs, results, strict=True):
                    env[slot] = pair
                for slot in step.release:
                    env[slot] = None
        finally:
            self._functions.pop()
        return [env[i] for i in plan.outputs]

    def _step(self, step: Step, pairs: list[ValuePair], frame: Frame) -> list[ValuePair]:
        op, kwargs = step.node.op, step.kwargs
        if op in CALLS:
            return self._call(kwargs["f"], pairs, frame.enter(step))
        if op in IFS and pairs[0].tf is not None:
            branch = kwargs["then_branch"] if _as_bool(pairs[0].tf) else kwargs["else_branch"]
            return self._call(branch, pairs[1:], frame.enter(step))
        if op in CASES and pairs[0].tf is not None:
            index, last = int(pairs[0].tf), len(kwargs["branches"]) - 1
            return self._call(kwargs["branches"][index if 0 <= index <= last else last], pairs[1:], frame.enter(step))
        if op in WHILES:
            return self._loop(step, pairs, frame)
        return self._leaf(step, pairs, frame, lambda: run_node(step.node, [p.tf for p in pairs]))

    def _call(self, ref: ir.FunctionRef, pairs: Sequence[ValuePair], frame: Frame) -> list[ValuePair]:
        return self._run(self._program.plan(self._program.function(ref.name)), pairs, frame)

    def _loop(self, step: Step, pairs: list[ValuePair], frame: Frame) -> list[ValuePair]:
        state = dict(self._trace.state)
        before = {name: variable.read_value() for name, variable in self._variables.items()}
        depth, used = len(self._functions), self._used
        try:
            return self._iterate(step, pairs, frame, None if self._tf_only else _MAX_ITERATIONS)
        except _TooLong:
            del self._functions[depth:]
            self._used = used
            self._trace = self._trace.with_state(state)
            for name, value in before.items():
                self._variables[name].assign(value)
        return self._leaf(step, pairs, frame, lambda: self._loop_in_tf(step, pairs, frame))

    def _iterate(self, step: Step, pairs: list[ValuePair], frame: Frame, limit: int | None) -> list[ValuePair]:
        count = 0
        self._iterations.append(0)
        try:
            while True:
                self._iterations[-1] = count
                inner = frame.enter(step, count)
                if not _as_bool(self._call(step.kwargs["cond"], pairs, inner)[0].tf):
                    return pairs
                if limit is not None and count >= limit:
                    raise _TooLong
                pairs = self._call(step.kwargs["body"], pairs, inner)
                count += 1
        finally:
            self._iterations.pop()

    def _loop_in_tf(self, step: Step, pairs: list[ValuePair], frame: Frame) -> list[Any]:
        self._tf_only = True
        try:
            return [p.tf for p in self._iterate(step, pairs, frame, None)]
        finally:
            self._tf_only = False

    def _leaf(self, step: Step, pairs: list[ValuePair], frame: Frame, run: Callable[[], list[Any]]) -> list[ValuePair]:
        node, op, used = step.node, step.op, self._used
        if self._tf_only:
            return [ValuePair(t, None, None) for t in run()]
        if op.side_effect and not node.output_dtypes:
            return []
        written_before = self._written(pairs) if op.writes else {}
        state = dict(self._trace.state)
        expected = self._tensorflow(node, pairs, run)
        if op.draws_random(step.node.attrs) and expected is not None:
            return [ValuePair(t, jnp.asarray(t.numpy()), 0.0) for t in expected]
        problem = ""
        try:
            actual = self._trace.apply(step, [p.jax for p in pairs], frame)
        except Exception as error:  # an error of the implementation is a finding
            problem, actual = f"{type(error).__name__}: {error}", None
        if expected is None:
            return [ValuePair(_as_tf(a), a, None) for a in actual or [None] * len(node.output_dtypes)]
        if actual is None:
            actual = [_as_jax(t) for t in expected]
        errors = _errors(expected, actual, used)
        for name in written_before:
            errors.append(self._variable_errors.setdefault(name, 0.0))
            self._variable_errors[name] = errors[-1] = self._variable_error(name, self._trace.state)
        known = [e for e in errors if e is not None]
        own = _NodeInIsolation(self, step, pairs, frame, expected, used, written_before, state)
        self._record_node(step, frame, pairs, max(known, default=0.0), bool(known), problem, own)
        inside = max((p.error for p in pairs if p.error is not None), default=None)
        errors = [
            inside if e is None and (t.dtype == tf.variant or _is_symbol(a)) else e
            for t, a, e in zip(expected, actual, errors, strict=False)
        ]
        return [ValuePair(t, a, e) for t, a, e in zip(expected, actual, errors, strict=True)]

    def _tensorflow(self, node: ir.Node, pairs: list[ValuePair], run: Callable[[], list[Any]]) -> list[Any] | None:
        """Return TensorFlow's results, or None if it cannot run the node by itself."""
        if any(p.tf is None for p in pairs):
            self._not_run.setdefault(node.name, "an input is not known")
            return None
        try:
            results = run()
        except Exception as error:  # raw ops raise any exception for unsupported inputs
            self._not_run.setdefault(node.name, f"{node.op}: {str(error).splitlines()[0] if str(error) else error!r}")
            return None
        if len(results) != len(node.output_dtypes):
            self._not_run.setdefault(node.name, f"{node.op}: {len(results)} results")
            return None
        return results

    def _record_node(
        self,
        step: Step,
        frame: Frame,
        pairs: list[ValuePair],
        error: float,
        known: bool,
        problem: str,
        own: _NodeInIsolation,
    ) -> None:
        node = step.node
        incoming = [p.error for p in pairs if p.error is not None]
        incoming += [self._variable_errors.get(n, 0.0) for n in _handles(pairs) if n not in own.written_before]
        before = max(incoming, default=0.0)
        tolerance = self._tolerance(node)
        itself: float | None = None
        suspicious = bool(problem)
        if known and error <= tolerance:
            itself = error if before == 0 else None
        elif known and not problem:
            itself = error if before == 0 else own.error()
            limit = max(before * _JUMP, tolerance) if itself is None else tolerance
            suspicious = (error if itself is None else itself) > limit
        key = (self._functions[-1], *frame.path, node.name)  # a loop's condition and body have nodes of one name
        path = "/".join(key[1:])
        if self._timing:
            self._runs[key] += 1
            if key not in self._seconds:
                self._seconds[key] = own.seconds()
        known_record = self._records.get(key)
        if known and (known_record is None or error > known_record.error):
            order = len(self._records) if known_record is None else known_record.order
            place = {"node": node.name, "calls": frame.path, "function": self._functions[-1]}
            found = NodeError(order, path, node.op, _finite(error), _finite(before), suspicious, **place)
            self._records[key] = found
        if suspicious and key not in self._suspects and len(self._suspects) < self._most:
            self._suspects[key] = Suspect(
                node=node.name,
                op=node.op,
                path=path,
                function=self._functions[-1],
                attributes=short_attributes(node),
                inputs=describe_inputs(node, [p.tf for p in pairs]),
                error=_finite(error),
                input_error=_finite(before),
                own_error=None if itself is None else _finite(itself),
                iteration=list(self._iterations),
                location=locate(self._target, node, self._functions[-1]),
                problem=problem,
                step=step,
                arrays=[_as_numpy(p.tf, own.written_before, self._variables, p.jax) for p in pairs],
            )

    def _tolerance(self, node: ir.Node) -> float:
        found = [tolerance_of(d, self._rtol) for d in node.output_dtypes if isinstance(d, np.dtype)]
        if any(isinstance(d, np.dtype) and not (is_float(d) or d.kind == "c") for d in node.output_dtypes):
            return 0.0 if not any(found) else max(found)
        return max(found, default=tolerance_of(np.float32, self._rtol))

    def _written(self, pairs: Sequence[ValuePair]) -> dict[str, np.ndarray]:
        return {n: self._variables[n].numpy() for n in _handles(pairs) if n in self._variables}

    def _variable_error(self, name: str, state: Mapping[str, Any]) -> float:
        value = state.get(name)
        return 0.0 if value is None else relative_error(self._variables[name].numpy(), np.asarray(value))


@dataclasses.dataclass
class _NodeInIsolation:
    """One node, run in JAX on TensorFlow's values."""

    evaluation: LockstepEvaluation
    step: Step
    pairs: list[ValuePair]
    frame: Frame
    expected: list[Any]
    used: list[bool]
    written_before: dict[str, np.ndarray]
    state: dict[str, Any]

    def error(self) -> float | None:
        """Return the node's own error; None if its inputs have no counterpart in JAX."""
        if any(is_opaque(p.tf) and not isinstance(p.jax, static.VariableHandle) for p in self.pairs):
            return None
        evaluation = self.evaluation
        trace = evaluation._trace.with_state(self.state)
        for name in _handles(self.pairs):
            if name in evaluation._variables:
                trace.state[name] = self.written_before.get(name, evaluation._variables[name].numpy())
        try:
            actual = trace.apply(self.step, [_on_tensorflow_values(p) for p in self.pairs], self.frame)
        except Exception:  # it ran on JAX's values, so its own error is unknown
            return None
        errors = _errors(self.expected, actual, self.used)
        errors += [evaluation._variable_error(n, trace.state) for n in self.written_before]
        known = [e for e in errors if e is not None]
        return max(known) if known else None

    def seconds(self) -> float | None:
        """Return the shortest of three compiled runs; None if the node does not run."""
        values = [pair.jax for pair in self.pairs]
        traced = {i: v for i, v in enumerate(values) if isinstance(v, jax.Array)}

        def run(arrays: Mapping[int, Any]) -> list[Any]:
            trace = self.evaluation._trace.with_state(self.state)
            results = trace.apply(self.step, [arrays.get(i, v) for i, v in enumerate(values)], self.frame)
            return [r for r in results if isinstance(r, jax.Array)]

        for call in (jax.jit(run), run):
            try:
                jax.block_until_ready(call(traced))
            except Exception:  # its shapes depend on values, or it is a finding
                continue
            return min(timeit.repeat(lambda call=call: jax.block_until_ready(call(traced)), number=1, repeat=3))
        return None


def _handles(pairs: Sequence[ValuePair]) -> list[str]:
    return [p.jax.name for p in pairs if isinstance(p.jax, static.VariableHandle)]


def _as_bool(value: Any) -> bool:
    found = value.numpy()
    if np.ndim(found):
        return bool(np.size(found))
    return bool(found != b"") if isinstance(found, bytes) else bool(found)


def is_opaque(tensor: Any) -> bool:
    """Return whether a TensorFlow tensor is missing or not numeric.

    Resources, variants and strings are not numeric.
    """
    return tensor is None or tensor.dtype in (tf.resource, tf.variant, tf.string)


def _errors(expected: Sequence[Any], actual: Sequence[Any], used: Sequence[bool]) -> list[float | None]:
    return [_error(t, a) if u else None for t, a, u in zip(expected, actual, used, strict=True)]


def _is_symbol(value: Any) -> bool:
    """Return whether a JAX value is no array, as a TensorArray's flow."""
    return not isinstance(value, (jax.Array, np.ndarray, np.generic))


def _error(tensor: Any, value: Any) -> float | None:
    if is_opaque(tensor) or _is_symbol(value):
        return None
    try:
        return relative_error(tensor.numpy(), np.asarray(static.as_array(value)))
    except (TypeError, ValueError):  # a value of JAX that is not an array
        return None


def _finite(error: float) -> float:
    return min(error, 1e300)


def _on_tensorflow_values(pair: ValuePair) -> Any:
    if is_opaque(pair.tf) or (pair.jax is not None and _is_symbol(pair.jax)):
        return pair.jax
    array = pair.tf.numpy()
    return np.asarray(array) if static.is_static(pair.jax) else jnp.asarray(array)


def _as_jax(tensor: Any) -> Any:
    return None if is_opaque(tensor) else jnp.asarray(tensor.numpy())


def _as_tf(value: Any) -> Any:
    try:
        return tf.constant(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic, jax.Array)) else None
    except (TypeError, ValueError):
        return None


def _as_numpy(tensor: Any, before: dict[str, np.ndarray], variables: dict[str, Any], handle: Any) -> Any:
    """Return an input's value, a variable's for a handle; None if it has none."""
    if isinstance(handle, static.VariableHandle):
        if handle.name in before:
            return before[handle.name]
        return variables[handle.name].numpy() if handle.name in variables else None
    return None if is_opaque(tensor) else tensor.numpy()


# Code of the libraries themselves: the user's line is the innermost one that is not in them.
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("tensorflow", "keras", "tf_keras", "tf2jax_lite"))


def locate(target: Target, node: ir.Node, function: str) -> str | None:
    """Return ``file:line`` for a node of a function, or None."""
    if node.location:
        return node.location
    if target.path is not None and target.path.is_dir():
        return _saved(target.path, node.name, function)
    function = re.sub(r"/[a-z]+_\d+$", "", function)  # of the versions that passes make of one
    graph = _graph(target.concrete.graph, function) or target.concrete.graph
    try:
        traceback = graph.get_operation_by_name(node.name).traceback
    except (KeyError, ValueError, AttributeError):
        return None
    return _users([(frame.filename, frame.lineno) for frame in traceback or ()])


def _graph(graph: Any, name: str) -> Any:
    pending, seen = [graph], set()
    while pending:
        for known, function in getattr(pending.pop(), "_functions", {}).items():
            key = known.decode() if isinstance(known, bytes) else known
            inner = getattr(function, "graph", None)
            if key == name:
                return inner
            if key not in seen and inner is not None:
                seen.add(key)
                pending.append(inner)
    return None


def _users(frames: Sequence[tuple[str, int]]) -> str | None:
    """Return the innermost frame (the last) that is a user's, else None."""
    for file, line in reversed(frames):
        if not any(part in file for part in _LIBRARIES) and not file.startswith("<"):
            return f"{file}:{line}"
    return None


def _saved(path: Path, node: str, function: str) -> str | None:
    """Return a location in the SavedModel's debug info, by unsuffixed function."""
    info = _debug_info(path)
    if info is None:
        return None
    found = {}
    for key, number in info.name_to_trace_id.items():
        name, _, where = key.partition("@")
        if name == node and number in info.traces_by_id:
            found[_base(where)] = info.traces_by_id[number]
    for key, trace in info.traces.items():  # as older versions wrote it
        name, _, where = key.partition("@")
        if name == node:
            found[_base(where)] = trace
    trace = found.get(_base(function)) or (next(iter(found.values())) if len(found) == 1 else None)
    if trace is None:
        return None
    lines = [*trace.file_line_cols, *(info.frames_by_id[i] for i in trace.frame_id if i in info.frames_by_id)]
    return _users([(info.files[f.file_index], f.line) for f in lines if 0 <= f.file_index < len(info.files)])


def _base(function: str) -> str:
    return re.sub(r"_\d+$", "", function)


@functools.lru_cache(maxsize=4)
def _debug_info(path: Path) -> Any:
    from tensorflow.core.framework import graph_debug_info_pb2

    file = path / "debug" / "saved_model_debug_info.pb"
    if not file.is_file():
        return None
    try:
        return graph_debug_info_pb2.GraphDebugInfo.FromString(file.read_bytes())
    except DecodeError:
        return None
