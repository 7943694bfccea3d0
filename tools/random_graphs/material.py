"""Inputs of ops: the cases of the ops' own tests, which are valid."""

from __future__ import annotations

import functools
import importlib
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.ops.harness import Case
from tf2jax_lite.lowering import known_ops
from tf2jax_lite.ops.registry import Op

OPS = Path(__file__).parents[2] / "tests" / "ops"

# Ops that are left out, each with its reason.
LEFT_OUT = {
    "Round": "TensorFlow 2.21 gives zeros for integers in a graph",
    "OnesLike": "TensorFlow 2.21 gives zeros for uint32 and uint64 in a graph",
    "BroadcastGradientArgs": "an int64 result that TensorFlow declares int32",
}


@functools.cache
def cases() -> dict[str, tuple[Case, ...]]:
    """Return cases by op: those that TensorFlow can run outside of its XLA bridge."""
    found: dict[str, list[Case]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in sorted(OPS.rglob("test_*.py")):
            if path.name != "test_coverage.py":
                module = importlib.import_module(".".join(["tests.ops", *path.relative_to(OPS).with_suffix("").parts]))
                for case in getattr(module, "CASES", []):
                    if not case.error and case.op not in LEFT_OUT and hasattr(tf.raw_ops, case.op):
                        found.setdefault(case.op, []).append(case)
    return {op: tuple(entries) for op, entries in sorted(found.items())}


@functools.cache
def registered() -> dict[str, Op]:
    """Return what is registered, by op."""
    return known_ops()


NUMBERS = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}


def is_number(value: np.ndarray) -> bool:
    """Whether an array is of a dtype that one can compute with."""
    return value.dtype.name in NUMBERS


# Ops whose inputs must fit together (indices and their shape, a pool's output and its input): TensorFlow's kernels do
# not check that, and results for others are undefined. They get their inputs unchanged.
WHOLE_WORDS = (
    "Sparse",
    "Ragged",
    "NormGrad",
    "LRNGrad",
    "PoolGrad",
    "Pool3DGrad",
    "CTC",
    "GRU",
    "LSTM",
    "Quantize",
    "Dequantize",
    "Unbatch",
)
WHOLE = {"EditDistance", "DynamicStitch", "ParallelDynamicStitch", "CollectiveReduce", "InvertPermutation"}


def is_whole(op: str) -> bool:
    """Whether an op's inputs must stay as they are."""
    return op in WHOLE or any(word in op for word in WHOLE_WORDS)
