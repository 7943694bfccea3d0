"""Any JAX function in the form in which an export takes converted functions."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.calling.structures import OutputRef, TensorArgument, map_structure
from tf2jax_lite.support.errors import ExportError, InputError

from .loaded_function import LoadedFunction
from .stage import given_shapes

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclasses.dataclass(frozen=True, eq=False)
class JaxFunction:
    """A JAX function with its interface.

    Attributes:
      fn: ``fn(params, *args)`` or ``fn(params, *args, rng=key)``. It returns the results; a `LoadedFunction` returns
        ``(results, updated params)``.
      interface: its arguments and results.
      variables: names of the leaves of params.
      treedef: the structure of params.
      draws: whether it takes a key.
      training: of a loaded function of a Keras model, facts that its training needs.
    """

    fn: Callable[..., Any]
    interface: Interface
    variables: Sequence[str]
    treedef: Any
    draws: bool
    training: Any = None

    def flat_call(
        self, params: Mapping[str, Any], inputs: Sequence[Any], rng: Any = None, *, promote_dtypes: bool = False
    ) -> tuple[list[Any], dict[str, Any]]:
        """Run on flat inputs; return flat results and updated params."""
        given = self.treedef.unflatten([params[name] for name in self.variables])
        args = map_structure(lambda x: inputs[x.index] if isinstance(x, TensorArgument) else x, self.interface.args)
        results = self.fn(given, *args, **({"rng": rng} if self.draws else {}))
        if not isinstance(self.fn, LoadedFunction):
            return jax.tree.leaves(results), dict(params)
        results, updated = results
        return jax.tree.leaves(results), {**params, **updated}


def jax_function(
    name: str,
    fn: Callable[..., Any],
    params: Any,
    args: Sequence[Any],
    shapes: Mapping[str, str] | Sequence[str] | None,
) -> tuple[JaxFunction, dict[str, Any]]:
    """Return a function and its params by name.

    Args:
      name: the function's name.
      fn: see `JaxFunction`.
      params: a pytree of arrays; names are paths such as ``dense/kernel``.
      args: example arguments: structures of arrays or ``jax.ShapeDtypeStruct``, whose unknown sizes are None; other
        leaves are baked in.
      shapes: shapes of arguments, as for `export_functions`; they replace those of the examples.

    Raises:
      InputError: the function does not take these arguments.
      ExportError: its results are no arrays.
    """
    pairs, treedef = jax.tree.flatten_with_path(params)
    flat: dict[str, Any] = {_param_name(path, leaf): leaf for path, leaf in pairs}
    if len(flat) < len(pairs):
        raise InputError(f"{name}: two params have the same path as text. Give them keys that differ.")
    names, draws = _arguments(fn, len(args))
    count = itertools.count()

    def tensor(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        inner = jax.tree_util.keystr(path[1:], simple=True, separator="/")
        full = "/".join(filter(None, (names[path[0].idx], inner)))
        shape = tuple(size if isinstance(size, int) else None for size in leaf.shape)
        return TensorArgument(next(count), full, np.dtype(leaf.dtype), shape)

    structure = jax.tree_util.tree_map_with_path(tensor, list(args))
    own = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    interface = Interface(name, inspect.Signature(own), tuple(structure), {}, next(count), None)
    given = given_shapes(shapes, list(interface.tensors())) if not isinstance(shapes, Mapping) else shapes
    structure = map_structure(
        lambda x: dataclasses.replace(x, shape=(None,) * len(x.shape)) if _is_given(x, given) else x, structure
    )
    interface = dataclasses.replace(interface, args=tuple(structure))
    draft = JaxFunction(fn, interface, list(flat), treedef, draws, getattr(fn, "training", None))
    return dataclasses.replace(
        draft, interface=dataclasses.replace(interface, outputs=_outputs(draft, flat, args))
    ), flat


def _is_given(item: Any, shapes: Mapping[str, str]) -> bool:
    return isinstance(item, TensorArgument) and item.name in shapes


def _param_name(path: Any, leaf: Any) -> VariableName:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    trains = bool(jnp.issubdtype(leaf.dtype, jnp.inexact))
    return VariableName(name, getattr(getattr(path[-1], "key", None), "trainable", trains))


def _arguments(fn: Callable[..., Any], count: int) -> tuple[list[str], bool]:
    """Return the names of arguments after params, and whether there is a key."""
    parameters = list(inspect.signature(fn).parameters.values())
    draws = fn.needs_key if isinstance(fn, LoadedFunction) else any(p.name == "rng" for p in parameters)
    names = [p.name for p in parameters[1:] if p.kind in _BY_POSITION and p.name != "rng"]
    return [*names[:count], *(f"x{i}" for i in range(len(names), count))], draws


def _outputs(function: JaxFunction, params: Mapping[str, Any], args: Sequence[Any]) -> Any:
    """Return the structure of a function's results."""
    # A size of 8 stands for unknown ones; the structure does not depend on it.
    example = [jax.tree.map(lambda leaf: _sized(leaf), arg) for arg in args]
    flags = [hasattr(leaf, "shape") for leaf in jax.tree.leaves(example)]
    leaves, treedef = jax.tree.flatten(example)

    def run(params: Any, arrays: Any, key: Any) -> Any:
        given = iter(arrays)
        whole = treedef.unflatten([next(given) if f else leaf for f, leaf in zip(flags, leaves, strict=True)])
        found = function.fn(
            function.treedef.unflatten([params[n] for n in function.variables]),
            *whole,
            **({"rng": key} if function.draws else {}),
        )
        return found[0] if isinstance(function.fn, LoadedFunction) else found

    arrays = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]
    structs = {name: jax.ShapeDtypeStruct(np.shape(value), value.dtype) for name, value in params.items()}
    try:
        found = jax.eval_shape(run, structs, arrays, jax.eval_shape(lambda: jax.random.key(0)))
    except Exception as error:  # whatever the function raises
        raise InputError(
            f"{function.interface.name} does not take these example arguments: {type(error).__name__}: {error}"
        ) from error
    if not jax.tree.leaves(found):
        raise ExportError(f"{function.interface.name} returns no arrays, but {type(found).__name__}")
    count = itertools.count()
    return jax.tree.map(lambda _: OutputRef(next(count)), found)


def _sized(leaf: Any) -> Any:
    if not hasattr(leaf, "shape"):
        return leaf
    return jax.ShapeDtypeStruct(tuple(s if isinstance(s, int) else 8 for s in leaf.shape), leaf.dtype)
