"""The registry: one TensorFlow op, one plain Python function.

An op's signature *is* its OpDef. Tensor inputs are positional, in OpDef order (a list input is one
parameter that receives a list); attributes are keyword-only and carry TensorFlow's names::

    @op("Sum")
    def reduce_sum(x, axis: Static, *, keep_dims=False):
        ...

``Static`` marks an input that must be known while tracing (an axis, a shape, a permutation); it arrives
as a numpy array. What an op does beyond its value is declared beside it, never in a list elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from tf2jax_lite.support.errors import RegistrationError
from tf2jax_lite.support.scoped import Scoped

__all__ = ["Op", "RegistrationError", "Static", "known_ops", "lookup", "op", "override_op", "register_op"]


class _StaticMarker:
    """Tag inside ``Annotated`` that marks an input as static."""

    def __repr__(self) -> str:
        return "Static"


_STATIC = _StaticMarker()
Static = Annotated[Any, _STATIC]
"""Annotation of an op input whose value must be known while tracing."""


@dataclasses.dataclass(frozen=True)
class Op:
    """A registered op: the function and what its signature and decorator say about it.

    Attributes:
      name: the TensorFlow op name.
      fn: the function; called as ``fn(*inputs, **attributes)``.
      inputs: names of the tensor inputs, in OpDef order.
      static: names of the inputs that must be known while tracing.
      attrs: names of the attributes that the function takes.
      required_attrs: those of ``attrs`` that have no default.
      varargs: whether the function takes any number of inputs (``*inputs``).
      host: the numpy twin, called in place of ``fn`` when every input is a static numpy value, so that shape
        arithmetic never enters the trace. Same signature as ``fn``.
      lazy: whether ``host`` is also called when some inputs are not known: it gets `values.UNKNOWN` for those, and may
        return it. ``False and UNKNOWN`` is False.
      needs_key: whether ``fn`` takes ``key=``, a JAX PRNG key that is the node's own; or a function of the node's
        attributes that tells whether this node draws (``key`` is None for one that does not).
      needs_context: whether ``fn`` takes the lowering context as its first argument (control flow, calls).
      reads: variable inputs whose handle is replaced by the variable's current value.
      writes: variable inputs for which ``fn`` returns a new value, before its other results and in this order.
      dynamic_shape: whether the shape of a result depends on values. ``fn`` then takes ``bound=``, an int or None:
        inputs are numpy arrays wherever they are known, and a bound asks for padded results inside a trace.
        ``"prefix"``: ``bound`` may also be `DynamicShapes`, which gives results a symbolic dimension.
      options: config options that ``fn`` takes as keywords; it gets the values captured at conversion.
      partial: inputs that ``fn`` takes as they are: numpy arrays of any dtype where they are known.
      effect: whether the node must run although nothing uses its results (assertions, printing).
      shape_only: whether the results depend on the shapes of the inputs alone.
      words: what happens to 64-bit integers that JAX has no type for (`words.Words`): ``"narrow"``, ``fn`` gets
        their low words; ``"each"``, ``fn`` only moves elements and is applied to each word; ``"whole"``, ``fn``
        takes them as they are, and 64-bit numpy values too.
      wide: variable inputs that hold 64-bit state, such as that of a random generator.
      elements: for ops whose results grow with the values of inputs (sizes, repeats): takes what ``fn`` takes, and
        returns the number of elements of the largest result, before anything is made; None if it cannot tell.
      heavy: whether it reads its operands from memory, many times each: a convolution, a product of matrices. What such
        an op shares with others is computed once (`lowering.sharing`).
      along: for ops that work along the last axis alone, what ``fn`` does along another: takes inputs and attributes as
        ``fn`` does, and ``axis=``.
      sized: whether ``fn`` takes ``tracker=``, a `DynamicShapes` that gives results symbolic dimensions, or None:
        unlike ops of dynamic shape, most of its nodes have results of static sizes.
      conditional: whether ``fn`` takes ``certain=``: whether the node runs whatever the data are, or stands in a branch
        or a loop that data may leave out.
      calls: whether a node is nothing but a call of the function that its attribute ``f`` names.
      stored: whether its results are in memory, whoever uses them, as XLA does not put it into its users: a reduction,
        a sort, a scatter. What is ``heavy`` is, too.
      moves: whether the elements of its results are those that an operand has at other places: a slice, a
        concatenation, a transposition.
      dear: whether an element takes as long as several sums or products: an exponential, a sine, a power.
      check: takes the attributes, as keywords of ``fn``, and raises OpError at conversion where their values exclude
        each other; None: there is nothing to check.
      source: where it was registered, as ``file:line``.
      plain: whether a node only gives results: it reads and writes no variable, draws nothing and has no effect.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[str, ...]
    static: frozenset[str]
    attrs: frozenset[str]
    required_attrs: frozenset[str]
    varargs: bool
    host: Callable[..., Any] | None
    lazy: bool
    needs_key: bool | Callable[[Mapping[str, Any]], bool]
    needs_context: bool
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    effect: bool
    dynamic_shape: bool | Literal["prefix"]
    options: tuple[str, ...]
    partial: tuple[str, ...]
    shape_only: bool
    words: Literal["narrow", "each", "whole"]
    wide: tuple[str, ...]
    elements: Callable[..., int | None] | None
    source: str
    plain: bool
    heavy: bool = False
    along: Callable[..., Any] | None = None
    sized: bool = False
    conditional: bool = False
    calls: bool = False
    stored: bool = False
    moves: bool = False
    dear: bool = False
    check: Callable[[Mapping[str, Any]], None] | None = None

    @property
    def effectful(self) -> bool:
        """Whether running the node changes something besides its results."""
        return self.effect or bool(self.writes)

    def draws(self, attrs: Mapping[str, Any]) -> bool:
        """Whether a node with these attributes draws random numbers from a key."""
        return self.needs_key(attrs) if callable(self.needs_key) else self.needs_key


