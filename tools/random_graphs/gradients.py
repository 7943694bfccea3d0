"""Gradients of random graphs: TensorFlow's, ours, and forward mode.

``python -m tools.random_graphs.gradients --count N --seed S`` prints what differs, a line for each.

Every floating-point value of a program is differentiated with respect to the program's floating-point parameters, for
a random cotangent. Where TensorFlow has no gradient, or one that is not finite (zeros that go back through an infinite
derivative), there is nothing to compare with; nor where a gradient is not finite or nearly nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.compiling import fast_options

from . import generate
from .programs import ERRORS, Program, Refused, make_variables, trace

_LARGE, _MANY = 1e6, 2000  # values that are not differentiated
# Ops whose gradients in TensorFlow tell nothing, and why.
_NO_ORACLE = {
    "BlockLSTMV2": "that of BlockLSTM, whose gates are in another order",
    "OneHot": "none, by the values too",
    "LinSpace": "none",
    "SparseConcat": "none",
    "ResizeBicubic": "none of half precision",
    "ResizeBilinearGrad": "none",
    "MatrixDiagV2": "reads diagonals as MatrixDiagPartV3 aligns them, which MatrixDiagV2 does not",
    "MatrixSolveLs": "none by l2_regularizer",
    **dict.fromkeys(
        ["MaxPoolGrad", "MaxPoolGradV2", "MaxPoolGradGrad", "MaxPoolGradGradV2", "MaxPool3DGrad", "MaxPool3DGradGrad"],
        "looks for the maxima in the output that is handed over, which random graphs draw",
    ),
    **dict.fromkeys(
        [f"FakeQuantWithMinMax{what}Gradient" for what in ("Args", "Vars", "VarsPerChannel")], "none of gradients"
    ),
}
_NEAR, _NOTHING = 2e-2, 1e-5  # chains of ops make much of rounding


@dataclasses.dataclass(frozen=True)
class Difference:
    """A gradient that differs.

    Attributes:
      kind: "grad" (from TensorFlow's), "jvp" (from what goes forwards), or the type of an error.
    """

    kind: str
    op: str
    message: str


def differences(program: Program) -> tuple[int, list[Difference]]:
    """Return the number of compared gradients, and those that differ.

    The values before agree.

    Raises:
      Refused: TensorFlow does not trace the program.
    """
    with jax.enable_x64(True):
        return _differences(program)


def _differences(program: Program) -> tuple[int, list[Difference]]:
    function, order = trace(program, make_variables(program))
    fn, params = tf2jax.convert(function, *(tf.TensorSpec(p.shape, p.dtype) for p in program.params))
    moving = [i for i, p in enumerate(program.params) if p.dtype in (np.float32, np.float64)]
    args = [tf.constant(p) for p in program.params]
    sources = [args[i] for i in moving]
    try:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(sources)
            results = function(*args)
    except ERRORS:
        return 0, []
    # What TensorFlow's kernels leave in reserve has their shapes (`FusedBatchNormGrad`), not what was inferred.
    shapes = [out.shape for out in jax.eval_shape(fn, params, *program.params)[0]]
    wanted = [i for i, result in enumerate(results) if _is_fit(result) and tuple(result.shape) == shapes[i]]
    if not wanted or not moving:
        return 0, []
    rng = np.random.default_rng(len(program.nodes))

    def like(value: Any) -> np.ndarray:
        return np.asarray(rng.normal(size=value.shape), np.asarray(value).dtype)

    upstream = [like(results[i]) for i in wanted]
    directions = [like(program.params[i]) for i in moving]

    def call(*values: Any) -> list[Any]:
        every: list[Any] = list(program.params)
        for i, value in zip(moving, values, strict=True):
            every[i] = value
        found, _ = fn(params, *every)
        return [found[i] for i in wanted]

    points = [program.params[i] for i in moving]
    options = fast_options()
    back = jax.jit(lambda values, cotangents: jax.vjp(call, *values)[1](cotangents), compiler_options=options)
    forth = jax.jit(lambda values, tangents: jax.jvp(call, values, tangents)[1], compiler_options=options)
    compared, found, wrong = 0, [], set()
    ahead = forth(tuple(points), tuple(directions))
    nodes = {node.number: node for node in program.nodes}
    for at, number in enumerate(wanted):
        try:
            expected = tape.gradient(results[number], sources, tf.constant(upstream[at]))
        except ERRORS:
            continue  # TensorFlow has none for an op on the way
        only = [u if i == at else np.zeros_like(u) for i, u in enumerate(upstream)]
        actual = [np.asarray(g) for g in back(points, only)]
        node = nodes.get(order[number].node)
        compared += 1
        differing = [
            (a, e) for a, e in zip(actual, map(_dense, expected), strict=True) if e is not None and not _near(a, e)
        ]
        products = [np.asarray(a, np.float64) * d for a, d in zip(actual, directions, strict=True)]
        total, scale = sum(p.sum() for p in products), sum(np.abs(p).sum() for p in products)
        along = np.sum(np.asarray(ahead[at], np.float64) * upstream[at])
        # What is infinite on the way and then multiplied with 0 is NaN forwards, and 0 backwards.
        modes_differ = np.isfinite(total) and np.isfinite(along) and not abs(along - total) <= _NEAR * scale + _NOTHING
        if node is None or not (differing or modes_differ):
            continue
        op = node.op if node.kind == "op" else node.kind
        known = differing and not modes_differ and not _NO_ORACLE.keys().isdisjoint(node.ops())
        if not known and not wrong.intersection(ref.node for ref in node.refs()):
            text = "; ".join(f"{a.ravel()[:8]} for {e.ravel()[:8]}" for a, e in differing) or f"{along} for {total}"
            found.append(Difference("grad" if differing else "jvp", op, text))
        wrong.add(node.number)
    return compared, found


def _is_fit(result: Any) -> bool:
    if result.dtype not in (tf.float32, tf.float64) or not 0 < np.prod(result.shape) <= _MANY:
        return False
    return bool(np.all(np.abs(result.numpy()) < _LARGE))


def _dense(gradient: Any) -> np.ndarray | None:
    return None if gradient is None else tf.convert_to_tensor(gradient).numpy()


def _near(actual: np.ndarray, expected: np.ndarray) -> bool:
    if not np.isfinite(expected).all() or not expected.size:
        return True
    scale = np.abs(expected.astype(np.float64)).max()
    return bool(np.abs(actual.astype(np.float64) - expected).max() <= _NEAR * scale + _NOTHING)


def programs(count: int, seed: int) -> Iterator[tuple[int, Program]]:
    """Yield programs that can be compiled, each with its number."""
    for number in range(seed, seed + count):
        rng = random.Random(number)
        size = rng.choice([4, 6, 8, 12, 16, 24])
        try:
            program = generate.write([rng.randrange(2**32) for _ in range(size)], size)
        except Refused:
            continue
        if all(node.jit for node in program.nodes):
            yield number, program


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.random_graphs.gradients", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total = 0
    for number, program in programs(options.count, options.seed):
        try:
            compared, found = differences(program)
        except Refused:
            continue
        except Exception as error:
            compared, found = 0, [Difference(type(error).__name__, "", str(error)[:300])]
        total += compared
        for difference in found:
            print(number, difference.kind, difference.op, difference.message, flush=True)
    print(f"{total} gradients compared")


if __name__ == "__main__":
    main()
