"""JAX computations in the federated language (extra ``core``).

``federated_language.federated_computation`` expresses placements and communication; `jax_computation` makes the local
computations from JAX functions; `set_default_context` selects execution in this process.

Read in this order:
  types: types of the federated language from dtypes, arrays and structures.
  jax_computation: JAX functions as computations, serialized as StableHLO.
  values, intrinsics: values of the interpreter; its federated operators.
  execution: the interpreter.

Must not import other subpackages of `federated`.
"""

from __future__ import annotations

from tf2jax_lite.support.errors import MissingLibraryError

try:
    import federated_language as _  # noqa: F401
except ImportError as error:
    raise MissingLibraryError(
        "tf2jax_lite.federated.core needs the library federated-language: pip install 'tf2jax-lite[core]'"
    ) from error

from tf2jax_lite.federated.core.execution import ExecutionContext, set_default_context
from tf2jax_lite.federated.core.jax_computation import JaxComputation, jax_computation, stablehlo
from tf2jax_lite.federated.core.types import infer_type, to_type

__all__ = [
    "ExecutionContext",
    "JaxComputation",
    "infer_type",
    "jax_computation",
    "set_default_context",
    "stablehlo",
    "to_type",
]
