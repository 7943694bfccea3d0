"""Sizes that data decides, inside ``jit``: an array with room for the most there can be, of which the first are there.

TensorFlow's XLA bridge calls them bounded dynamic dimensions. An op that finds a number of things that depends on
values (`tf.where`, `tf.unique`) computes an array with room for all there can be, and their number; `Extents.cut` gives
it a first dimension that is a symbol (``jax.export``'s symbolic dimensions), and all that follows is traced with that
symbol, as for export. `tf2jax_lite.lowering.extents` then evaluates what was traced with arrays of fixed shapes.
"""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import core, export, lax
from jax.extend import core as jex
from jax.interpreters import ad, batching

from tf2jax_lite.errors import OpError

from .dimension_values import largest, names, parsed
from .provenance import Entry, entries, name_of, value_of
from .values import Mixed

__all__ = ["Extents", "UnboundedError", "at_least", "cut", "is_found", "limits", "most", "prefix_p", "room"]

# How variables are called whose values data decides; those of exported functions have other names.
_PREFIX = "found_"

prefix_p = jex.Primitive("prefix")
"""The first elements of an array, as many as a number says: parameters ``dim``, the symbolic dimension that the result
has first, and ``name``, the variable of which it is one less (a variable is at least 1, a size at least 0)."""


@prefix_p.def_abstract_eval
def _prefix(data: Any, count: Any, *, dim: Any, name: str) -> Any:
    del count, name
    return core.ShapedArray((dim, *data.shape[1:]), data.dtype)


# The most that each variable of a scope can be, where that is a number.
_MOST: weakref.WeakKeyDictionary[export.SymbolicScope, dict[str, int]] = weakref.WeakKeyDictionary()


def most(dim: Any) -> int | None:
    """Returns the most that a dimension can be, which may be less than nothing; None if no number tells."""
    if not is_found(dim):
        return dim if isinstance(dim, int) else None
    return _most(dim, dim.scope)


@functools.lru_cache(maxsize=4096)
def _most(dim: Any, scope: export.SymbolicScope) -> int | None:
    tree, known = parsed(str(dim)), _MOST.get(scope, {})
    return largest(tree, known) if names(tree) <= known.keys() else None


def limits(dim: Any) -> tuple[float, float]:
    """Returns the least and the most that a number or a dimension can be; infinity where nothing tells."""
    if isinstance(dim, int):
        return dim, dim
    least, greatest = most(-dim), most(dim)
    return -np.inf if least is None else -least, np.inf if greatest is None else greatest


@functools.lru_cache(maxsize=4096)
def is_found(dim: Any) -> bool:
    """Whether data decides a dimension, be it in part."""
    return not isinstance(dim, int) and re.search(rf"\b{_PREFIX}\d", str(dim)) is not None


def at_least(x: Any, axis: int, least: int) -> Any:
    """Returns an array that is ``least`` long at least, so that JAX lets it be read there: zeros follow if they must.

    TensorFlow fails where an index is out of range, and JAX where it could be: of a size that data decides, any could.

    Args:
      x: an array. Where its size along ``axis`` is known to do, it comes back as it is.
      axis: a dimension of it.
      least: a size.
    """
    size = x.shape[axis]
    if isinstance(size, int) or _reaches(size, least):
        return x
    if is_found(size):
        return _longer.bind(x, axis=axis, least=least)
    return _padded(x, axis=axis, least=least)


def _reaches(size: Any, least: int) -> bool:
    try:
        return size >= least
    except jax.errors.InconclusiveDimensionOperation:
        return False


def _padded(x: Any, *, axis: int, least: int) -> Any:
    more = core.max_dim(x.shape[axis], least) - x.shape[axis]
    return lax.pad(x, np.zeros((), x.dtype), [(0, more if i == axis else 0, 0) for i in range(x.ndim)])


def _longer_shape(x: Any, *, axis: int, least: int) -> Any:
    return x.update(shape=(*x.shape[:axis], core.max_dim(x.shape[axis], least), *x.shape[axis + 1 :]))


def _batched(args: Any, dims: Any, *, axis: int, least: int) -> Any:
    return _longer.bind(*args, axis=axis + (axis >= dims[0]), least=least), dims[0]


_longer = jex.Primitive("longer")
_longer.def_abstract_eval(_longer_shape)
ad.deflinear2(_longer, lambda ct, x, *, axis, least: [lax.slice_in_dim(ct, 0, x.aval.shape[axis], axis=axis)])
batching.primitive_batchers[_longer] = _batched


