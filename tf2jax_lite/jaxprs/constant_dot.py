"""Products along an axis with mostly zero constants, as in image resizing.

Resizing multiplies rows and columns with matrices whose rows have few weights: two for linear interpolation, four for
cubic. On GPU and TPU a matrix product is fastest. Large matrices are not made: `Taps` gathers the values that have a
weight. `constant_dot` is a product whose weights are constants of the program, so that a lowering may do so for smaller
ones as well. Its name, operands and parameters are those of ``lax.dot_general``, as which it is lowered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .compat import Primitive, Zero, register
from .shard_map import axes_of, linear_transpose, lower_fun, varying_along

MAX_DENSE = 1 << 22
"""Size of a matrix of weights: for long signals, most of it would be zero."""

MIN_SAVING = 2  # values of the axis for each term: fewer are not worth gathering


class Taps(NamedTuple):
    """Weights of a resizing with few terms for each result.

    Attributes:
      index: int32[results, terms], the values of each result's terms.
      weight: float32[results, terms].
      size: the number of values.
    """

    index: np.ndarray
    weight: np.ndarray
    size: int

    @property
    def is_identity(self) -> bool:
        """Whether each result is the value of the same index."""
        own = self.index == np.arange(len(self.index), dtype=np.int32)[:, None]
        others, sums = np.where(own, 0, self.weight), np.where(own, self.weight, 0).sum(1)
        return len(self.index) == self.size and not others.any() and bool((sums == 1).all())

    def of(self, x: Any, axis: int) -> Any:
        """Return the results along an axis."""
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

    def transposed(self, x: Any, axis: int) -> Any:
        """Return the product of results along an axis with the transposed weights."""
        like = jax.ShapeDtypeStruct((*x.shape[:axis], self.size, *x.shape[axis + 1 :]), x.dtype)
        return linear_transpose(lambda y: self.of(y, axis), like, x)


def weights_of(index: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray | Taps:
    """Return resizing weights: a matrix (results, values), or large as `Taps`.

    Args:
      index: int[results, terms], the values of each result's terms; one may occur twice.
      weight: float32[results, terms].
      size: the number of values.
    """
    taps = Taps(index.astype(np.int32), weight, size)
    full = len(index) * size
    if full > MAX_DENSE and MIN_SAVING * index.size < full:
        return taps
    dense = np.zeros((len(index), size), weight.dtype)
    np.add.at(dense, (np.arange(len(index))[:, None], index), weight)
    return dense


class Weights:
    """A constant matrix, compared by its values: equal resizings are compiled once."""

    def __init__(self, matrix: np.ndarray):
        self.matrix = np.ascontiguousarray(matrix)
        self._key = (matrix.shape, matrix.dtype.str, self.matrix.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weights) and self._key == other._key

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{self.matrix.shape}"

    @functools.cached_property
    def transposed(self) -> Weights:
        """The transposed matrix, whose transpose this is."""
        other = Weights(self.matrix.T)
        other.__dict__["transposed"] = self
        return other


def constant_dot(x: Any, weights: np.ndarray, axis: int, precision: Any, side: int = 1) -> Any:
    """Return sums along an axis: of ``weights[i, j] * x[j]`` over j, by i.

    Args:
      x: an array of the weights' dtype.
      weights: a matrix; a constant.
      axis: the axis of ``x`` that is summed over, and replaced by the results.
      precision: of the matrix product, as ``lax.dot_general`` takes it.
      side: 0 for the transposed weights.

    Returns:
      An array of ``x``'s shape but for this axis.
    """
    held = Weights(weights if side else weights.T)
    numbers = (((axis,), (1,)), ((), ()))
    if precision is not None:
        precision = (lax.Precision(precision),) * 2
    params = {"preferred_element_type": None, "out_sharding": None}
    return _moved(_bind(x, held, dimension_numbers=numbers, precision=precision, **params), axis)


def _bind(x: Any, weights: Weights, **params: Any) -> Any:
    matrix = varying_along(jnp.asarray(weights.matrix), axes_of(x))
    return constant_dot_p.bind(x, matrix, weights=weights, **params)


def _moved(x: Any, axis: int) -> Any:
    """Move the last dimension to where ``axis`` was."""
    order = list(range(x.ndim - 1))
    return lax.transpose(x, (*order[:axis], x.ndim - 1, *order[axis:]))


def _dot(x: Any, matrix: Any, *, weights: Any, **params: Any) -> Any:
    del weights
    return lax.dot_general_p.bind(x, matrix, **params)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    return constant_dot_p.bind(*primals, **params), constant_dot_p.bind(tangents[0], primals[1], **params)


def _transpose(cotangent: Any, x: Any, matrix: Any, *, weights: Weights, **params: Any) -> list[Any]:
    if isinstance(cotangent, Zero):
        return [None, None]
    (((axis,), _), _) = params["dimension_numbers"]
    return [_moved(_bind(_moved(cotangent, axis), weights.transposed, **params), axis), None]


def _batch(args: Sequence[Any], axes: Sequence[int | None], **params: Any) -> tuple[Any, int]:
    (((axis,), summed), batches) = params["dimension_numbers"]
    params["dimension_numbers"] = (((axis + 1,), summed), batches)
    return constant_dot_p.bind(jnp.moveaxis(args[0], axes[0] or 0, 0), args[1], **params), 0


def _abstract(x: Any, matrix: Any, *, weights: Weights, **params: Any) -> Any:
    del weights
    return lax.dot_general_p.abstract_eval(x, matrix, **params)[0]


constant_dot_p = Primitive("dot_general")
register(
    constant_dot_p,
    impl="compiled",
    abstract=_abstract,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    lowering=lower_fun(_dot, multiple_results=False),
)
