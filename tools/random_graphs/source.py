"""Compare exported source of random graphs with the graphs' functions.

Usage: ``python -m tools.random_graphs.source --count N --seed S``.

Each graph is written twice. With all values as its results, the oracle judges the source as it judges the function.
With only the values that no node uses, steps in between become idioms: these results and their gradients, compiled,
must be those of the function.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options
from tf2jax_lite.errors import ExportError

from . import oracle
from .gradients import programs
from .programs import ERRORS, Program, Ref, Refused, make_variables, show, trace

# Relative to the largest element: idioms round in another order, and chains of ops make much of rounding.
_NEAR = {"float64": 1e-8, "complex128": 1e-8, "float32": 1e-3, "complex64": 1e-3, "bfloat16": 1e-1, "float16": 3e-2}


@dataclasses.dataclass(frozen=True)
class Difference:
    """A result that differs.

    Attributes:
      kind: "value" or "gradient" (from the function's), a kind of the oracle's findings, or the type of an error.
    """

    kind: str
    op: str
    message: str


@dataclasses.dataclass
class Outcome:
    """What came of one program.

    Attributes:
      unbounded: whether the source has no reverse mode, for a loop that data ends (docs/exported-source.md).
    """

    found: list[Difference] = dataclasses.field(default_factory=list)
    values: int = 0
    gradients: int = 0
    unwritten: str = ""
    unbounded: bool = False


def check(program: Program) -> Outcome:
    """Compare the source of a program with its function and with TensorFlow.

    Raises:
      Refused: TensorFlow does not trace the program.
    """
    outcome = Outcome()
    with jax.enable_x64(True):
        try:
            _check_all(program, outcome)
            _check_last(program, outcome)
        except ExportError as error:
            outcome.unwritten = str(error)
    return outcome


def source_of(converted: tuple[Any, Mapping[str, Any]]) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """Return the function of a converted function's source, and its params."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "artifact"
        tf2jax.export_functions({"model": converted}, path, stablehlo=False)
        return tf2jax.load(path, backend="source")


def _convert(program: Program, refs: list[Ref] | None = None) -> tuple[Any, list[Ref], Any]:
    function, order = trace(program, make_variables(program), refs)
    specs = [tf.TensorSpec(p.shape, p.dtype) for p in program.params]
    return function, order, tf2jax.convert(function, *specs)


def _check_all(program: Program, outcome: Outcome) -> None:
    function, order, converted = _convert(program)
    try:
        expected = dict(zip(order, [t.numpy() for t in function(*map(tf.constant, program.params))], strict=True))
    except ERRORS:
        return  # the graph's kernels refuse what eager ones took
    written = source_of(converted)

    def finding(fn: Callable[..., Any], params: Mapping[str, Any]) -> oracle.Finding | None:
        results, _ = jax.jit(fn, compiler_options=fast_options())(params, *program.params)
        actual = dict(zip(order, map(np.asarray, results), strict=True))
        return oracle.judge(program, expected, actual, "jit")

    outcome.values += len(order)
    try:
        found = finding(*written)
    except Exception as error:
        outcome.found.append(Difference(type(error).__name__, "", str(error)[:300]))
        return
    if found is None:
        return
    known = finding(*converted)  # one of the function is none of its source
    if known is None or (known.kind, known.number) != (found.kind, found.number):
        outcome.found.append(Difference(found.kind, found.op, found.message))


def _check_last(program: Program, outcome: Outcome) -> None:
    """Compare the values that no node uses, and their gradients."""
    used = {ref for node in program.nodes for ref in node.refs()}
    graph, every, _ = _convert(program)
    _, order, (fn, params) = _convert(program, [ref for ref in every if ref not in used])
    if not order:
        return
    written, given = source_of((fn, params))
    moving = [i for i, p in enumerate(program.params) if jnp.issubdtype(p.dtype, jnp.floating)]
    rng = np.random.default_rng(len(program.nodes))

    def derivatives(call: Callable[..., Any], params: Mapping[str, Any]) -> Callable[..., Any]:
        def run(points: Any, cotangents: Any) -> Any:
            def chosen(*values: Any) -> Any:
                args: list[Any] = list(program.params)
                for i, value in zip(moving, values, strict=True):
                    args[i] = value
                results = call(params, *args)[0]
                return [results[i] for i in fit], results

            _, pull, results = jax.vjp(chosen, *points, has_aux=True)
            return results, pull(cotangents)

        return jax.jit(run, compiler_options=fast_options())

    shapes = jax.eval_shape(fn, params, *program.params)[0]
    fit = [i for i, s in enumerate(shapes) if jnp.issubdtype(s.dtype, jnp.floating)]
    cotangents = [jnp.asarray(rng.normal(size=shapes[i].shape), shapes[i].dtype) for i in fit]
    points = tuple(jnp.asarray(program.params[i]) for i in moving)
    try:
        expected = derivatives(fn, params)(points, cotangents)
    except Exception:  # a result that has no derivative, or is too large
        return
    try:
        actual = derivatives(written, given)(points, cotangents)
    except Exception as error:
        if isinstance(error, ValueError) and "lax.while_loop" in str(error):
            outcome.unbounded = True
            return
        outcome.found.append(Difference(type(error).__name__, "", str(error)[:300]))
        return
    nodes = {node.number: node for node in program.nodes}
    narrow = _narrowest(graph, program)
    for ref, a, e in zip(order, actual[0], expected[0], strict=True):
        outcome.values += 1
        if not _near(np.asarray(a), np.asarray(e), narrow):
            node = nodes[ref.node]
            text = f"{np.ravel(a)[:8]} for {np.ravel(e)[:8]}"
            outcome.found.append(Difference("value", node.op or node.kind, text))
    for number, (a, e) in enumerate(zip(actual[1], expected[1], strict=True)):
        outcome.gradients += 1
        if not _near(np.asarray(a), np.asarray(e), narrow):
            text = f"with respect to parameter {moving[number]}: {np.ravel(a)[:8]} for {np.ravel(e)[:8]}"
            outcome.found.append(Difference("gradient", "", text))


def _narrowest(function: Any, program: Program) -> float:
    """Return the tolerance of a graph's narrowest floating dtype."""
    # A compiled program may keep values between two 16-bit operations in more bits.
    specs = [tf.TensorSpec(p.shape, p.dtype) for p in program.params]
    operations = function.get_concrete_function(*specs).graph.get_operations()
    names = {tensor.dtype.name for operation in operations for tensor in operation.outputs}
    return max((_NEAR[name] for name in names if name in _NEAR), default=0.0)


def _near(actual: np.ndarray, expected: np.ndarray, narrow: float) -> bool:
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.name not in _NEAR:
        return bool(np.array_equal(actual, expected))
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    a, e = actual.astype(wide), expected.astype(wide)
    finite = np.isfinite(e)
    with np.errstate(all="ignore"):
        scale = np.abs(e).max(initial=0, where=finite)
        near = np.abs(a - e) <= max(_NEAR[actual.dtype.name], narrow) * scale
    return bool((near | (a == e) | (np.isnan(a) & np.isnan(e))).all())


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.random_graphs.source", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="print programs that differ")
    options = parser.parse_args()
    done = values = gradients = unwritten = unbounded = different = 0
    for number, program in programs(options.count, options.seed):
        try:
            outcome = check(program)
        except Refused:
            continue
        except Exception as error:
            outcome = Outcome([Difference(type(error).__name__, "", str(error)[:300])])
        done += 1
        values += outcome.values
        gradients += outcome.gradients
        different += bool(outcome.found)
        unbounded += outcome.unbounded
        if outcome.unwritten:
            unwritten += 1
            print(number, "no source:", outcome.unwritten[:300], flush=True)
        for difference in outcome.found:
            print(number, difference.kind, difference.op, difference.message, flush=True)
        if outcome.found and options.show:
            print(show(program), flush=True)
    print(
        f"{done} graphs, {different} differ, {unwritten} without source, {unbounded} without reverse mode in source; "
        f"{values} values, {gradients} gradients"
    )


if __name__ == "__main__":
    main()
