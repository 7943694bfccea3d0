"""Modules that call a converted function with the variables that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from tf2jax_lite.support.errors import InputError, MissingKeyError

_STREAM = "dropout"


class NonTrainable(nnx.Variable):
    """A variable that TensorFlow does not train: frozen layers, counters, seeds."""


class Scope(nnx.Module):
    """The variables and scopes below a name scope of TensorFlow."""

    def _set(self, key: str, value: Any) -> str:
        """Set an attribute named like ``key``; return its name."""
        while hasattr(nnx.Module, key) or key in _OWN or key.startswith("_pytree__"):
            key += "_"
        setattr(self, key, value)
        return key


class ConvertedModule(Scope):
    """A converted function with its variables.

    Its attributes are the scopes of the variables' names.

    Args:
      function: ``function(params, *args, rng=key, **kwargs)`` returns ``(results, updated params)``.
      variables: name to a subclass of `nnx.Variable`, the path of its attribute, and its value.
      needs_key: whether the function draws random numbers.
      rngs: `nnx.Rngs`, a stream of it, or None.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        variables: Mapping[str, tuple[type[nnx.Variable], tuple[str, ...], Any]],
        *,
        needs_key: bool,
        rngs: Any = None,
    ):
        self._function = nnx.static(function)
        self._name = name
        self._needs_key = needs_key
        if rngs is not None and not isinstance(rngs, nnx.Rngs | nnx.RngStream):
            raise InputError(f"{name}: rngs is nnx.Rngs or a stream of it, got {type(rngs).__name__}.")
        self._stream = nnx.data(_stream(rngs, name).fork() if rngs is not None and needs_key else None)
        paths = []
        scopes: dict[tuple[str, ...], Scope] = {(): self}
        attributes: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}
        for variable, (kind, path, value) in variables.items():
            for length in range(1, len(path)):
                if path[:length] not in scopes:
                    scopes[path[:length]] = Scope()
                    key = scopes[path[: length - 1]]._set(path[length - 1], scopes[path[:length]])
                    attributes[path[:length]] = (*attributes[path[: length - 1]], key)
            key = scopes[path[:-1]]._set(path[-1], kind(value))
            paths.append((variable, (*attributes[path[:-1]], key)))
        self._paths = nnx.static(tuple(paths))

    def __call__(self, *args: Any, rngs: Any = None, **kwargs: Any) -> Any:
        """Return the function's results; write updated variables back.

        Args:
          rngs: `nnx.Rngs`, a stream of it, or a key; default: the module's own stream.
        """
        if self._needs_key:
            kwargs["rng"] = draw_key(self._stream if rngs is None else rngs, self._name)
        variables = {name: self._variable(path) for name, path in self._paths}
        params = {name: variable[...] for name, variable in variables.items()}
        results, after = self._function(params, *args, **kwargs)
        for name, variable in variables.items():
            if after[name] is not params[name]:
                variable[...] = after[name]
        return results

    def _variable(self, path: tuple[str, ...]) -> nnx.Variable:
        found: Any = self
        for key in path:
            found = getattr(found, key)
        return found


_OWN = frozenset({"_function", "_name", "_needs_key", "_paths", "_set", "_stream", "_variable"})


def draw_key(rngs: Any, name: str) -> jax.Array:
    """Return a key of `nnx.Rngs` or of a stream, or the key itself."""
    if rngs is None:
        raise MissingKeyError(
            f"{name} draws random numbers: pass rngs=nnx.Rngs(seed) to the call, or to to_nnx() once for all."
        )
    if isinstance(rngs, jax.Array):
        return rngs
    if not isinstance(rngs, nnx.Rngs | nnx.RngStream):
        raise InputError(f"{name}: rngs is nnx.Rngs, a stream of it, or a key, got {type(rngs).__name__}.")
    return _stream(rngs, name)()


def _stream(rngs: Any, name: str) -> Any:
    try:
        return rngs if isinstance(rngs, nnx.RngStream) else rngs[_STREAM]
    except KeyError as error:
        raise MissingKeyError(
            f"{name} draws random numbers from the stream {_STREAM!r}, or the default one; rngs has neither. "
            f"Pass nnx.Rngs(seed) or nnx.Rngs({_STREAM}=seed)."
        ) from error
