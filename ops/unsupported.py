"""Ops that are rejected by design, with the rationale.

They have no meaning outside TensorFlow's runtime.

The error for a graph that has one states it.
"""

_RUNTIME = "an op of TensorFlow's runtime that never stands in a function's body"
_SEND = "talks to a host or another device through TensorFlow's runtime; pass the data as an argument or result"
_COLLECTIVE = "talks to other TensorFlow workers; use jax.lax collectives around the converted function"
_AMD = (
    "which of many good orders comes out is up to the library that TensorFlow was built with; give "
    "SparseMatrixSparseCholesky a permutation of your own, such as tf.range(n)"
)
_CUSTOM = "calls machine code registered with TensorFlow's XLA compiler, which is not part of the graph"

UNSUPPORTED: dict[str, str] = {
    "CollectiveAssignGroupV2": _COLLECTIVE,
    "CollectiveReduceV2": _COLLECTIVE,
    "SparseMatrixOrderingAMD": _AMD,
    "XlaCustomCall": _CUSTOM,
    "XlaCustomCallV2": _CUSTOM,
    "XlaRecv": _SEND,
    "XlaSend": _SEND,
    "_Arg": _RUNTIME,
    "_Retval": _RUNTIME,
}
"""Op name to rationale."""

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
