"""Every error that this library raises for bad input. All derive from `Tf2JaxError`.

Where the peer library raised a builtin exception (``ValueError`` mostly), ours derives from it too, so that
existing ``except`` clauses go on working.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ArgumentError",
    "CheckpointError",
    "ConfigError",
    "CrashedError",
    "DataError",
    "DtypeMismatchError",
    "ExportError",
    "FederatedTypeError",
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
]


class Tf2JaxError(Exception):
    """Base class of every error raised on purpose by tf2jax_lite."""


class RegistrationError(Tf2JaxError, ValueError):
    """An op could not be registered: its name is taken, or its signature cannot be read as an OpDef."""


class OpError(Tf2JaxError, ValueError):
    """An op cannot be computed for these inputs or attributes. Raised by ops; the lowering adds the node's name."""


class ConfigError(Tf2JaxError, ValueError):
    """An unknown config option, or a value of the wrong type for it."""


class UnknownOptionError(ConfigError, KeyError):
    """There is no such config option."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would show the message in quotes


class InvalidModelError(Tf2JaxError, ValueError):
    """A file or proto that is missing, damaged, or not what it says it is."""


class LimitError(InvalidModelError, OpError):
    """A model is larger, or would make more, than an option allows; the message names the option."""


class InputError(Tf2JaxError, ValueError):
    """Arguments of a converted function do not fit its signature."""


class ArgumentError(InputError, TypeError):
    """Arguments do not bind to the signature: too many, too few, or one of an unknown name."""


class MissingInputError(ArgumentError):
    """A tensor argument was not given."""


class MissingParamError(InputError):
    """A variable is absent from ``params``."""


class MissingKeyError(InputError):
    """The function draws random numbers and was called without ``rng``."""


class ShapeMismatchError(InputError):
    """An argument's shape is not the one the function was converted for."""


class DtypeMismatchError(InputError):
    """An argument's dtype is not the one the function was converted for."""


class UnsupportedError(Tf2JaxError, ValueError):
    """TensorFlow can express this and the converter cannot; the message says what to do."""


class UnsupportedAttributeError(UnsupportedError):
    """A node carries an attribute that its op's implementation does not handle."""


class UnsupportedOpsError(UnsupportedError):
    """The graph has ops without an implementation. All of them are listed at once.

    Attributes:
      ops: the distinct op names, sorted.
      nodes: for each node ``(op, node name, function name)``.
    """

    def __init__(self, message: str, ops: Sequence[str] = (), nodes: Sequence[tuple[str, str, str]] = ()):
        super().__init__(message)
        self.ops = tuple(ops)
        self.nodes = tuple(nodes)


class UntrustedError(UnsupportedError):
    """A model would run code or touch files, and nobody asked for that by name (``config.trusted``)."""


class MissingGradientError(UnsupportedError):
    """A gradient that TensorFlow overrides is not available, and that of the forward code would be another."""


class LoweringError(Tf2JaxError, ValueError):
    """A node could not be evaluated.

    Attributes:
      node: the node's name.
      op: the node's op.
      path: names of the functions and call nodes that lead to it, outermost first.
    """

    def __init__(self, message: str, *, node: str = "", op: str = "", path: Sequence[str] = ()):
        Exception.__init__(self, message)  # not super(): one subclass derives from an error of JAX's too
        self.node = node
        self.op = op
        self.path = tuple(path)


class StaticInputError(LoweringError, TypeError):
    """An input that must be known while tracing was a traced value. JAX's own errors of that kind are TypeErrors."""


class PreventedGradientError(LoweringError, LookupError):
    """A gradient is taken through a ``PreventGradient`` node. TensorFlow's own error is a LookupError."""


class ForwardModeError(LoweringError, TypeError):
    """A derivative is taken forwards through a custom gradient, which has a reverse rule only."""


class ReverseModeError(LoweringError):
    """A gradient is taken backwards through a loop whose iterations cannot be repeated, or what else has none."""


class ExportError(Tf2JaxError, ValueError):
    """A converted function cannot be written in the form asked for."""


class CrashedError(Tf2JaxError, RuntimeError):
    """A signal ended the process that ran a model."""


class DataError(Tf2JaxError, ValueError):
    """Client data that is damaged or inconsistent, or is asked for in a way in which it cannot be given."""


class UnknownClientError(DataError, KeyError):
    """A federated dataset has no such client."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # KeyError would show the message in quotes


class FederatedTypeError(InputError, TypeError):
    """A value, or a function, does not have the type that a federated computation needs."""


class MissingLibraryError(Tf2JaxError, ImportError):
    """An optional library is not installed; the message names the extra to install."""


class TrainingError(Tf2JaxError, ValueError):
    """Training cannot go on: the loss is no longer finite."""


class CheckpointError(DataError):
    """A training checkpoint that is damaged, belongs to another training, or cannot be written."""
