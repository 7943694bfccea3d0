"""What a converted function takes and gives: binding, checks, structure of results. Knows no TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import (
    ArgumentError,
    DtypeMismatchError,
    InputError,
    MissingInputError,
    ShapeMismatchError,
)
from tf2jax_lite.values import static as values
from tf2jax_lite.values.int64 import exceeds_32_bits

from .composite_values import components, fits

__all__ = [
    "OPAQUE",
    "Bound",
    "Interface",
    "OutputRef",
    "TensorArgument",
    "accepted_names",
    "in_kind",
    "is_key",
    "keyword_parameters",
    "kind_of",
    "map_structure",
    "match_arrays",
    "parameter_name",
    "parameter_names",
]

_STATIC_SIZE = 64
_SCALARS = (bool, int, float, complex, str, bytes)
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


class _Opaque:
    """A literal that TensorFlow does not tell (a function, an object of some class); any other may stand for it."""

    def __repr__(self) -> str:
        return "..."

    def __reduce__(self) -> str:
        return "OPAQUE"


OPAQUE = _Opaque()


def parameter_name(text: str) -> str:
    """Returns a name that Python takes for a parameter: ``text``, if it is one."""
    name = text if text.isidentifier() else "".join(c if c.isalnum() else "_" for c in text)
    if not name.isidentifier():
        name = f"input_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def parameter_names(texts: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Returns a parameter's name for each text, each once and none of ``taken``."""
    names: list[str] = []
    others = set(taken)
    for text in texts:
        name = parameter_name(text)
        while name in others:
            name += "_"
        others.add(name)
        names.append(name)
    return names


