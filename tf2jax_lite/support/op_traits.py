"""Ops that conversion treats by their names: removable, unsafe, unsupported ones.

``op_traits.txt`` has a line for each: the op and its traits. TensorFlow runs a stateful op of a function whether or not
its results are used; dead-code elimination may remove removable ones. An op that is neither implemented nor removable
is not removed: `passes.analysis.effects` assumes that it changes state, and the conversion raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TRAITS: Mapping[str, frozenset[str]] = {
    op: frozenset(traits)
    for op, *traits in map(str.split, Path(__file__).with_name("op_traits.txt").read_text().splitlines())
}
"""Op name to traits."""


def ops_with(trait: str) -> frozenset[str]:
    """Return the names of the ops with a trait."""
    return frozenset(op for op, traits in TRAITS.items() if trait in traits)


def _by_trait(texts: Mapping[str, str]) -> dict[str, str]:
    return {op: text for op, traits in TRAITS.items() for trait, text in texts.items() if trait in traits}


REMOVABLE = _by_trait(
    {
        "creates": "creates an object that is not used",
        "reads-state": "only reads state",
        "dataset": "describes a dataset that is not iterated over",
        "draws": "draws random numbers that are not used",
        "frees": "frees memory",
        "logs": "writes to a log",
        "waits": "takes time, or steers placement and scheduling of the runtime",
    }
)
"""Op name to the rationale for its removal."""

UNSAFE = _by_trait(
    {
        "runs-code": "runs code that is not in the graph",
        "reads-files": "reads files",
        "writes-files": "writes files",
        "network": "talks to other machines",
    }
)
"""Op name to its effect besides computing, for ops that run foreign code or touch files."""

UNSUPPORTED = _by_trait(
    {
        "runtime": "an op of TensorFlow's runtime that never stands in a function's body",
        "sends": "talks to a host or another device through TensorFlow's runtime; pass the data as an argument or "
        "result",
        "collective": "talks to other TensorFlow workers; use jax.lax collectives around the converted function",
        "ordering": "which of many good orders comes out is up to the library that TensorFlow was built with; give "
        "SparseMatrixSparseCholesky a permutation of your own, such as tf.range(n)",
        "native-code": "calls machine code registered with TensorFlow's XLA compiler, which is not part of the graph",
    }
)
"""Op name to the rationale of its rejection: it has no meaning outside TensorFlow's runtime."""

_PIPELINE = (
    "input pipelines of TF1 run beside the graph; cut it where the data comes in: name the results of the node that "
    "dequeues or reads as inputs, as in convert_graph_def(graph, ['dequeue:0', 'dequeue:1'], outputs), and pass arrays"
)
_PIPELINE_OPS = (
    "FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue", "Queue", "Reader", "TextLineReader",
    "TFRecordReader", "WholeFileReader", "IdentityReader", "FixedLengthRecordReader", "Barrier", "Stage", "Unstage",
)  # fmt: skip


def rationale(op: str) -> str:
    """Return why an op has no implementation, and the remedy; "" for no reason."""
    if op.startswith(_PIPELINE_OPS):
        return _PIPELINE
    return UNSUPPORTED.get(op, "")
