"""Options of ops and markers of their parameters, which `registry.op` reads.

`OpOptions` lists the options of the decorator. The markers annotate parameters. `Static`, `Unconverted` and the
variables `Read`, `Write`, `Update`, `UpdateInt64` annotate inputs. `Key`, `Bound`, `StaticBound`, `Option`,
`Unconditional` and the tracker of dynamic shapes, ``DynamicShapes | None``, annotate keywords that are not attributes:
the lowering supplies them. A bare marker leaves the value's type open; ``Update[Array]`` states it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import jax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes
from tf2jax_lite.support.errors import RegistrationError


class Pattern(enum.Enum):
    """How XLA computes a result; `lowering.planning.materialize` selects values by it.

    Attributes:
      ELEMENTWISE: an arithmetic operation or so per element, which XLA recomputes in each user.
      TRANSCENDENTAL: elementwise, at the cost of several arithmetic operations: exponential, sine, power.
      INJECTIVE: data movement; each element is an operand's at another index: slice, concatenation, transposition.
      MATERIALIZED: the result is in memory, whatever its users are: reduction, sort, scatter, factorization.
      CONTRACTION: reads each element of its operands many times, and is materialized: convolution, matrix product.
      SHAPE_ONLY: depends on the shapes of its operands alone.
    """

    ELEMENTWISE = enum.auto()
    TRANSCENDENTAL = enum.auto()
    INJECTIVE = enum.auto()
    MATERIALIZED = enum.auto()
    CONTRACTION = enum.auto()
    SHAPE_ONLY = enum.auto()


Int64 = Literal["truncate", "per_word", "pair"]


@dataclasses.dataclass(frozen=True)
class partial_fold:
    """A ``fold=`` function that is also called where some inputs are not static.

    It gets `values.static.UNKNOWN` for those, and may return it: ``False and UNKNOWN`` is False.
    """

    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpOptions:
    """Options of `registry.op` and `registry.override_op`.

    Attributes:
      pattern: the cost and fusion class of the op.
      fold: constant folder, called in place of the op when all inputs are static numpy values, so that shape arithmetic
        stays out of the trace; it takes the inputs, and those attributes that it names. `partial_fold` of one for
        inputs of which only some are static.
        Object arrays hold symbolic dimensions, or bytes of strings.
      int64: treatment of int64 inputs without ``jax_enable_x64``, which are (low, high) pairs of uint32. "truncate":
        the function gets the low words. "per_word": it moves elements only, and is applied to either word. "pair": it
        gets `values.int64` pairs, and static inputs as 64-bit numpy arrays.
      result_size: takes the op's inputs and attributes, returns the number of elements of the largest result, None if
        it is not known; for ops whose results are larger than their inputs. Called before anything is allocated.
      side_effect: whether the node runs even if its results are not used: assertions, printing.
      draws: takes a node's attributes, returns whether the node draws random numbers; for ops with a `Key` of which
        not every node does. ``key`` is None for a node that does not.
      check: takes a node's attributes, and dtypes of its inputs by name as far as attributes tell them; raises OpError
        at conversion if values exclude each other or a dtype is not supported.
    """

    pattern: Pattern = Pattern.ELEMENTWISE
    fold: Callable[..., Any] | None = None
    int64: Int64 = "truncate"
    result_size: Callable[..., int | None] | None = None
    side_effect: bool = False
    draws: Callable[[Mapping[str, Any]], bool] | None = None
    check: Callable[[Mapping[str, Any], Mapping[str, Any]], None] | None = None

    def __post_init__(self) -> None:
        """Check the values of enumerated options.

        Raises:
          RegistrationError: a value is not one of those of its option.
        """
        if not isinstance(self.pattern, Pattern):
            raise RegistrationError(f"pattern={self.pattern!r} is not a Pattern; use one of {[*Pattern.__members__]}.")
        if self.int64 not in get_args(Int64):
            raise RegistrationError(f"int64={self.int64!r} is not one of {list(get_args(Int64))}.")


class Marker(enum.Enum):
    """The role of a parameter, as its annotation states it."""

    STATIC = enum.auto()
    UNCONVERTED = enum.auto()
    READ = enum.auto()
    WRITE = enum.auto()
    UPDATE = enum.auto()
    UPDATE_INT64 = enum.auto()
    CONTEXT = enum.auto()
    KEY = enum.auto()
    BOUND = enum.auto()
    STATIC_BOUND = enum.auto()
    SHAPES = enum.auto()
    OPTION = enum.auto()
    UNCONDITIONAL = enum.auto()


_T = TypeVar("_T")

Static = Annotated[Any, Marker.STATIC]
"""An input whose value must be known while tracing: an axis, a shape, a permutation. It arrives as a numpy array."""

Unconverted = Annotated[_T, Marker.UNCONVERTED]
"""An input that arrives unconverted: static values are numpy arrays of their own dtype, 64-bit or string."""

Read = Annotated[_T, Marker.READ]
"""A variable; its value arrives."""

Write = Annotated[_T, Marker.WRITE]
"""A variable; its handle arrives, and the function returns its new value, before its other results."""

Update = Annotated[_T, Marker.UPDATE]
"""A variable; its value arrives, and the function returns its new value, before its other results."""

UpdateInt64 = Annotated[_T, Marker.UPDATE_INT64]
"""An `Update` of a variable that keeps all 64 bits, such as the state of a random generator."""

Key = Annotated[jax.Array, Marker.KEY]
"""The node's own JAX PRNG key; ``Key | None`` for an op with the option ``draws``."""

