"""Reference results and gradients: TensorFlow's ops in float64.

If both sides agree in float64, they compute the same function, and their difference in float32 is round-off, however
much a logarithm near zero magnifies it. TensorFlow evaluates the graph node by node, JAX compiles it as a whole. A node
without a float64 kernel takes JAX's results, which are compared with TensorFlow's in the node's own dtype.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record as tf_record

from tf2jax_lite import ir
from tf2jax_lite.lowering import Program
from tf2jax_lite.lowering.interpreter.frame import Frame
from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.passes.float64 import widen, widen_array
from tf2jax_lite.pipeline.converted_function import ConvertedFunction

from .bisection import LockstepEvaluation, ValuePair, is_opaque
from .compare import compare_arrays, is_float, relative_error, tolerance_of
from .eager_ops import CannotRun, run_node, tf_dtype
from .runners import JaxRunner
from .targets import Target

# Error in units of rounding that a node may have in its own dtype: orders of summation differ.
_UNITS = 32.0
# Error of the gradient of such a node, as a fraction of its dtype's tolerance.
_SHARE = 0.1
# An eager op takes some 0.1 ms: longer loops are not worth the wait.
_MAX_NODES = 100_000


@dataclasses.dataclass(frozen=True)
class Float64Values:
    """Values of TensorFlow's ops in float64.

    Attributes:
      results: flat results, None for those that are not arrays; or one gradient per source.
      variables: values of the variables after the call, by name.
      error: largest relative difference of JAX's values, in float64 and compiled.
    """

    results: list[np.ndarray | None]
    variables: dict[str, np.ndarray]
    error: float


def evaluate_in_float64(target: Target, inputs: Sequence[Any]) -> Float64Values | None:
    """Evaluate a function in float64, node by node in TensorFlow.

    Returns:
      The values; None for a function that draws random numbers or casts to float16 and the like, which rounds on
      purpose.

    Raises:
      CannotRun: a node runs in TensorFlow neither in float64 nor, as JAX runs it, in its own dtypes.
    """
    in_double = _float64_target(target)
    if in_double is None:
        return None
    with jax.enable_x64(True):
        given = [widen_array(np.asarray(x)) for x in inputs]
        evaluation = _Float64Evaluation(in_double, target.converted.program.graph)
        found = [p.tf for p in evaluation.results(given)]
        results = [None if is_opaque(t) else t.numpy() for t in found]
        # Compilation of the whole function may cause the difference, so the compiled function is compared.
        ours, state = JaxRunner(in_double)(given)
        variables = evaluation.variable_values()
        errors = [relative_error(t, o) for t, o in zip(results, ours, strict=True) if t is not None]
        errors += [relative_error(value, state[name]) for name, value in variables.items()]
    return Float64Values(results, variables, max(errors, default=0.0))


def gradients_in_float64(
    target: Target,
    inputs: Sequence[Any],
    floating: Sequence[int],
    trainable: Sequence[str],
    upstream: Mapping[int, np.ndarray],
    in_jax: Callable[..., list[np.ndarray]],
) -> Float64Values | None:
    """Compute gradients in float64 by a ``tf.GradientTape`` over the function's nodes.

    Args:
      floating: positions of the inputs to differentiate with respect to.
      trainable: names of the variables to differentiate with respect to; they come first.

    Raises:
      UnsupportedError, CannotRun: as `evaluate_in_float64`.
    """
    in_double = _float64_target(target)
    if in_double is None:
        return None
    with jax.enable_x64(True):
        given = [widen_array(np.asarray(x)) for x in inputs]
        tensors = [tf.constant(x) for x in given]
        above = {i: widen_array(u) for i, u in upstream.items()}
        evaluation = _Float64Evaluation(in_double, target.converted.program.graph)
        sources = [*(evaluation.variables[name] for name in trainable), *(tensors[i] for i in floating)]
        with tf.GradientTape() as tape:
            for source in sources:
                tape.watch(source)
            results = evaluation.results(tensors)
        found = tape.gradient([results[i].tf for i in above], sources, [tf.constant(u) for u in above.values()])
        theirs = [
            np.zeros(s.shape) if g is None else tf.convert_to_tensor(g).numpy()
            for s, g in zip(sources, found, strict=True)
        ]
        ours = in_jax(in_double, given, floating, trainable, above)
        scale = max((float(np.max(np.abs(t), initial=0)) for t in theirs), default=0.0) or 1.0
        compared = [compare_arrays("", t, o, scale=scale) for t, o in zip(theirs, ours, strict=True)]
    error = max((float("inf") if c.problem else c.max_rel_error for c in compared), default=0.0)
    return Float64Values(list(theirs), {}, error)


def _float64_target(target: Target) -> Target | None:
    converted = target.converted
    if converted.program.random_nodes or any(_rounds(node) for _, node in converted.program.graph.walk()):
        return None
    program = Program(widen(converted.program.graph), converted.config, None, converted.program.evaluator)
    in_double = ConvertedFunction(program, converted.interface, converted.config, promote_dtypes=True)
    params = {name: widen_array(value) for name, value in target.params.items()}
    return dataclasses.replace(target, converted=in_double, params=params)


class _Float64Evaluation(LockstepEvaluation):
    """Evaluation of a graph in TensorFlow in float64, without JAX values.

    Its `ValuePair`s hold JAX's variable handles alone.

    Raises:
      CannotRun: of `results`, see `evaluate_in_float64`.
    """

    def __init__(self, target: Target, narrow: ir.Graph):
        super().__init__(target, None, 0, 0)
        self._tf_only = True
        self._left = _MAX_NODES
        self._nodes = {(function.name, node.name): node for function, node in narrow.walk()}
        self._dtypes = {key: node.output_dtypes for key, node in self._nodes.items()}
        functions = (narrow.main, *narrow.functions.values())
        self._dtypes |= {(function.name, a.name): (a.dtype,) for function in functions for a in function.args}

    @property
    def variables(self) -> Mapping[str, Any]:
        """TensorFlow's variables by name."""
        return self._variables

    def variable_values(self) -> dict[str, np.ndarray]:
        """Return the values that TensorFlow's variables hold."""
        return {name: variable.numpy() for name, variable in self._variables.items()}

    def _leaf(self, step: Step, pairs: list[ValuePair], frame: Frame, run: Callable[[], list[Any]]) -> list[ValuePair]:
        node = step.node
        if step.op.side_effect and not node.output_dtypes:
            return []
        self._left -= 1
        if self._left < 0:
            raise CannotRun(f"more than {_MAX_NODES} nodes run")
        if node.op == "_CustomGradient":
            results = self._custom_gradient(step, pairs, frame)
        else:
            try:
                results = run()
            except Exception:  # raw ops raise any exception for unsupported inputs
                results = self._in_jax(step, pairs, frame)
        return [ValuePair(t, None, None) for t in results]

    def _custom_gradient(self, step: Step, pairs: list[ValuePair], frame: Frame) -> list[Any]:
        """Return results of a node with another function's gradient; record it."""
        count, inputs, _ = (int(group or 0) for group in step.node.groups)
        given = [p.tf for p in pairs]
        captured, kwargs, place = pairs[count + inputs :], step.kwargs, frame.enter(step)
        with tf_record.stop_recording():
            results = [t if is_opaque(t) else tf.identity(t) for t in given[:count]]

        def backward(*upstream: Any) -> list[Any]:
            every = [tf.zeros_like(r) if u is None else u for r, u in zip(results, upstream, strict=True)]
            further = [
                ValuePair(results[own], None, None) if own >= 0 else pair
                for own, pair in zip(kwargs["own"], captured, strict=True)
            ]
            found = self._call(kwargs["gradient"], [*(ValuePair(u, None, None) for u in every), *further], place)
            gradients: list[Any] = [None] * inputs
            for result, position in enumerate(kwargs["positions"]):
                gradients[position] = found[result].tf
            return gradients

        tf_record.record_operation(step.node.op, results, given[count : count + inputs], backward)
        return results

    def _in_jax(self, step: Step, pairs: Sequence[ValuePair], frame: Frame) -> list[Any]:
        """Return JAX's results, and record its gradient, without a TF kernel."""
        # CannotRun: TensorFlow's results, or later its gradient, are others in the node's own dtypes.
        place, used = self._functions[-1], self._used
        node = self._nodes.get((place, step.node.name))
        if node is None or any(is_opaque(p.tf) for p in pairs):
            raise CannotRun(f"{step.node.name} ({step.node.op}) does not run by itself")
        arrays = [p.tf.numpy() for p in pairs]
        results = [tf.constant(np.asarray(r)) for r in self._trace.apply(step, arrays, frame)]
        inputs = [
            _as(p.tf, self._dtypes[place, ref.node][ref.index]) for p, ref in zip(pairs, node.inputs, strict=True)
        ]
        with tf_record.stop_recording():
            expected = run_node(node, inputs)
        for theirs, ours, dtype, counts in zip(expected, results, node.output_dtypes, used, strict=True):
            if counts and not relative_error(theirs.numpy(), ours.numpy()) <= _allowed(dtype):
                raise CannotRun(f"{node.name} ({node.op}) differs in its own dtype")

        def backward(*upstream: Any) -> list[Any]:
            return self._gradient_in_jax(step, node, frame, arrays, inputs, upstream)

        tf_record.record_operation(node.op, results, [p.tf for p in pairs], backward)
        return results

    def _gradient_in_jax(
        self,
        step: Step,
        node: ir.Node,
        frame: Frame,
        arrays: list[np.ndarray],
        inputs: list[Any],
        upstream: Sequence[Any],
    ) -> list[Any]:
        sources = [i for i, x in enumerate(arrays) if is_float(x.dtype)]
        above = {i: u for i, u in enumerate(upstream) if u is not None and u.dtype.is_floating}

        def function(*values: Any) -> list[Any]:
            given = dict(zip(sources, values, strict=True))
            results = self._trace.apply(step, [given.get(i, x) for i, x in enumerate(arrays)], frame)
            return [jnp.asarray(results[i]) for i in above]

        _, pull = jax.vjp(function, *(jnp.asarray(arrays[i]) for i in sources))
        ours = pull([jnp.asarray(u.numpy()) for u in above.values()])
        with tf.GradientTape() as tape:
            tape.watch([inputs[i] for i in sources])
            results = run_node(node, inputs)
        narrow = [_as(u, node.output_dtypes[i]) for i, u in above.items()]
        theirs = tape.gradient([results[i] for i in above], [inputs[i] for i in sources], narrow)
        gradients: list[Any] = [None] * len(arrays)
        for i, t, o in zip(sources, theirs, ours, strict=True):
            if t is None:
                continue
            gradients[i] = tf.constant(np.asarray(o))
            # Sums over a whole batch of images are off by more than some units.
            allowed = _SHARE * tolerance_of(inputs[i].dtype.as_numpy_dtype)
            if not relative_error(tf.convert_to_tensor(t).numpy(), np.asarray(o)) <= allowed:
                raise CannotRun(f"the gradient of {node.name} ({node.op}) differs in its own dtype")
        return gradients


def _rounds(node: ir.Node) -> bool:
    """Return whether a node casts to floats of less than 32 bits."""
    # A cast to float32 is ordinary round-off.
    target = node.attrs.get("DstT")
    if node.op != "Cast" or not isinstance(target, np.dtype) or not is_float(target):
        return False
    return node.attrs.get("SrcT") != target and bool(ml_dtypes.finfo(target).eps > np.finfo(np.float32).eps)


def _as(tensor: Any, dtype: ir.DType) -> Any:
    wanted = tf_dtype(dtype)
    return tensor if tensor.dtype == wanted else tf.cast(tensor, wanted)


def _allowed(dtype: ir.DType) -> float:
    floating = isinstance(dtype, np.dtype) and (is_float(dtype) or dtype.kind == "c")
    return _UNITS * float(ml_dtypes.finfo(dtype).eps) if floating else 0.0
