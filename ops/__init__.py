"""TensorFlow op semantics in JAX, one package per family. Importing it never imports TensorFlow.

`registry.op` registers a function as an op; its signature is the OpDef. Read `registry`, `common`, then `arrays` and
`math`. `unsupported` lists ops that are rejected with a reason, `removable` stateful ops that may be dropped. Imports
`xla_cpu`, `dynamic_shapes`, `values` and what is below them, nothing of the converter.
"""

if __name__ != "tf2jax_lite.ops":
    raise ImportError(
        f"this folder is the package 'tf2jax_lite.ops' and must not be imported as {__name__!r}: "
        "the registry would exist twice."
    )

from . import (  # noqa: F401
    arrays,
    containers,
    image,
    linalg,
    math,
    nn,
    quantization,
    ragged,
    random,
    sparse,
    state,
    strings,
    xla,
)
from .registry import Op, RegistrationError, Static, known_ops, lookup, op, override_op, register_op

__all__ = ["Op", "RegistrationError", "Static", "known_ops", "lookup", "op", "override_op", "register_op"]
