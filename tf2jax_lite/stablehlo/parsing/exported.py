"""Read serialized containers of ``jax.export`` from untrusted sources."""

from __future__ import annotations

import jax.export

from tf2jax_lite.support.errors import InvalidModelError, Tf2JaxError

from .isolation import check_payload

__all__ = ["read_exported"]


def read_exported(content: bytes) -> jax.export.Exported:
    """Return an exported function whose StableHLO is safe to read.

    See `check_payload`.

    Args:
      content: as ``jax.export.Exported.serialize`` gives it.

    Raises:
      InvalidModelError: it is damaged, or no such thing.
      LimitError: see `check_payload`.
    """
    try:
        exported = jax.export.deserialize(bytearray(content))
        payload = exported.mlir_module_serialized
        if not payload.startswith(b"ML\xefR"):  # text, which is looked at when it is read, and JAX writes none
            raise InvalidModelError("its StableHLO is no MLIR bytecode")
        check_payload(payload)
    except Tf2JaxError:
        raise
    except Exception as error:  # flatbuffers and MLIR fail in many ways
        raise InvalidModelError(f"it cannot be read: {type(error).__name__}: {error}") from error
    return exported
