"""Ops that make no sense outside TensorFlow's runtime. Meeting one gives its reason as the error."""

__all__ = ["REFUSED"]

_RUNTIME = "an op of TensorFlow's runtime that never stands in a function's body"
_SEND = "talks to a host or another device through TensorFlow's runtime; pass the data as an argument or result"
_COLLECTIVE = "talks to other TensorFlow workers; use jax.lax collectives around the converted function"
_CUSTOM = "calls machine code registered with TensorFlow's XLA compiler, which is not part of the graph"

REFUSED: dict[str, str] = {
    "CollectiveAssignGroupV2": _COLLECTIVE,
    "CollectiveReduceV2": _COLLECTIVE,
    "XlaCustomCall": _CUSTOM,
    "XlaCustomCallV2": _CUSTOM,
    "XlaRecv": _SEND,
    "XlaSend": _SEND,
    "_Arg": _RUNTIME,
    "_Retval": _RUNTIME,
}
"""Op name to reason."""
