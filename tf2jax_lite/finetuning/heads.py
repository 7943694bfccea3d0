"""New last layers of trained models, for other classes.

The head is found by shapes: with more classes in its params, the predictions have more classes.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.params import VariableName
from tf2jax_lite.export.loaded_function import LoadedFunction
from tf2jax_lite.jaxprs.compat import Var
from tf2jax_lite.pipeline.converted_function import AnnotatedFunction
from tf2jax_lite.support.config import override_config
from tf2jax_lite.support.errors import InputError

_MAX_SCOPES = 3
"""Scopes at the end of a model that may belong to its head together."""
_MAX_AXES = 64
"""Combinations of class axes that are tried for them."""
_ONES = ("gamma", "scale", "moving_variance", "variance")

Params = Mapping[str, Any]


def replace_head(
    fn: Callable[..., Any],
    params: Params,
    *args: Any,
    classes: int | None = None,
    head: str | None = None,
    seed: int = 0,
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Replace a model's last layer by a new one, for other classes.

    Kernels are drawn as Keras draws them (Glorot uniform), other params are 0, and factors of normalizations 1.

    Args:
      fn: ``fn(params, *args)`` returns predictions; a converted or loaded function ``(predictions, updated params)``.
        Load artifacts with ``backend="source"``.
      params: the params, flat by name. New ones are trainable, others stay as they are.
      *args: arrays, or their shapes and dtypes, to trace it with.
      classes: the number of classes, the last axis of the predictions; unchanged by default.
      head: the scope of the new layer's params, with which their names begin (``top/dense``); by default that of the
        last layer.
      seed: of the new values.

    Returns:
      ``(function, params)``, as ``fn`` and ``params`` are given; `export_functions` writes them, with example
      arguments, as an artifact.

    Raises:
      InputError: ``head`` is no scope, or its params do not determine the number of classes.
    """

    def call(given: Params, *args: Any, **kwargs: Any) -> Any:
        with override_config("strict_shape_check", False):  # of variables, which have other shapes
            return fn(given, *args, **kwargs)

    new_fn = fn
    if isinstance(fn, AnnotatedFunction):
        new_fn = LoadedFunction(call, fn.converted.interface, fn.converted.draws, training=fn.training)

    def predict(given: Params, *args: Any) -> Any:
        found = new_fn(given, *args, **({"rng": jax.random.key(0)} if getattr(new_fn, "needs_key", False) else {}))
        return found[0] if isinstance(new_fn, LoadedFunction) else found

    return new_fn, {**params, **new_head(predict, params, args, classes=classes, head=head, seed=seed)}


def new_head(
    predict: Callable[..., Any],
    params: Params,
    args: Sequence[Any],
    *,
    classes: int | None,
    head: str | None,
    seed: int,
) -> dict[str, Any]:
    """Return the params of a new head, see `replace_head`.

    Args:
      predict: ``(params, *args) -> predictions``, one array.
      params: all params.
      args: arrays or their shapes.
      classes: see `replace_head`.
      head: see `replace_head`.
      seed: see `replace_head`.
    """
    if classes is not None and (type(classes) is not int or classes < 1):
        raise InputError(f"classes is an integer of at least 1, not {classes!r}.")
    structs = {name: jax.ShapeDtypeStruct(np.shape(value), value.dtype) for name, value in params.items()}
    search = _Search(predict, structs, args)
    groups = [search.of_scope(head)] if head is not None else list(search.last_scopes())
    if head is not None and classes is None:
        shapes: Mapping[str, tuple[int, ...]] = {name: structs[name].shape for name in groups[0]}
    else:
        shapes = search.shapes(groups, classes)
    return {
        VariableName(name, True): _initial(name, shape, structs[name].dtype, seed) for name, shape in shapes.items()
    }