Bound = Annotated[int | DynamicShapes | None, Marker.BOUND]
"""The bound of a result's data-dependent size: pad to an int, or ask the tracker of dynamic shapes for a symbol.

Inputs of such an op are numpy arrays wherever they are static. None: raise `dynamic_shapes.tracker.UnboundedError`.
"""

StaticBound = Annotated[int | None, Marker.STATIC_BOUND]
"""A `Bound` of an op that always pads: its results never have symbolic sizes."""

Option = Annotated[_T, Marker.OPTION]
"""A config option of this name; it has the value captured at conversion."""

Unconditional = Annotated[bool, Marker.UNCONDITIONAL]
"""Whether the node runs for all data; False in branches and loops that some data skip."""


class Context:
    """Base class of the lowering's context, for an op's annotated first parameter."""


MARKERS: Mapping[str, Any] = {
    "Static": Static,
    "Unconverted": Unconverted,
    "Read": Read,
    "Write": Write,
    "Update": Update,
    "UpdateInt64": UpdateInt64,
    "Key": Key,
    "Bound": Bound,
    "StaticBound": StaticBound,
    "Option": Option,
    "Unconditional": Unconditional,
    "Context": Context,
    DynamicShapes.__name__: DynamicShapes,
}
_NAMES = "|".join(MARKERS)
_HAS_NAME = re.compile(rf"\b({_NAMES})\b")
_IS_NAME = re.compile(rf"(?:\w+\.)*({_NAMES})(?:\[.*\])?(?: \| None)?")


def marker_of(annotation: Any, namespace: Mapping[str, Any]) -> Marker | None:
    """Return the marker that a parameter's annotation holds.

    Args:
      annotation: the annotation, or its text under ``from __future__ import annotations``.
      namespace: globals of the function's module, for texts. A name that it lacks (imported for type checkers only)
        is taken to be the marker of that name.
    """
    if isinstance(annotation, str):
        annotation = _evaluated(annotation, namespace)
    if annotation is None or annotation is Any:
        return None
    if isinstance(annotation, type):
        return (
            Marker.CONTEXT
            if issubclass(annotation, Context)
            else Marker.SHAPES
            if annotation is DynamicShapes
            else None
        )
    if get_origin(annotation) in (Union, types.UnionType):
        found = [marker for part in get_args(annotation) if (marker := marker_of(part, namespace)) is not None]
        return found[0] if found else None
    return next((m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Marker)), None)


@functools.cache
def _has_name(text: str) -> bool:
    return _HAS_NAME.search(text) is not None


def _evaluated(text: str, namespace: Mapping[str, Any]) -> Any:
    if text in namespace:
        return namespace[text]
    if not _has_name(text):
        return None
    try:
        return eval(text, dict(namespace))
    except Exception:  # names that only type checkers see
        match = _IS_NAME.fullmatch(text)
        return None if match is None else MARKERS[match[1]]
