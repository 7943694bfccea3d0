"""The registry: one TensorFlow op, one plain Python function.

An op's signature *is* its OpDef. Tensor inputs are positional, in OpDef order (a list input is one parameter that
receives a list); attributes are keyword-only and carry TensorFlow's names::

    @op("Sum", pattern=Pattern.MATERIALIZED)
    def reduce_sum(x: Array, axis: Static, *, keep_dims: bool = False) -> Array:
        ...

`traits` has the options of the decorator and the markers that annotate parameters: ``Static`` marks an input that must
be known while tracing and arrives as a numpy array. What an op does beyond its value is declared there, and nowhere
else.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import importlib
import inspect
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tf2jax_lite.ops.traits import MARKERS, Marker, OpOptions, Static, marker_of, partial_fold
from tf2jax_lite.support.config import Scoped
from tf2jax_lite.support.errors import RegistrationError

__all__ = ["Op", "RegistrationError", "Static", "known_ops", "lookup", "op", "override_op", "register_op"]

REQUIRED: Any = inspect.Parameter.empty
"""In the ``attributes`` of `op`: an attribute without a default."""

_OPTIONS = tuple(field.name for field in dataclasses.fields(OpOptions))
_OF_INPUTS = frozenset(
    {Marker.STATIC, Marker.UNCONVERTED, Marker.READ, Marker.WRITE, Marker.UPDATE, Marker.UPDATE_INT64}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Op(OpOptions):
    """A registered op: its function, options, and facts from its signature.

    Attributes:
      name: the TensorFlow op name.
      fn: the function; called as ``fn(*inputs, **attributes)``.
      source: the place of the function, as ``file:line``.
      inputs: names of the tensor inputs, in OpDef order.
      varargs: whether the function takes any number of inputs (``*inputs``).
      attrs: names of the attributes that the function takes.
      required_attrs: those of ``attrs`` that have no default.
      static: inputs that are `Static`.
      unconverted: inputs that are `Unconverted`.
      reads: variable inputs whose handle is replaced by the variable's current value.
      writes: variable inputs for which ``fn`` returns a new value, before its other results and in this order.
      int64_state: those of ``writes`` that keep 64 bits.
      folds_partially: whether ``fold`` is also called where some inputs are not static.
      needs_context: whether ``fn`` takes the lowering's context as its first argument: control flow, calls.
      key: keyword that takes the node's PRNG key; None if the op draws nothing.
      bound: keyword that takes the bound of a data-dependent size; None if sizes depend on shapes alone.
      always_pads: whether results are padded to ``bound`` even where sizes may be symbols.
      shapes: keyword that takes the tracker of dynamic shapes; None if there is none.
      unconditional: keyword that tells whether the node runs for all data; None if there is none.
      config_options: keywords that take config options.
    """

    name: str
    fn: Callable[..., Any]
    source: str
    inputs: tuple[str, ...]
    varargs: bool
    attrs: frozenset[str]
    required_attrs: frozenset[str]
    static: frozenset[str]
    unconverted: frozenset[str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    int64_state: tuple[str, ...]
    folds_partially: bool
    needs_context: bool
    key: str | None
    bound: str | None
    always_pads: bool
    shapes: str | None
    unconditional: str | None
    config_options: tuple[str, ...]

    @property
    def effectful(self) -> bool:
        """Whether running the node changes something besides its results."""
        return self.side_effect or bool(self.writes)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether a node only computes results: no variables, randomness or effects."""
        return not (self.key or self.reads or self.writes or self.side_effect)

    def draws_random(self, attrs: Mapping[str, Any]) -> bool:
        """Return whether a node with these attributes draws random numbers from a key."""
        return self.key is not None and (self.draws is None or self.draws(attrs))


_registry: dict[str, Op] = {}


class _Registered(Mapping[str, Op]):
    """The registered ops.

    The first lookup of another name imports `tf2jax_lite.ops.rare`.
    """

    def __getitem__(self, name: str) -> Op:
        if name not in _registry:
            _import_rare_ops()
        return _registry[name]

    def __iter__(self) -> Iterator[str]:
        _import_rare_ops()
        return iter(_registry)

    def __len__(self) -> int:
        _import_rare_ops()
        return len(_registry)


