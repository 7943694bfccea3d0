"""Images resized: products along one axis with weights that are constant, and mostly zero.

Resizing multiplies rows and columns with matrices whose rows hold few weights: two for linear interpolation, four for
cubic. On GPU and TPU a matrix product is what runs fast. On CPU it multiplies mostly by zero: gathering the few values
that have a weight takes a fourth to a tenth of the time (two cores with AVX-512, JAX 0.10), and the derivative, which
in JAX would scatter what was gathered, gathers too: by the transposed weights.

So `mixed` is a product with constant weights that knows where they are zero. Its name, operands and parameters are
those of ``lax.dot_general``, as which it is lowered elsewhere than on CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, Zero, register
from tf2jax_lite.jaxprs.shard_map import axes_of, linear_transpose, lower_fun, varying_along

from .materialize import once

__all__ = ["MOST_DENSE", "Taps", "mixed", "weights_of"]

MOST_DENSE = 1 << 22
"""How many elements a matrix of weights may have: of long signals, most of it would be zero."""

_MOST = 32  # values that each result is made of: code grows with them
_LEAST_SAVED = 2  # values of the axis for each that has a weight: fewer are not worth gathering
_FEW = 2  # with more, a second axis would compute each anew for every value that it takes


class Taps(NamedTuple):
    """Weights of a resizing with few values for each result.

    Attributes:
      index: int32[results, values], which values each result is made of.
      weight: float32[results, values].
      size: how many values there are.
    """

    index: np.ndarray
    weight: np.ndarray
    size: int

    @property
    def is_identity(self) -> bool:
        """Whether each result is the value in its place."""
        own = self.index == np.arange(len(self.index), dtype=np.int32)[:, None]
        others, sums = np.where(own, 0, self.weight), np.where(own, self.weight, 0).sum(1)
        return len(self.index) == self.size and not others.any() and bool((sums == 1).all())

    def of(self, x: Any, axis: int) -> Any:
        """Returns the results along an axis."""
        shape = tuple(-1 if d == axis else 1 for d in range(x.ndim))
        taken = [
            lax.mul(
                jnp.take(x, index, axis=axis, mode="clip"),
                jnp.broadcast_to(weight.reshape(shape), self._shape(x, axis)),
            )
            for index, weight in zip(self.index.T, self.weight.T, strict=True)
        ]
        return functools.reduce(lax.add, taken)

    def _shape(self, x: Any, axis: int) -> tuple[int, ...]:
        return (*x.shape[:axis], len(self.index), *x.shape[axis + 1 :])

    def turned(self, x: Any, axis: int) -> Any:
        """Returns what results along an axis give to each value: the transposed product."""
        form = jax.ShapeDtypeStruct((*x.shape[:axis], self.size, *x.shape[axis + 1 :]), x.dtype)
        return linear_transpose(lambda y: self.of(y, axis), form, x)


def weights_of(index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray | Taps:
    """Returns the weights of a resizing: a matrix (results, values), or `Taps` if that would be large.

    Args:
      index: int[results, values], which values each result is made of; one may come twice.
      weight: float32[results, values].
      size: how many values there are.
    """
    taps = Taps(index.astype(np.int32), weight, size)
    if len(index) * size > MOST_DENSE and _LEAST_SAVED * index.size < len(index) * size:
        return taps
    dense = np.zeros((len(index), size), weight.dtype)
    np.add.at(dense, (np.arange(len(index))[:, None], index), weight)
    return dense


class _Weights:
    """A constant matrix, compared by its values: what resizes alike is compiled once."""

    def __init__(self, matrix: np.ndarray):
        self.matrix = np.ascontiguousarray(matrix)
        self._key = (matrix.shape, matrix.dtype.str, self.matrix.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Weights) and self._key == other._key

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.matrix.shape}"

    @functools.cached_property
    def turned(self) -> _Weights:
        """The transposed matrix, whose transpose this is."""
        other = _Weights(self.matrix.T)
        other.__dict__["turned"] = self
        return other

    @functools.cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Columns and weights, (terms, rows) each, of what is not zero; None where gathering is no gain."""
        rows, columns = np.nonzero(self.matrix)
        counts = np.bincount(rows, minlength=len(self.matrix))
        most = int(counts.max(initial=0))
        if not 0 < most <= min(_MOST, self.matrix.shape[1] // _LEAST_SAVED):
            return None
        term = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.zeros((most, len(self.matrix)), np.int32)
        weight = np.zeros(index.shape, self.matrix.dtype)
        index[:] = self.matrix.argmax(1)  # what has no weight repeats a value that the result depends on anyway
        index[term, rows], weight[term, rows] = columns, self.matrix[rows, columns]
        return index, weight


def mixed(x: Any, weights: np.ndarray, axis: int, precision: Any, side: int = 1) -> Any:
    """Returns sums along an axis: result ``i`` is the sum over ``j`` of ``weights[i, j] * x[j]``.

    Args:
      x: an array of the weights' dtype.
      weights: a matrix; a constant.
      axis: the axis of ``x`` that is summed over, and replaced by the results.
      precision: of the matrix product, as ``lax.dot_general`` takes it.
      side: 0 for the transposed weights.

    Returns:
      An array of ``x``'s shape but for this axis.
    """
    held = _Weights(weights if side else weights.T)
    numbers = (((axis,), (1,)), ((), ()))
    if precision is not None:
        precision = (lax.Precision(precision),) * 2
    params = {"preferred_element_type": None, "out_sharding": None}
    return _moved(_bind(x, held, dimension_numbers=numbers, precision=precision, **params), axis)


def _bind(x: Any, weights: _Weights, **params: Any) -> Any:
    return _mixed.bind(x, varying_along(jnp.asarray(weights.matrix), axes_of(x)), weights=weights, **params)


def _moved(x: Any, axis: int) -> Any:
    """Moves the last dimension to where ``axis`` was."""
    order = list(range(x.ndim - 1))
    return lax.transpose(x, (*order[:axis], x.ndim - 1, *order[axis:]))


def _plain(x: Any, matrix: Any, *, weights: Any, **params: Any) -> Any:
    del weights
    return lax.dot_general_p.bind(x, matrix, **params)


def _gathered(x: Any, matrix: Any, *, weights: _Weights, **params: Any) -> Any:
    if weights.places is None:
        return _plain(x, matrix, weights=weights, **params)
    (((axis,), _), _) = params["dimension_numbers"]
    total: Any = None
    for index, weight in zip(*weights.places, strict=True):
        values = x.at[(slice(None),) * axis + (index,)].get(mode="promise_in_bounds")
        part = lax.mul(values, lax.broadcast_in_dim(weight, values.shape, (axis,)))
        total = part if total is None else lax.add(total, part)
    if len(weights.places[0]) > _FEW:
        total = once(total)
    order = [d for d in range(x.ndim) if d != axis]
    return lax.transpose(total, (*order, axis))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    return _mixed.bind(*primals, **params), _mixed.bind(tangents[0], primals[1], **params)


def _transposed(cotangent: Any, x: Any, matrix: Any, *, weights: _Weights, **params: Any) -> list[Any]:
    if isinstance(cotangent, Zero):
        return [None, None]
    (((axis,), _), _) = params["dimension_numbers"]
    return [_moved(_bind(_moved(cotangent, axis), weights.turned, **params), axis), None]


def _batched(args: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    (((axis,), summed), batches) = params["dimension_numbers"]
    params["dimension_numbers"] = (((axis + 1,), summed), batches)
    return _mixed.bind(jnp.moveaxis(args[0], axes[0] or 0, 0), args[1], **params), 0


def _abstract(x: Any, matrix: Any, *, weights: _Weights, **params: Any) -> Any:
    del weights
    return lax.dot_general_p.abstract_eval(x, matrix, **params)[0]


_mixed = Primitive("dot_general")  # its name and parameters are those of what it is on all platforms but one
register(
    _mixed,
    impl=lambda *args, **params: jax.jit(functools.partial(_mixed.bind, **params))(*args),
    abstract=_abstract,
    jvp=_jvp,
    transpose=_transposed,
    batch=_batched,
    lowering=lower_fun(_plain, multiple_results=False),
    cpu_lowering=lower_fun(_gathered, multiple_results=False),
)