class UnboundedError(OpError):
    """The size of a result depends on traced values.

    Attributes:
      natural: whether there is a most that it can be, so that tracing with `Extents` may do.
    """

    def __init__(self, problem: str, *, natural: bool):
        super().__init__(f"{problem}; set the config option dynamic_shape_bound")
        self.natural = natural


class Extents:
    """The sizes that data decides in one call.

    Attributes:
      limit: how many elements there is room for; None: as many as there can be.

    Args:
      limit: see above.
      scope: that of symbolic dimensions that arguments have already, if any.
    """

    def __init__(self, limit: int | None = None, scope: export.SymbolicScope | None = None):
        self.limit = limit
        self._scope = export.SymbolicScope() if scope is None else scope
        self._found: dict[Any, tuple[str, Any, Any]] = {}
        self._wholes: dict[frozenset[Any], Any] = {}

    def room(self, most: Any) -> Any:
        """Returns how many elements there is to be room for, where there are at most ``most``."""
        return most if self.limit is None else self.limit

    def sizes(self, value: Any) -> np.ndarray:
        """Returns traced whole numbers that are to be sizes as dimensions, of which there is room for ``limit``.

        Args:
          value: a traced scalar or vector of integers, or a `Mixed`.
        """
        if value.shape == ():
            found = [Entry(value, 0)]
        elif isinstance(value, Mixed):
            found = [Entry(v, 0) if isinstance(v, jax.Array) else Entry(None, v) for v in value.items]
        else:
            found = entries(value, value.shape[0])
        out = np.empty(len(found), object)
        out[:] = [e.offset if e.is_known else self._size(e) for e in found]
        return out.reshape(value.shape)

    def part(self, places: Any, count: Any, key: Any, kept: Any) -> Any:
        """Returns the first ``count`` of a vector, a size that ``key`` tells from others."""
        name, variable = self._variable(key, kept, places.shape[0])
        return prefix_p.bind(places, jnp.clip(count, 0, jnp.asarray(places.shape[0])), dim=variable - 1, name=name)

    def _size(self, entry: Entry) -> Any:
        assert self.limit is not None
        name, variable = self._variable((name_of(entry.base), entry.offset), entry.base, self.limit)
        count = jnp.clip(value_of(entry), 0, self.limit).astype(np.int32)
        prefix_p.bind(lax.iota(np.int32, self.limit), count, dim=variable - 1, name=name)
        return variable - 1

    def _variable(self, key: Any, kept: Any, room: Any) -> tuple[str, Any]:
        if key not in self._found:
            name = f"{_PREFIX}{len(self._found) + 1}"
            # What decides is kept, as an array that is dropped may leave its identity to another.
            self._found[key] = (name, export.symbolic_shape(name, scope=self._scope)[0], kept)
            known = most(room)
            if known is not None:
                _MOST.setdefault(self._scope, {})[name] = known + 1
        return self._found[key][:2]

    def split(self, sizes: list[Any], whole: Any) -> None:
        """Keeps in mind that so many rows were parted into parts of these sizes."""
        self._wholes[frozenset(sizes)] = whole

    def joined(self, sizes: list[Any]) -> Any:
        """Returns how many rows parts of these sizes have together."""
        return self._wholes.get(frozenset(sizes), sum(sizes))

    def cut(self, arrays: tuple[Any, ...], count: Any, *, of: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns arrays with the same first dimension cut to their first ``count`` rows.

        Args:
          arrays: what is cut.
          count: how many rows are there.
          of: what alone decides how many: an array, and perhaps a number. What it decides twice is one dimension.
        """
        name, variable = self._variable(tuple(v if isinstance(v, int) else id(v) for v in of), of, arrays[0].shape[0])
        count = jnp.minimum(jnp.asarray(count, np.int32), jnp.asarray(arrays[0].shape[0]).astype(np.int32))
        return tuple(prefix_p.bind(jnp.asarray(x), count, dim=variable - 1, name=name) for x in arrays)


def room(bound: int | Extents | None, most: Any, problem: str) -> Any:
    """Returns how many rows a result is to have room for.

    Args:
      bound: what an op of dynamic shape gets.
      most: how many there can be; None if nothing tells.
      problem: what the error says.

    Raises:
      UnboundedError: there is no bound.
    """
    if isinstance(bound, Extents) and (most is not None or bound.limit is not None):
        return bound.room(most)
    if isinstance(bound, int):
        return bound
    raise UnboundedError(problem, natural=most is not None)


def cut(bound: int | Extents | None, count: Callable[[], Any], *arrays: Any, of: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns padded arrays as an op is to return them: cut to ``count()`` rows, or padded as they are.

    See `Extents.cut`.
    """
    return bound.cut(arrays, count(), of=of) if isinstance(bound, Extents) else arrays