def _import_rare_ops() -> None:
    importlib.import_module("tf2jax_lite.ops.rare")


_REGISTERED = _Registered()
_lock = threading.Lock()
_overrides: Scoped[Op] = Scoped("op_overrides")


def _make_op(
    name: str,
    fn: Callable[..., Any],
    *,
    inputs: str | None = None,
    attributes: Mapping[str, Any] = types.MappingProxyType({}),
    **options: Any,
) -> Op:
    if inputs is not None:
        fn = _with_signature(fn, inputs, attributes)
    function = inspect.unwrap(fn)
    code = getattr(function, "__code__", None)
    source = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(fn)
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"op {name!r}: the signature of {fn!r} cannot be read ({error}).") from error
    if unknown := options.keys() - set(_OPTIONS):
        raise RegistrationError(f"op {name!r}: unknown option {sorted(unknown)}; options are {sorted(_OPTIONS)}.")
    namespace = getattr(function, "__globals__", {})
    markers: dict[str, Marker | None] = {
        parameter: marker_of(found.annotation, namespace)
        for parameter, found in parameters.items()
        if found.annotation is not found.empty
    }
    positional, keywords = _by_kind(parameters, f"op {name!r} ({source})")
    needs_context = bool(positional) and markers.get(positional[0]) is Marker.CONTEXT
    if needs_context:
        markers[positional.pop(0)] = None
    with_marker = [(parameter, marker) for parameter, marker in markers.items() if marker is not None]
    for parameter, marker in with_marker:
        if parameter not in (positional if marker in _OF_INPUTS else keywords):
            kind = "an input" if marker in _OF_INPUTS else "a keyword-only parameter"
            raise RegistrationError(f"op {name!r} ({source}): {marker.name} {parameter!r} is not {kind}.")

    def marked(*kinds: Marker) -> tuple[str, ...]:
        return tuple([parameter for parameter, marker in with_marker if marker in kinds])

    def keyword(*kinds: Marker) -> str | None:
        return next(iter(marked(*kinds)), None)

    attrs = [k for k in keywords if markers.get(k) is None]
    fold = options.get("fold")
    return Op(
        **{**options, "fold": _folder(fold, keywords, {k: parameters[k].default for k in attrs})},
        name=name,
        fn=fn,
        source=source,
        inputs=tuple(positional),
        varargs=any(p.kind is p.VAR_POSITIONAL for p in parameters.values()),
        attrs=frozenset(attrs),
        required_attrs=frozenset(k for k in attrs if parameters[k].default is inspect.Parameter.empty),
        static=frozenset(marked(Marker.STATIC)),
        unconverted=frozenset(marked(Marker.UNCONVERTED)),
        reads=marked(Marker.READ, Marker.UPDATE, Marker.UPDATE_INT64),
        writes=marked(Marker.WRITE, Marker.UPDATE, Marker.UPDATE_INT64),
        int64_state=marked(Marker.UPDATE_INT64),
        folds_partially=isinstance(fold, partial_fold) or (needs_context and fold is not None),
        needs_context=needs_context,
        key=keyword(Marker.KEY),
        bound=keyword(Marker.BOUND, Marker.STATIC_BOUND),
        always_pads=bool(marked(Marker.STATIC_BOUND)),
        shapes=keyword(Marker.SHAPES),
        unconditional=keyword(Marker.UNCONDITIONAL),
        config_options=marked(Marker.OPTION),
    )


