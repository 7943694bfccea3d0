"""TensorFlow op semantics in JAX, one package per family.

Importing it never imports TensorFlow.

`registry.op` registers a function as an op, whose signature is the OpDef; `registry.lookup` finds it. Read `registry`,
then `traits` (options of ops, markers of parameters), `common` (helpers that register nothing), `arrays` and `math`;
the other families have the same form. Importing this package registers the ops that models commonly have; each
family's `__init__` imports their modules. `rare` imports the others, when one of their ops is looked up.

`tf2jax_lite.support.op_traits` lists ops that are rejected, with a reason, unsafe ones, and stateful ones that may be
dropped if nothing uses their results.

Imports `dynamic_shapes`, `values` and what is below them; must not import the converter (`lowering`, `passes`,
`frontend`), nor `xla_cpu`: ops are plain JAX, and the interpreter has CPU lowering rules applied.
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
from .registry import Op, RegistrationError, known_ops, lookup, op, override_op, register_op
from .traits import Pattern, Static

__all__ = ["Op", "Pattern", "RegistrationError", "Static", "known_ops", "lookup", "op", "override_op", "register_op"]