_registry: dict[str, Op] = {}
_lock = threading.Lock()
_overrides: Scoped[Op] = Scoped("op_overrides")


def _is_static(annotation: Any) -> bool:
    return annotation is Static or annotation == "Static" or _STATIC in getattr(annotation, "__metadata__", ())


def _describe(
    name: str,
    fn: Callable[..., Any],
    *,
    host: Callable[..., Any] | None,
    lazy: bool,
    needs_key: bool | Callable[[Mapping[str, Any]], bool],
    needs_context: bool,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    effect: bool,
    dynamic_shape: bool | Literal["prefix"],
    options: tuple[str, ...],
    partial: tuple[str, ...],
    shape_only: bool,
    words: Literal["narrow", "each", "whole"],
    wide: tuple[str, ...],
    elements: Callable[..., int | None] | None,
    heavy: bool,
    along: Callable[..., Any] | None,
    sized: bool,
    conditional: bool,
    calls: bool,
    stored: bool,
    moves: bool,
    dear: bool,
    check: Callable[[Mapping[str, Any]], None] | None,
) -> Op:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    source = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(fn)
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"op {name!r}: the signature of {fn!r} cannot be read ({error}).") from error
    inputs: list[str] = []
    static: set[str] = set()
    attrs: set[str] = set()
    required: set[str] = set()
    varargs = False
    supplied = {
        *options,
        *(["key"] if needs_key else []),
        *(["bound"] if dynamic_shape else []),
        *(["tracker"] if sized else []),
        *(["certain"] if conditional else []),
    }
    for index, parameter in enumerate(parameters):
        if needs_context and index == 0:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            inputs.append(parameter.name)
            if _is_static(parameter.annotation):
                static.add(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            varargs = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.name in supplied:
                continue
            attrs.add(parameter.name)
            if parameter.default is parameter.empty:
                required.add(parameter.name)
        else:
            raise RegistrationError(
                f"op {name!r} ({source}): '**{parameter.name}' would swallow attributes that nobody handles; "
                "name each attribute as a keyword-only parameter."
            )
    for variable in (*reads, *writes):
        if variable not in inputs:
            raise RegistrationError(f"op {name!r} ({source}): reads or writes {variable!r}, which is not an input.")
    return Op(
        name=name,
        fn=fn,
        inputs=tuple(inputs),
        static=frozenset(static),
        attrs=frozenset(attrs),
        required_attrs=frozenset(required),
        varargs=varargs,
        host=host,
        lazy=lazy or (needs_context and host is not None),
        needs_key=needs_key,
        needs_context=needs_context,
        reads=reads,
        writes=writes,
        effect=effect,
        dynamic_shape=dynamic_shape,
        options=options,
        partial=partial,
        shape_only=shape_only,
        words=words,
        wide=wide,
        elements=elements,
        source=source,
        plain=not (needs_key or reads or writes or wide or effect),
        heavy=heavy,
        along=along,
        sized=sized,
        conditional=conditional,
        calls=calls,
        stored=stored,
        moves=moves,
        dear=dear,
        check=check,
    )


def op(
    *names: str,
    host: Callable[..., Any] | None = None,
    lazy: bool = False,
    needs_key: bool | Callable[[Mapping[str, Any]], bool] = False,
    needs_context: bool = False,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    effect: bool = False,
    dynamic_shape: bool | Literal["prefix"] = False,
    options: tuple[str, ...] = (),
    partial: tuple[str, ...] = (),
    shape_only: bool = False,
    words: Literal["narrow", "each", "whole"] = "narrow",
    wide: tuple[str, ...] = (),
    elements: Callable[..., int | None] | None = None,
    heavy: bool = False,
    along: Callable[..., Any] | None = None,
    sized: bool = False,
    conditional: bool = False,
    calls: bool = False,
    stored: bool = False,
    moves: bool = False,
    dear: bool = False,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated function as the implementation of TensorFlow ops.

    Args:
      *names: the op names; several where TensorFlow has several names for one signature.
      host: see `Op.host`.
      lazy: see `Op.lazy`.
      needs_key: see `Op.needs_key`.
      needs_context: see `Op.needs_context`.
      reads: see `Op.reads`.
      writes: see `Op.writes`.
      effect: see `Op.effect`.
      dynamic_shape: see `Op.dynamic_shape`.
      options: see `Op.options`.
      partial: see `Op.partial`.
      shape_only: see `Op.shape_only`.
      words: see `Op.words`.
      wide: see `Op.wide`.
      elements: see `Op.elements`.
      heavy: see `Op.heavy`.
      along: see `Op.along`.
      sized: see `Op.sized`.
      conditional: see `Op.conditional`.
      calls: see `Op.calls`.
      stored: see `Op.stored`.
      moves: see `Op.moves`.
      dear: see `Op.dear`.
      check: see `Op.check`.

    Returns:
      A decorator that returns its function unchanged.

    Raises:
      RegistrationError: a name is taken (the message says where), or the signature is not an OpDef's.
    """
    if not names:
        raise RegistrationError("@op needs at least one op name.")
    _check_names(names)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            entry = _describe(
                name,
                fn,
                host=host,
                lazy=lazy,
                needs_key=needs_key,
                needs_context=needs_context,
                reads=reads,
                writes=writes,
                effect=effect,
                dynamic_shape=dynamic_shape,
                options=options,
                partial=partial,
                shape_only=shape_only,
                words=words,
                wide=wide,
                elements=elements,
                heavy=heavy,
                along=along,
                sized=sized,
                conditional=conditional,
                calls=calls,
                stored=stored,
                moves=moves,
                dear=dear,
                check=check,
            )
            with _lock:
                if name in _registry:
                    raise RegistrationError(
                        f"op {name!r} is already registered at {_registry[name].source}; the second registration is "
                        f"at {entry.source}. Use tf2jax_lite.override_op to replace it for a scope."
                    )
                _registry[name] = entry
        return fn

    return register


def _check_names(names: tuple[Any, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise RegistrationError(f"an op's name is a text, got {name!r}: register with @register_op('Name').")


register_op = op
"""Public name of `op`, for users who add ops of their own."""


@contextlib.contextmanager
def override_op(name: str, fn: Callable[..., Any], **options: Any) -> Iterator[None]:
    """Replaces or adds an op for conversions made inside the ``with`` block.

    Args:
      name: the op name.
      fn: the function, with the signature that `op` asks for.
      **options: the options of `op`.

    Raises:
      RegistrationError: the signature is not an OpDef's.
    """
    defaults: dict[str, Any] = {
        "host": None,
        "lazy": False,
        "needs_key": False,
        "needs_context": False,
        "reads": (),
        "writes": (),
        "effect": False,
        "dynamic_shape": False,
        "options": (),
        "partial": (),
        "shape_only": False,
        "words": "narrow",
        "wide": (),
        "elements": None,
        "heavy": False,
        "along": None,
        "sized": False,
        "conditional": False,
        "calls": False,
        "stored": False,
        "moves": False,
        "dear": False,
        "check": None,
    }
    unknown = set(options) - set(defaults)
    if unknown:
        raise RegistrationError(f"op {name!r}: unknown option {sorted(unknown)}; options are {sorted(defaults)}.")
    _check_names((name,))
    entry = _describe(name, fn, **{**defaults, **options})
    with _overrides.holding(entry):
        yield


def lookup(name: str) -> Op | None:
    """Returns the op registered under ``name`` (an override in force first), or None."""
    for entry in reversed(_overrides.values()):
        if entry.name == name:
            return entry
    return _registry.get(name)


def known_ops() -> dict[str, Op]:
    """Returns every registered op by name, sorted, overrides in force included."""
    return dict(sorted(ops_in_force().items()))


def ops_in_force() -> dict[str, Op]:
    """Returns what `known_ops` does, in no order."""
    return {**_registry, **{entry.name: entry for entry in _overrides.values()}}
