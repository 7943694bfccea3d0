"""A function walked on both sides in float64: what TensorFlow's own ops give where rounding is out of the way.

If both sides agree there, they compute the same, and what they differ by in float32 is round-off, however much a
logarithm near zero makes of it. Nodes without a kernel for float64 run in float32, beside JAX's values, by themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import tensorflow as tf

from tf2jax_lite import ir
from tf2jax_lite.function import ConvertedFunction
from tf2jax_lite.lowering import Program
from tf2jax_lite.lowering.plan import Step
from tf2jax_lite.lowering.trace import Frame
from tf2jax_lite.passes.widening import widen, widen_array

from .bisection import Pair, Walk
from .compare import is_float, relative_error
from .runs import JaxRunner
from .subjects import Subject
from .tf_nodes import run_node, tf_dtype

__all__ = ["Wide", "in_tensorflow"]

# Units of rounding by which a node that TensorFlow runs in its own dtype may be off: orders of summation.
_UNITS = 32.0


@dataclasses.dataclass(frozen=True)
class Wide:
    """What TensorFlow's ops give in float64.

    Attributes:
      results: flat results; None for what is no array.
      variables: what variables then hold, by name.
      error: how far JAX's are off, in float64 and compiled: the largest relative error of any of them.
    """

    results: list[np.ndarray | None]
    variables: dict[str, np.ndarray]
    error: float


def in_tensorflow(subject: Subject, inputs: Sequence[Any], seed: int = 0) -> Wide | None:
    """Evaluates a function in float64, node by node in TensorFlow.

    Args:
      subject: the function.
      inputs: its flat inputs; floats are widened.
      seed: for nodes that draw random numbers.

    Returns:
      The values, or None where they tell nothing: a node runs in TensorFlow neither in float64 nor, as JAX runs it, in
      its own dtypes; or a cast to float16 and the like rounds on purpose.

    Raises:
      UnsupportedError: part of the graph is compiled (XlaCallModule), with its types.
    """
    converted = subject.converted
    if any(_rounds(node) for _, node in converted.program.graph.walk()):
        return None
    program = Program(widen(converted.program.graph), converted.config, None, converted.program.evaluator)
    wide = ConvertedFunction(program, converted.interface, converted.config, loose=True)
    params = {name: widen_array(value) for name, value in subject.params.items()}
    with jax.enable_x64(True):
        widened = dataclasses.replace(subject, converted=wide, params=params)
        given = [widen_array(np.asarray(x)) for x in inputs]
        walk = _WideWalk(widened, converted.program.graph, seed)
        pairs = walk.results(given)
        if walk.unknown:
            return None
        # A difference may be there only when the whole function is compiled, so that is what is compared.
        ours, state = JaxRunner(widened)(given, seed)
        results = [None if p.tf is None or p.error is None else p.tf.numpy() for p in pairs]
        variables = walk.variables()
        errors = [relative_error(t, o) for t, o in zip(results, ours, strict=True) if t is not None]
        errors += [relative_error(value, state[name]) for name, value in variables.items()]
    return Wide(results, variables, max(errors, default=0.0))


class _WideWalk(Walk):
    """Both sides in float64.

    Attributes:
      unknown: nodes of which it is not known whether TensorFlow gives what JAX gives.

    Args:
      subject: the function, widened.
      narrow: the graph as it was.
      seed: for nodes that draw random numbers.
    """

    def __init__(self, subject: Subject, narrow: ir.Graph, seed: int):
        super().__init__(subject, float("inf"), seed, 0)  # no node is a suspect here
        self._nodes = {(function.name, node.name): node for function, node in narrow.walk()}
        self._dtypes = {place: node.output_dtypes for place, node in self._nodes.items()}
        functions = (narrow.main, *narrow.functions.values())
        self._dtypes |= {(function.name, a.name): (a.dtype,) for function in functions for a in function.args}
        self.unknown: list[str] = []

    def variables(self) -> dict[str, np.ndarray]:
        """Returns what TensorFlow's variables hold."""
        return {name: variable.numpy() for name, variable in self._variables.items()}

    def _leaf(self, step: Step, pairs: list[Pair], frame: Frame, run: Callable[[], list[Any]]) -> list[Pair]:
        function, used = self._functions[-1], self._used
        results = super()._leaf(step, pairs, frame, run)
        if step.node.name in self._not_run and not self._agrees(function, step.node, pairs, results, used):
            self.unknown.append(step.node.name)
        return results

    def _agrees(
        self, function: str, wide: ir.Node, pairs: Sequence[Pair], results: Sequence[Pair], used: Sequence[bool]
    ) -> bool:
        """Whether TensorFlow's node in its own dtypes gives what JAX gave in float64, up to rounding."""
        try:
            node = self._nodes[function, wide.name]
            dtypes = [self._dtypes[function, ref.node][ref.index] for ref in node.inputs]
            inputs = [_as(p.tf, dtype) for p, dtype in zip(pairs, dtypes, strict=True)]
            expected = run_node(node, inputs)
            return all(
                relative_error(e.numpy(), np.asarray(r.jax)) <= _allowed(dtype)
                for e, r, dtype, counts in zip(expected, results, node.output_dtypes, used, strict=True)
                if counts
            )
        except Exception:  # raw ops raise anything for what they do not take, and nothing is known of what they give
            return False


def _rounds(node: ir.Node) -> bool:
    """Whether a node is a cast to a float of less than 32 bits; what float32 loses is round-off anywhere."""
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