def _folder(fold: Any, keywords: Sequence[str], attrs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return a folder that passes the keywords that ``fold`` takes, or their defaults."""
    fn = fold.fn if isinstance(fold, partial_fold) else fold
    if fn is None or not keywords:
        return fn
    parameters = inspect.signature(fn).parameters.values()
    names = frozenset(p.name for p in parameters if p.name in keywords)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        names |= attrs.keys()
    defaults = {k: v for k, v in attrs.items() if k in names and v is not REQUIRED}

    @functools.wraps(fn)
    def call(*args: Any, **given: Any) -> Any:
        return fn(*args, **{**defaults, **{k: v for k, v in given.items() if k in names}})

    return call


def _by_kind(parameters: Mapping[str, inspect.Parameter], where: str) -> tuple[list[str], list[str]]:
    """Return the names of positional parameters, and of keyword-only ones."""
    inputs: list[str] = []
    keywords: list[str] = []
    for name, parameter in parameters.items():
        kind = parameter.kind
        if kind is parameter.POSITIONAL_OR_KEYWORD or kind is parameter.POSITIONAL_ONLY:
            inputs.append(name)
        elif kind is parameter.KEYWORD_ONLY:
            keywords.append(name)
        elif kind is parameter.VAR_KEYWORD:
            raise RegistrationError(
                f"{where}: '**{name}' would swallow attributes that are not implemented; name each one "
                "as a keyword-only parameter."
            )
    return inputs, keywords


def _with_signature(fn: Callable[..., Any], inputs: str, attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """Return ``fn``, called by keywords, with another signature."""

    def parameter(text: str, kind: Any, default: Any = REQUIRED) -> inspect.Parameter:
        name, _, marker = text.partition(":")
        return inspect.Parameter(name, kind, default=default, annotation=MARKERS[marker] if marker else REQUIRED)

    positional = [parameter(text, inspect.Parameter.POSITIONAL_OR_KEYWORD) for text in inputs.split()]
    keywords = [parameter(text, inspect.Parameter.KEYWORD_ONLY, default) for text, default in attributes.items()]
    signature = inspect.Signature([*positional, *keywords])

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return fn(**bound.arguments)

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def op(*names: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the implementation of TensorFlow ops.

    Args:
      *names: the op names; several where TensorFlow has several names for one signature.
      **options: see `traits.OpOptions`. For ops that share a function, ``inputs`` are the names of one op's inputs, as
        ``"input sizes:Static"``, and ``attributes`` the default of each attribute or `REQUIRED`, of other keywords by
        ``"key:Key"``. The function is then called with a keyword for each parameter.

    Returns:
      A decorator that returns its function unchanged.

    Raises:
      RegistrationError: a name is taken (the message says where), an option is unknown, or the signature is not an
        OpDef's.

    Example:
      >>> @tf2jax.register_op("MyScale")
      ... def my_scale(x, *, factor=1.0):
      ...     return x * factor
    """
    if not names:
        raise RegistrationError("@op needs at least one op name.")
    _check_names(names)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if not str(getattr(fn, "__module__", "")).startswith("tf2jax_lite."):
            _import_rare_ops()  # a user's op must not take the name of one of them
        for name in names:
            entry = _make_op(name, fn, **options)
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
    """Replace or add an op for conversions made inside the ``with`` block.

    Args:
      name: the op name.
      fn: the function, with the signature that `op` asks for.
      **options: as of `op`.

    Raises:
      RegistrationError: an option is unknown, or the signature is not an OpDef's.

    Example:
      >>> with tf2jax.override_op("Relu", lambda features: jnp.maximum(features, 0.1)):
      ...     jax_fn = tf2jax.convert_functional(tf.function(tf.nn.relu), tf.TensorSpec([]))
    """
    _check_names((name,))
    entry = _make_op(name, fn, **options)
    with _overrides.holding(entry):
        yield


def lookup(name: str) -> Op | None:
    """Return the op registered under ``name`` (an override in force first), or None."""
    for entry in reversed(_overrides.values()):
        if entry.name == name:
            return entry
    return _REGISTERED.get(name)


def known_ops() -> dict[str, Op]:
    """Return every registered op by name, sorted, overrides in force included."""
    return dict(sorted(ops_in_force().items()))


def ops_in_force() -> collections.ChainMap[str, Op]:
    """Return the ops of `known_ops`, in no order.

    Those of `tf2jax_lite.ops.rare` are imported at the first lookup of a name that is not registered.
    """
    overrides = {entry.name: entry for entry in _overrides.values()}
    return collections.ChainMap(overrides, _REGISTERED)  # type: ignore[arg-type]  (only the first is written to)