def _initial(name: str, shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Return the first value of a new param."""
    if len(shape) < 2:
        return np.full(shape, name.rsplit("/", 1)[-1].split(":")[0] in _ONES, dtype)
    key = jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))
    return np.asarray(jax.nn.initializers.glorot_uniform()(key, shape, jnp.dtype(dtype)))


@dataclasses.dataclass(frozen=True)
class _Search:
    """Looks for the params that determine the number of classes.

    Attributes:
      predict: ``(params, *args) -> predictions``.
      structs: shapes and dtypes of all params.
      args: shapes of the arguments.
    """

    predict: Callable[..., Any]
    structs: Mapping[str, jax.ShapeDtypeStruct]
    args: Sequence[Any]

    def of_scope(self, scope: str) -> list[str]:
        """Return the names of a scope's floating params."""
        found = [name for name in self._floating() if f"/{scope.strip('/')}/" in f"/{name}/"]
        if not found:
            scopes = sorted({_scope(name) for name in self._floating()})
            raise InputError(f"head=: no param is in the scope {scope!r}; there are {', '.join(scopes[:20])}.")
        return found

    def last_scopes(self) -> Iterator[list[str]]:
        """Yield the params of the last scope, then those of scopes before with them."""
        names = list(self.structs)
        closed = jax.make_jaxpr(self.predict)(dict(self.structs), *self.args)
        order = sorted(names)  # as jax flattens a dict
        by_var = dict(zip(closed.jaxpr.invars, order, strict=False))
        last = {}
        for number, eqn in enumerate(closed.jaxpr.eqns):
            for var in eqn.invars:
                if isinstance(var, Var) and var in by_var:
                    last[by_var[var]] = number
        floating = set(self._floating())
        scopes: dict[str, None] = {}
        for name in sorted(last, key=lambda name: -last[name]):
            if name in floating:
                scopes.setdefault(_scope(name))
        for count in range(1, min(_MAX_SCOPES, len(scopes)) + 1):
            chosen = list(scopes)[:count]
            yield [name for name in names if name in floating and _scope(name) in chosen]

    def shapes(self, groups: Sequence[Sequence[str]], classes: int | None) -> dict[str, tuple[int, ...]]:
        """Return the new shapes of the first group that determines the classes."""
        found = self._predictions({})
        if isinstance(found, Exception) or not hasattr(found, "shape") or not found.shape:
            raise InputError(f"the predictions have no axis of classes, but are {found}.")
        old = found.shape[-1]
        probe = old + 1 if classes in (None, old) else classes
        reason = ""
        for group in groups:
            for axes in self._class_axes(group, old):
                changed = {name: _with_size(self.structs[name].shape, axis, probe) for name, axis in axes.items()}
                now = self._predictions(changed)
                if isinstance(now, Exception):
                    reason = reason or f": {type(now).__name__}: {str(now).splitlines()[0][:200]}"
                elif now.shape == (*found.shape[:-1], probe):
                    size = old if classes is None else classes
                    shapes = {name: self.structs[name].shape for name in group}
                    return shapes | {name: _with_size(shapes[name], axis, size) for name, axis in axes.items()}
        listed = ", ".join(sorted({_scope(name) for group in groups for name in group})) or "no params"
        raise InputError(
            f"the last layer of the {old} classes is not found among {listed}{reason}. Name the scope of its params "
            "with head=."
        )

    def _class_axes(self, group: Sequence[str], size: int) -> Iterator[dict[str, int]]:
        """Yield the axes of params that may be those of the classes, the last ones first."""
        having = {name: [i for i, n in enumerate(self.structs[name].shape) if n == size] for name in group}
        having = {name: axes[::-1] for name, axes in having.items() if axes}
        if having:
            for chosen in itertools.islice(itertools.product(*having.values()), _MAX_AXES):
                yield dict(zip(having, chosen, strict=True))

    def _predictions(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """Return the predictions' shape with other shapes of params, or the error."""
        given = {
            name: jax.ShapeDtypeStruct(shapes.get(name, struct.shape), struct.dtype)
            for name, struct in self.structs.items()
        }
        try:
            return jax.eval_shape(self.predict, given, *self.args)
        except Exception as error:  # of shapes that do not fit, whatever the function is
            return error

    def _floating(self) -> list[str]:
        return [name for name, struct in self.structs.items() if jnp.issubdtype(struct.dtype, jnp.floating)]


def _scope(name: str) -> str:
    return name.rsplit("/", 1)[0]


def _with_size(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])
