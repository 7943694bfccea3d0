"""TensorFlow's op semantics in pure JAX. Importing this package never imports TensorFlow."""

if __name__ != "tf2jax_lite.ops":
    raise ImportError(
        f"this folder is the package 'tf2jax_lite.ops' and must not be imported as {__name__!r}: "
        "the registry would exist twice."
    )

from . import _families as _families
from .registry import Op, RegistrationError, Static, known_ops, lookup, op, override_op, register_op

__all__ = ["Op", "RegistrationError", "Static", "known_ops", "lookup", "op", "override_op", "register_op"]