def keyword_parameters(names: Iterable[str], kind: Any) -> list[inspect.Parameter]:
    """Returns parameters for arguments that are given by name; names that Python cannot spell go into a ``**``.

    Args:
      names: any texts, each once.
      kind: of the others, such as ``inspect.Parameter.KEYWORD_ONLY``.
    """
    names = list(names)
    parameters = [inspect.Parameter(name, kind) for name in names if parameter_name(name) == name]
    if len(parameters) < len(names):
        rest = "kwargs"
        while rest in names:
            rest += "_"
        parameters.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    return parameters


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A tensor among the arguments.

    Attributes:
      index: its position among the flat inputs of the main function.
      name: the name that TensorFlow gave it.
      dtype: numpy dtype, or None for strings and other things that JAX cannot hold.
      shape: with None for unknown dimensions; None for unknown rank.
      value: what it holds if the function was converted for nothing else, a vector: the dense shape of a sparse tensor
        (-1 where it may be any), the row splits of rows of one length.
      composite: the ``tf.TypeSpec`` of the composite tensor whose first component it is, if it is one.
      ragged_rank: how many vectors of row splits, outermost first, stand behind it that part it.
    """

    index: int
    name: str
    dtype: np.dtype | None
    shape: tuple[int | None, ...] | None
    value: tuple[int, ...] | None = None
    composite: Any = dataclasses.field(default=None, compare=False, repr=False)
    ragged_rank: int = dataclasses.field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        shape = "?" if self.shape is None else ",".join("None" if d is None else str(d) for d in self.shape)
        return f"{self.dtype or 'string'}[{shape}]"


@dataclasses.dataclass(frozen=True)
class OutputRef:
    """A tensor among the results: position among the flat outputs of the main function."""

    index: int


@dataclasses.dataclass(frozen=True)
class Bound:
    """Arguments bound: one value per tensor argument, and whether dtypes differ from those converted for."""

    flat: list[Any]
    loose: bool


@dataclasses.dataclass(frozen=True)
class Interface:
    """The Python face of a converted function.

    Attributes:
      name: the function's name, for messages.
      signature: how arguments bind.
      args: structure of positional arguments, tensors as `TensorArgument`, anything else as the literal baked in.
      kwargs: the same for keyword arguments.
      count: number of tensor arguments.
      outputs: structure of the results, tensors as `OutputRef`.
    """

    name: str
    signature: inspect.Signature
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    count: int
    outputs: Any

    @functools.cached_property
    def ragged(self) -> tuple[tuple[int, int], ...]:
        """Of each ragged argument the position of its flat values among the flat inputs, and its ragged rank."""
        found: list[tuple[int, int]] = []

        def look(leaf: Any) -> None:
            if isinstance(leaf, TensorArgument) and leaf.ragged_rank:
                found.append((leaf.index, leaf.ragged_rank))

        map_structure(look, (self.args, self.kwargs))
        return tuple(found)

    def call_signature(self, *, params: bool = True, rng: bool = True) -> inspect.Signature:
        """Returns the signature with ``params`` in front and ``rng`` behind, where the function takes them."""
        kinds = inspect.Parameter
        own = list(self.signature.parameters.values())
        first = "params"
        while first in self.signature.parameters:
            first += "_"  # it is given by position, so that its name means nothing
        ours = [kinds(first, kinds.POSITIONAL_ONLY)] if params else []
        if not rng or "rng" in self.signature.parameters:
            return inspect.Signature([*ours, *own])
        tail = [p for p in own if p.kind is p.VAR_KEYWORD]
        head = [p for p in own if p.kind is not p.VAR_KEYWORD]
        return inspect.Signature([*ours, *head, kinds("rng", kinds.KEYWORD_ONLY, default=None), *tail])

    def take_params(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """Takes the params, which come first, from a call's arguments; returns them and the positional arguments left.

        Raises:
          InputError: they are missing, or no dict.
        """
        params, *rest = args or (kwargs.pop("params", None),)
        if not hasattr(params, "items"):
            raise InputError(
                f"{self.name}: the first argument is params, a dict from variable name to array; "
                f"got {type(params).__name__}."
            )
        return params, tuple(rest)

    def take_key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Takes the key, ``rng``, from a call's keyword arguments; None if none is given.

        A function may have an argument called ``rng`` of its own. Then that is meant, unless it is given in order or
        what is given is a typed key, which no function of TensorFlow's takes.
        """
        if "rng" not in kwargs:
            return None
        names = list(self.signature.parameters)
        own = "rng" in self.kwargs or ("rng" in names and "rng" not in names[: len(args)])
        return None if own and not is_key(kwargs["rng"]) else kwargs.pop("rng")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Config) -> Bound:
        """Binds arguments as TensorFlow would and checks them as configured.

        Raises:
          InputError: they do not fit; the subclass and the message say how.
        """
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.signature}: {error}. {self._expected()}") from None
        binder = _Binder(self, config)
        given_args, given_kwargs = self._canonical(bound)
        for position, spec in enumerate(self.args):
            name = self._position_name(position)
            if position < len(given_args):
                binder.visit(name, spec, given_args[position])
            elif name in given_kwargs:
                binder.visit(name, spec, given_kwargs.pop(name))
            else:
                binder.missing_spec(name, spec)
        if len(given_args) > len(self.args):
            raise ArgumentError(
                f"{self.name} takes {len(self.args)} positional argument(s), got {len(given_args)}. {self._expected()}"
            )
        for name, spec in self.kwargs.items():
            if name in given_kwargs:
                binder.visit(name, spec, given_kwargs.pop(name))
            else:
                binder.missing_spec(name, spec)
        for name, value in given_kwargs.items():
            default = self.signature.parameters.get(name)
            if default is not None and default.default is value:
                continue
            raise ArgumentError(f"{self.name} was not converted for an argument {name!r}. {self._expected()}")
        return binder.finish()

    def _canonical(self, bound: inspect.BoundArguments) -> tuple[list[Any], dict[str, Any]]:
        """Returns arguments as TensorFlow canonicalizes them: positional ones in order, then keywords by name."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        gap = False
        for name, parameter in self.signature.parameters.items():
            given = name in bound.arguments
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                if given or parameter.default is not parameter.empty:
                    value = bound.arguments[name] if given else parameter.default
                    if gap or name in self.kwargs:
                        kwargs[name] = value
                    else:
                        args.append(value)
                elif name not in self.kwargs:
                    gap = True
            elif parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(bound.arguments.get(name, ()))
            elif parameter.kind is parameter.KEYWORD_ONLY:
                if given:
                    kwargs[name] = bound.arguments[name]
                elif parameter.default is not parameter.empty:
                    kwargs[name] = parameter.default
            else:
                kwargs.update(bound.arguments.get(name, {}))
        return args, kwargs

    def argument_name(self, position: int) -> str:
        """Returns the name of a positional argument, ``args/0`` and so on for those of a ``*args``."""
        return self._position_name(position, "{}/{}")

    def _position_name(self, position: int, several: str = "{}[{}]") -> str:
        names = [
            name
            for name, p in self.signature.parameters.items()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and name not in self.kwargs
        ]
        if position < len(names):
            return names[position]
        rest = [name for name, p in self.signature.parameters.items() if p.kind is p.VAR_POSITIONAL]
        return several.format(rest[0] if rest else "args", position - len(names))

    def _expected(self) -> str:
        shown = [f"{self._position_name(i)}={_show(spec)}" for i, spec in enumerate(self.args)]
        shown += [f"{name}={_show(spec)}" for name, spec in self.kwargs.items()]
        return f"It was converted for ({', '.join(shown)})."

    def expected(self) -> str:
        """Returns a line that says what the function was converted for."""
        return self._expected()

    def tensors(self) -> dict[str, TensorArgument]:
        """Returns tensor arguments by name; those in a structure are named by their path, ``inputs/ids``."""
        found: dict[str, TensorArgument] = {}

        def visit(path: str, spec: Any) -> None:
            if isinstance(spec, TensorArgument):
                found[path] = spec
            elif isinstance(spec, Mapping):
                for key, item in spec.items():
                    visit(f"{path}/{key}", item)
            elif isinstance(spec, (list, tuple)):
                for i, item in enumerate(spec):
                    visit(f"{path}/{i}", item)

        for i, spec in enumerate(self.args):
            visit(self.argument_name(i), spec)
        for name, spec in self.kwargs.items():
            visit(name, spec)
        return found

    def result_names(self) -> list[str]:
        """Return the paths of flat results in the result structure, for messages."""
        found = jax.tree_util.tree_leaves_with_path(self.outputs, is_leaf=lambda leaf: isinstance(leaf, OutputRef))
        paths = {leaf.index: jax.tree_util.keystr(path) for path, leaf in found if isinstance(leaf, OutputRef)}
        return [paths.get(index) or f"[{index}]" for index in range(max(paths, default=-1) + 1)]

    def results(self, flat: Sequence[Any]) -> Any:
        """Returns flat results in the function's result structure."""
        return map_structure(lambda leaf: flat[leaf.index] if isinstance(leaf, OutputRef) else leaf, self.outputs)


