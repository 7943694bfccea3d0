"""A converted function's interface: signature, arguments and results."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from tf2jax_lite import ir
from tf2jax_lite.support.byte_order import native
from tf2jax_lite.support.config import Config
from tf2jax_lite.support.errors import ArgumentError, InputError

from .binding import Binder, Bound
from .coercion import is_key
from .structures import OutputRef, TensorArgument, by_name, describe, iter_arguments, map_structure, with_objects


@dataclasses.dataclass(frozen=True)
class Interface:
    """How a converted function is called, and the structure of its results.

    Attributes:
      args: structure of positional arguments: `TensorArgument` for tensors, baked-in literals for anything else.
      kwargs: the same for keyword arguments.
      count: number of tensor arguments.
    """

    name: str
    signature: inspect.Signature
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    count: int
    outputs: Any

    @functools.cached_property
    def ragged(self) -> tuple[tuple[int, int], ...]:
        """For each ragged argument, its position among flat inputs, and ragged rank."""
        arguments = iter_arguments((self.args, self.kwargs))
        return tuple((arg.index, arg.ragged_rank) for arg in arguments if arg.ragged_rank)

    def call_signature(self, *, params: bool = True, rng: bool = True) -> inspect.Signature:
        """Return the signature, with ``params`` first and ``rng`` if they are taken."""
        kinds = inspect.Parameter
        own = list(self.signature.parameters.values())
        first = "params"
        while first in self.signature.parameters:
            first += "_"  # positional only, so that any name will do
        ours = [kinds(first, kinds.POSITIONAL_ONLY)] if params else []
        if not rng or "rng" in self.signature.parameters:
            return inspect.Signature([*ours, *own])
        tail = [p for p in own if p.kind is p.VAR_KEYWORD]
        head = [p for p in own if p.kind is not p.VAR_KEYWORD]
        return inspect.Signature([*ours, *head, kinds("rng", kinds.KEYWORD_ONLY, default=None), *tail])

    def take_params(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """Split arguments into the params, which come first, and the other ones."""
        params, *rest = args or (kwargs.pop("params", None),)
        if not hasattr(params, "items"):
            raise InputError(
                f"{self.name}: the first argument is params, a dict from variable name to array; "
                f"got {type(params).__name__}."
            )
        if any(not getattr(getattr(v, "dtype", None), "isnative", True) for v in params.values()):
            params = {name: native(value) for name, value in params.items()}
        return params, tuple(rest)

    def take_key(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Remove ``rng`` from a call's keyword arguments; return it or None.

        If the function has an argument called ``rng``, the keyword binds to that, unless the argument is passed by
        position, or the value is a typed key, which no TensorFlow function takes.
        """
        if "rng" not in kwargs:
            return None
        names = list(self.signature.parameters)
        own = "rng" in self.kwargs or ("rng" in names and "rng" not in names[: len(args)])
        return None if own and not is_key(kwargs["rng"]) else kwargs.pop("rng")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Config) -> Bound:
        """Bind arguments as TensorFlow would, and check them as configured."""
        try:
            bound = self.signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.signature}: {error}. {self.expected()}") from None
        binder = Binder(self, config)
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
                f"{self.name} takes {len(self.args)} positional argument(s), got {len(given_args)}. {self.expected()}"
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
            raise ArgumentError(f"{self.name} was not converted for an argument {name!r}. {self.expected()}")
        return binder.finish()

    def _canonical(self, bound: inspect.BoundArguments) -> tuple[list[Any], dict[str, Any]]:
        """Return canonical arguments: positional ones in order, keywords by name."""
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
        """Return a positional argument's name; for a ``*args``, ``args/0`` and so on."""
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

    def expected(self) -> str:
        """Return a sentence with the arguments that the function was converted for."""
        expected = [f"{self._position_name(i)}={describe(spec)}" for i, spec in enumerate(self.args)]
        expected += [f"{name}={describe(spec)}" for name, spec in self.kwargs.items()]
        return f"It was converted for ({', '.join(expected)})."

    def tensors(self) -> dict[str, TensorArgument]:
        """Return tensor arguments by name or, in structures, path (``inputs/ids``)."""
        named = {self.argument_name(i): spec for i, spec in enumerate(self.args)} | dict(self.kwargs)
        return by_name(named, lambda leaf: isinstance(leaf, TensorArgument))

    def result_names(self) -> list[str]:
        """Return the paths of flat results in the result structure, for messages."""
        found = jax.tree_util.tree_leaves_with_path(self.outputs, is_leaf=lambda leaf: isinstance(leaf, OutputRef))
        paths = {leaf.index: jax.tree_util.keystr(path) for path, leaf in found if isinstance(leaf, OutputRef)}
        return [paths.get(index) or f"[{index}]" for index in range(max(paths, default=-1) + 1)]

    def results(self, flat: Sequence[Any]) -> Any:
        """Return flat results in the function's result structure."""
        nested = map_structure(lambda leaf: flat[leaf.index] if isinstance(leaf, OutputRef) else leaf, self.outputs)
        return with_objects(nested)


@dataclasses.dataclass(frozen=True)
class ImportedFunction:
    """A function of TensorFlow as a graph with its interface.

    Attributes:
      graph: the IR graph; captured variables come in the order of the captures.
      structured_inputs: ``(args, kwargs)`` with ``tf.TensorSpec`` leaves.
      structured_outputs: results with ``tf.TensorSpec`` leaves.
    """

    graph: ir.Graph
    interface: Interface
    structured_inputs: Any
    structured_outputs: Any
