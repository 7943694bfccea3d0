"""The errors for invalid input, all derived from `Tf2JaxError`.

Where tf2jax raises a builtin exception (mostly ``ValueError``), the error derives from it as well, so that existing
``except`` clauses keep working.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Sequence
from typing import Any, Self

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "ConfigError",
    "CrashedError",
    "DataError",
    "DtypeMismatchError",
    "ExportError",
    "FederatedTypeError",
    "ForEachClientError",
    "ForwardModeError",
    "InputError",
    "InvalidModelError",
    "LimitError",
    "LoweringError",
    "MissingGradientError",
    "MissingInputError",
    "MissingKeyError",
    "MissingLibraryError",
    "MissingParamError",
    "OpError",
    "PreventedGradientError",
    "RegistrationError",
    "ReverseModeError",
    "ShapeMismatchError",
    "StaticInputError",
    "Tf2JaxError",
    "TrainingError",
    "UnknownClientError",
    "UnknownOptionError",
    "UnsupportedAttributeError",
    "UnsupportedError",
    "UnsupportedOpsError",
    "UntrustedError",
    "documentation_address",
    "entry_address",
]


class Tf2JaxError(Exception):
    """Base class of the errors that tf2jax_lite raises.

    A note, which Python prints after the message, has the address of the class's entry in the documentation.

    Attributes:
      constraint: the `Constraint` on symbolic dimensions under which there is no error, if one is known.

    Example:
      >>> try:
      ...     tf2jax.convert_saved_model("no-such-directory")
      ... except tf2jax.Tf2JaxError as error:
      ...     print(error)
      no-such-directory: there is no such directory.
    """

    constraint: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Add the note; subclasses need not call it."""
        error = super().__new__(cls, *args, **kwargs)
        if (address := entry_address(cls)) is not None:
            error.add_note(f"See {address}")
        return error


@functools.cache
def entry_address(kind: type[Tf2JaxError]) -> str | None:
    """Return the address of an error class's entry in the documentation.

    Args:
      kind: the class; one defined elsewhere has the entry of its first base that is listed here.

    Returns:
      None if the installed distribution, which names the documentation's address, is not found.
    """
    site = documentation_address()
    name = next(base.__name__ for base in kind.__mro__ if base.__name__ in __all__)
    return site and f"{site}errors.html#{name.lower()}"


@functools.cache
def documentation_address() -> str | None:
    """Return the documentation's address, with a final slash."""
    try:
        named = importlib.metadata.metadata("tf2jax-lite").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return dict(entry.split(", ", 1) for entry in named).get("Documentation")


class RegistrationError(Tf2JaxError, ValueError):
    """An op could not be registered: a taken name or unreadable signature."""


class OpError(Tf2JaxError, ValueError):
    """An op cannot be computed for these inputs or attributes.

    Ops raise it; the lowering adds the node's name.
    """


class ConfigError(Tf2JaxError, ValueError):
    """An unknown config option, or a value of the wrong type for it."""


class UnknownOptionError(ConfigError, KeyError):
    """There is no such config option."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would quote the message


class InvalidModelError(Tf2JaxError, ValueError):
    """A file or proto is missing, damaged, or of another kind than it claims."""


class LimitError(InvalidModelError, OpError):
    """A model exceeds an option's limit of size or memory; the message names it."""


class InputError(Tf2JaxError, ValueError):
    """Arguments of a converted function do not match its signature."""


class ArgumentError(InputError, TypeError):
    """Arguments do not bind: too many, too few, or one of an unknown name."""


class MissingInputError(ArgumentError):
    """A tensor argument was not given.

    Example:
      >>> jax_fn, params = tf2jax.convert(model, tf.TensorSpec([None, 3]))
      >>> try:
      ...     jax_fn(params)
      ... except tf2jax.MissingInputError as error:
      ...     print(error)
      model: missing input(s) x: float32[None,3]. It was converted for (x=float32[None,3]).
    """


class MissingParamError(InputError):
    """A variable is absent from ``params``."""


class MissingKeyError(InputError):
    """The function draws random numbers and was called without ``rng``."""


class ShapeMismatchError(InputError):
    """An argument's shape is not the one the function was converted for."""


class DtypeMismatchError(InputError):
    """An argument's dtype is not the one the function was converted for."""


class UnsupportedError(Tf2JaxError, ValueError):
    """A construct of TensorFlow is not supported; the message has a workaround."""


class UnsupportedAttributeError(UnsupportedError):
    """A node carries an attribute that its op's implementation does not handle."""


class UnsupportedOpsError(UnsupportedError):
    """The graph has ops without an implementation; the message lists all of them.

    Attributes:
      ops: the distinct op names, sorted.
      nodes: for each node ``(op, node name, function name)``.
    """

    def __init__(self, message: str, ops: Sequence[str] = (), nodes: Sequence[tuple[str, str, str]] = ()):
        super().__init__(message)
        self.ops = tuple(ops)
        self.nodes = tuple(nodes)


class UntrustedError(UnsupportedError):
    """A model would run code or touch files that ``config.trusted`` does not name."""


class MissingGradientError(UnsupportedError):
    """An overridden gradient is missing, and differs from the forward code's."""


class LoweringError(Tf2JaxError, ValueError):
    """A node could not be evaluated.

    Attributes:
      path: names of the functions and call nodes that lead to it, outermost first.
      shapes: the shapes that meet in it, and vectors of sizes that it reads; their dimensions may be symbolic.
    """

    shapes: Sequence[Sequence[Any]] = ()

    def __init__(self, message: str, *, node: str = "", op: str = "", path: Sequence[str] = ()):
        Exception.__init__(self, message)  # not super(): one subclass also derives from an error of JAX
        self.node = node
        self.op = op
        self.path = tuple(path)


class StaticInputError(LoweringError, TypeError):
    """An input that must be known while tracing was a traced value.

    JAX's own errors of that kind are TypeErrors.
    """


class PreventedGradientError(LoweringError, LookupError):
    """A gradient is taken through ``PreventGradient``.

    TensorFlow's own error is a LookupError.
    """


class ForwardModeError(LoweringError, TypeError):
    """Forward-mode differentiation of a custom gradient that has only a reverse rule."""


class ReverseModeError(LoweringError):
    """Reverse mode of an op without it, such as a loop that cannot recompute."""


class ExportError(Tf2JaxError, ValueError):
    """A converted function cannot be exported in the requested format."""


class CrashedError(Tf2JaxError, RuntimeError):
    """A signal ended the process that ran a model."""


class DataError(Tf2JaxError, ValueError):
    """Client data is damaged, inconsistent, or does not support the access."""


class UnknownClientError(DataError, KeyError):
    """A federated dataset has no such client."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would quote the message


class ForEachClientError(InputError):
    """A function for one client failed, under the backend ``debug``.

    Attributes:
      base: the function's own error.
      stage: the function: ``client_init``, ``client_step 3`` or ``client_final``.
      context: dict of the client's id (``client_id``) and the function's arguments.
    """

    def __init__(self, base: Exception, stage: str, **context: object):
        super().__init__(f"client {context.get('client_id')!r}, {stage}: {type(base).__name__}: {base}")
        self.base, self.stage, self.context = base, stage, context


class FederatedTypeError(InputError, TypeError):
    """A value or function lacks the type that a federated computation needs."""


class MissingLibraryError(Tf2JaxError, ImportError):
    """An optional library is not installed; the message names the extra to install."""


class TrainingError(Tf2JaxError, ValueError):
    """Training cannot continue: the loss is not finite."""


class CheckpointError(DataError):
    """A training checkpoint is damaged, of another training, or unwritable."""