def accepted_names(path: str, spec: TensorArgument) -> list[str]:
    """Returns the names that an array for an argument may have: its path, its tensor's name, the end of its path."""
    return list(dict.fromkeys(filter(None, (path, spec.name, path.rsplit("/", 1)[-1]))))


def match_arrays(
    arguments: Mapping[str, TensorArgument], arrays: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """Finds the array of each argument by `accepted_names`; a single array for a single argument may have any name.

    Args:
      arguments: by path, see `Interface.tensors`.
      arrays: by name.

    Returns:
      Names of arrays by path of the argument, and the names of arrays that belong to none.
    """
    if len(arguments) == len(arrays) == 1:
        return dict(zip(arguments, arrays, strict=True)), []
    left, chosen = dict.fromkeys(arrays), {}
    for path, spec in arguments.items():
        for name in accepted_names(path, spec):
            if name in left:
                chosen[path] = name
                del left[name]
                break
    return chosen, list(left)


def is_key(value: Any) -> bool:
    """Whether a value is a typed PRNG key, or an array of them."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


class _Binder:
    def __init__(self, interface: Interface, config: Config):
        self._interface = interface
        self._config = config
        self._flat: list[Any] = [None] * interface.count
        self._missing: list[str] = []
        self._loose = False
        parameters = interface.signature.parameters.values()
        self._defaults = {id(p.default) for p in parameters if isinstance(p.default, (np.ndarray, np.generic))}

    def finish(self) -> Bound:
        if self._missing:
            raise MissingInputError(
                f"{self._interface.name}: missing input(s) {', '.join(self._missing)}. {self._interface.expected()}"
            )
        return Bound(self._flat, self._loose)

    def missing_spec(self, path: str, spec: Any) -> None:
        """Notes every tensor below ``spec`` as missing; literals were baked in and need not be given again."""
        if isinstance(spec, TensorArgument):
            self._missing.append(f"{path}: {spec}")
        elif isinstance(spec, Mapping):
            for key, item in spec.items():
                self.missing_spec(f"{path}[{key!r}]", item)
        elif isinstance(spec, (list, tuple)):
            for index, item in enumerate(spec):
                self.missing_spec(f"{path}[{index}]", item)

    def visit(self, path: str, spec: Any, value: Any) -> None:
        if isinstance(spec, TensorArgument):
            self._tensor(path, spec, value)
        elif isinstance(spec, Mapping):
            self._mapping(path, spec, value)
        elif _is_namedtuple(spec) or isinstance(spec, (list, tuple)):
            self._sequence(path, spec, value)
        elif not _same_literal(spec, value):
            traced = isinstance(value, jax.core.Tracer)
            found = "tracer" if traced else f"literal value, {_brief(value)}"
            static = " Under jax.jit, mark it with static_argnums or static_argnames." if traced else ""
            raise InputError(
                f"{self._interface.name}: Found unexpected {found}, for argument {path}, which was converted with the "
                f"literal {spec!r}. Convert again with that value, or with a tf.TensorSpec to pass it at run time."
                f"{static}"
            )

    def _mapping(self, path: str, spec: Mapping[Any, Any], value: Any) -> None:
        if value is None and any(_has_tensor(s) for s in spec.values()):
            self.missing_spec(path, spec)
            return
        if not isinstance(value, Mapping):
            raise InputError(f"{self._interface.name}: argument {path} is a dict {_show(spec)}, got {_brief(value)}.")
        extra = [key for key in value if key not in spec]
        if extra:
            raise InputError(
                f"{self._interface.name}: argument {path} has unexpected key(s) {extra}; expected {_show(spec)}."
            )
        for key, item in spec.items():
            if key in value:
                self.visit(f"{path}[{key!r}]", item, value[key])
            else:
                self.missing_spec(f"{path}[{key!r}]", item)

    def _sequence(self, path: str, spec: Sequence[Any], value: Any) -> None:
        if value is None and any(map(_has_tensor, spec)):
            self.missing_spec(path, spec)
            return
        given = value
        if not isinstance(value, (list, tuple)):
            value = components(value)
        if value is None:
            raise InputError(
                f"{self._interface.name}: argument {path} is a {type(spec).__name__} {_show(spec)}, "
                f"got {_brief(given)}."
            )
        if len(value) > len(spec):
            raise InputError(f"{self._interface.name}: argument {path} has {len(value)} items; expected {_show(spec)}.")
        described = next((item.composite for item in spec[:1] if isinstance(item, TensorArgument)), None)
        if value is not given and described is not None and not fits(given, described):
            raise InputError(
                f"{self._interface.name}: argument {path} was converted for {described}; what of it is no tensor is "
                f"baked into the function. Got {_brief(given)}. Convert again with that value."
            )
        names = getattr(type(spec), "_fields", None)
        for index, item in enumerate(spec):
            where = f"{path}.{names[index]}" if names else f"{path}[{index}]"
            if index < len(value):
                self.visit(where, item, value[index])
            else:
                self.missing_spec(where, item)

    def _tensor(self, path: str, spec: TensorArgument, value: Any) -> None:
        if value is None:
            self._missing.append(f"{path}: {spec}")
            return
        if id(value) in self._defaults and value.dtype.kind in "biufc":
            value = value.tolist()  # TensorFlow casts an argument's default to the dtype of its spec
        array = self._as_array(path, spec, value)
        array = self._with_dtype(path, spec, array)
        self._check_shape(path, spec, array)
        self._check_value(path, spec, array)
        self._flat[spec.index] = array

    def _as_array(self, path: str, spec: TensorArgument, value: Any) -> Any:
        if isinstance(value, jax.Array):
            return value
        if isinstance(value, Mapping):
            raise InputError(f"{self._interface.name}: argument {path} is one tensor {spec}, got {_brief(value)}.")
        try:
            if hasattr(value, "__jax_array__"):
                return value.__jax_array__()
            if isinstance(value, (list, tuple)):  # TensorFlow takes them for tensors, too
                array = _of_items(value, spec.dtype)
                if isinstance(array, jax.Array):
                    return array
            else:
                array = _scalar(value, spec.dtype) if isinstance(value, _SCALARS) else np.asarray(value)
            if array.dtype.kind in "SUO" or array.dtype == jax.dtypes.float0:
                return _strings(array)
            array = self._native(path, spec, array)
            if array.dtype.kind in "iub" and array.size <= _STATIC_SIZE:
                return array  # small integers may be shapes, axes or counts: they stay known while tracing
            if exceeds_32_bits(array) and not jax.config.jax_enable_x64:
                return array  # numpy computes with all of their bits, as far as it can
            if isinstance(value, np.ma.MaskedArray):
                array = value  # JAX says what to do about the mask
            return jax.device_put(array)  # jnp.asarray would compile a program for every shape
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise InputError(
                f"{self._interface.name}: argument {path} is a tensor {spec}, got {_brief(value)} ({error})."
            ) from None

    def _native(self, path: str, spec: TensorArgument, value: Any) -> Any:
        """Returns numbers in this machine's byte order; dates, records and such have no place in JAX."""
        if not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        if not _in_jax(value.dtype):
            raise DtypeMismatchError(
                f"{self._interface.name}: argument {path} is a tensor {spec}, got {value.dtype}, which JAX has not."
            )
        return value

    def _check_shape(self, path: str, spec: TensorArgument, array: Any) -> None:
        if not self._config.strict_shape_check or spec.shape is None:
            return
        if len(array.shape) == len(spec.shape):
            # Only integers can contradict; a symbolic dimension is checked where it is used.
            pairs = zip(array.shape, spec.shape, strict=True)
            if all(e is None or not isinstance(a, (int, np.integer)) or a == e for a, e in pairs):
                return
        raise ShapeMismatchError(
            f"{self._interface.name}: incompatible input shape {tuple(array.shape)} of argument {path}; the function "
            f"was converted for {spec.shape}. Convert with None for dimensions that vary, or switch the check off with "
            "override_config('strict_shape_check', False) around conversion or call."
        )

    def _with_dtype(self, path: str, spec: TensorArgument, array: Any) -> Any:
        if spec.dtype is None or array.dtype == object:
            if spec.dtype is not None or array.dtype != object:
                raise DtypeMismatchError(
                    f"{self._interface.name}: argument {path} has dtype {array.dtype}, but is a tensor {spec}."
                )
            return array
        if jnp.issubdtype(array.dtype, jax.dtypes.extended) or array.dtype == jax.dtypes.float0:
            raise DtypeMismatchError(
                f"{self._interface.name}: argument {path} has dtype {array.dtype}, not {spec.dtype}."
            )
        if values.canonical(array.dtype) == values.canonical(spec.dtype):
            return array
        if self._config.strict_dtype_check:
            raise DtypeMismatchError(
                f"{self._interface.name}: incompatible input dtype {array.dtype} of argument {path}; the function was "
                f"converted for {spec.dtype}. Cast it, or switch the check off with "
                "override_config('strict_dtype_check', False)."
            )
        raised = in_kind(array, spec.dtype)
        self._loose = self._loose or raised is None
        return array if raised is None else raised

    def _check_value(self, path: str, spec: TensorArgument, array: Any) -> None:
        # It shaped the graph: an override around the call does not change that.
        if spec.value is None or isinstance(array, jax.core.Tracer):
            return
        found = tuple(np.asarray(array).tolist())
        wanted = tuple(None if size == -1 else size for size in spec.value)
        fits = len(found) == len(wanted) and all(w in (None, f) for w, f in zip(wanted, found, strict=True))
        if not fits:
            raise ShapeMismatchError(
                f"{self._interface.name}: argument {path} is {found}, but the function was converted for {wanted}. "
                "Convert with None for dimensions that vary, or switch the check off with "
                "override_config('strict_shape_check', False) at conversion."
            )


def map_structure(fn: Callable[[Any], Any], structure: Any) -> Any:
    """Applies ``fn`` to the leaves of dicts, lists, tuples and namedtuples, keeping their types."""
    if isinstance(structure, Mapping):
        items = [(key, map_structure(fn, item)) for key, item in structure.items()]
        return type(structure)(items) if isinstance(structure, dict) else dict(items)
    if _is_namedtuple(structure):
        return type(structure)(*(map_structure(fn, item) for item in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(map_structure(fn, item) for item in structure)
    return fn(structure)


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def _has_tensor(spec: Any) -> bool:
    found = False

    def look(leaf: Any) -> None:
        nonlocal found
        found = found or isinstance(leaf, TensorArgument)

    map_structure(look, spec)
    return found


def _same_literal(spec: Any, value: Any) -> bool:
    if spec is value:
        return True
    if spec is OPAQUE:
        return not isinstance(value, (np.ndarray, np.generic, jax.Array))
    if isinstance(value, jax.core.Tracer):
        return False
    try:
        if isinstance(value, (np.ndarray, np.generic, jax.Array)) or isinstance(spec, (np.ndarray, np.generic)):
            return np.shape(value) == np.shape(spec) and bool(np.all(np.asarray(value) == np.asarray(spec)))
        # True == 1, but a function traced for one may differ from that for the other.
        return bool(spec == value) and isinstance(spec, bool) == isinstance(value, bool)
    except Exception:  # an object whose == has its own mind
        return False


def _scalar(value: Any, dtype: np.dtype | None) -> np.ndarray:
    """Returns a Python scalar as an array: of ``dtype``, where that can hold what ``value`` is.

    Raises:
      ValueError, OverflowError: it is out of range, or a text that is no number.
    """
    if dtype is None or isinstance(value, (str, bytes)):
        return np.asarray(value)
    if not isinstance(value, complex) and kind_of(np.result_type(type(value))) > kind_of(dtype):
        exact = np.asarray(value, dtype)
        # What the dtype cannot hold is an array of another one, to be dealt with as such an array is.
        return exact if exact == value else np.asarray(value)
    return np.asarray(value, None if isinstance(value, complex) else dtype)


def _of_items(items: Sequence[Any], dtype: np.dtype | None) -> Any:
    """Returns nested sequences of numbers, texts or arrays as one array: of numbers, of ``dtype`` if that holds them.

    Raises:
      ValueError, TypeError, OverflowError: they are no array, or their numbers are out of range.
    """
    leaves = jax.tree.leaves(items)
    if any(isinstance(leaf, jax.Array) for leaf in leaves):
        return jnp.asarray(items)
    array = np.asarray(items)
    if array.dtype.kind not in "biufc" or dtype is None or not all(isinstance(leaf, _SCALARS) for leaf in leaves):
        return array
    if leaves and kind_of(array.dtype) > kind_of(dtype):
        exact = array.astype(dtype)
        return exact if np.array_equal(exact, array) else array
    return np.asarray(items, dtype)


def kind_of(dtype: Any) -> int:
    """Returns the kind of a dtype's numbers (truth values, integers, floats, complex); each can hold those before."""
    return next(place for place, kind in enumerate(_KINDS) if jnp.issubdtype(dtype, kind))


def in_kind(array: Any, dtype: np.dtype) -> Any:
    """Returns an array as ``dtype`` if its own kind of numbers is a narrower one, or if truth values are wanted.

    Ops mean something else for another kind: quotients of integers are integers. None if both are of one kind, or if
    ``dtype`` could not hold what the array does; ops then compute with it as it is.
    """
    if kind_of(array.dtype) < kind_of(dtype) or kind_of(dtype) == 0:
        return array.astype(values.canonical(dtype))
    return None


def _in_jax(dtype: np.dtype) -> bool:
    """Whether JAX has a dtype of numpy's: numbers, but no durations and nothing longer than 64 bits a part."""
    return dtype.kind == "b" or (jnp.issubdtype(dtype, jnp.number) and dtype.char not in "gGm")


def _strings(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "SUO":
        return array
    out = np.empty(array.shape, object)
    out[...] = array
    flat = [item.encode() if isinstance(item, str) else item for item in out.reshape(-1)]
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(array.shape)


def _show(spec: Any) -> str:
    if isinstance(spec, Mapping):
        return "{" + ", ".join(f"{key!r}: {_show(item)}" for key, item in spec.items()) + "}"
    if _is_namedtuple(spec):
        inner = ", ".join(f"{name}={_show(item)}" for name, item in zip(type(spec)._fields, spec, strict=True))
        return f"{type(spec).__name__}({inner})"
    if isinstance(spec, (list, tuple)):
        inner = ", ".join(map(_show, spec))
        return f"[{inner}]" if isinstance(spec, list) else f"({inner}{',' if len(spec) == 1 else ''})"
    return str(spec) if isinstance(spec, TensorArgument) else repr(spec)


def _brief(value: Any) -> str:
    if isinstance(value, (np.ndarray, jax.Array)):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"
