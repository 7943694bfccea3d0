"""JAX in the federated language: the library ``federated-language`` (extra ``core``) with JAX computations, run here.

``federated_language.federated_computation`` expresses what happens where; `jax_computation` makes the local parts from
JAX functions; `set_default_context` makes calls run, in this process.
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
