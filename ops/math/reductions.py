"""Reductions over axes, indices of extremes, and cumulative reductions.

Kernels: reduction_ops_*.cc, argmax_op.cc, scan_ops.cc in tensorflow/core/kernels. 16-bit floats are accumulated in
float32, cumulatively in TensorFlow in 16 bits.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.bounds import ensure_length
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim, min_dim
from tf2jax_lite.ops.common.broadcasting import number
from tf2jax_lite.ops.common.precision import in_float32, upcast
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, is_symbolic, normalize_axis


def _axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Return ascending reduction axes in [0, rank); duplicates raise OpError."""
    out = sorted(normalize_axis(a, rank) for a in np.asarray(axes).reshape(-1))
    if rank == 0 and out:
        raise OpError(f"axis {out[0]} is out of range for a tensor of rank 0")
    for a, b in itertools.pairwise(out):
        if a == b:
            raise OpError(f"axis {a} is repeated")
    return tuple(out)


def _restore_dims(y: Any, axes: tuple[int, ...], keep_dims: bool) -> Any:
    return lax.expand_dims(y, axes) if keep_dims and axes else y


def _size(shape: Any, axes: tuple[int, ...]) -> Any:
    return functools.reduce(operator.mul, (shape[a] for a in axes), 1)


def _max_dim(a: Any, b: Any) -> Any:
    return a if a is b else max_dim(a, b)


def _min_dim(a: Any, b: Any) -> Any:
    return a if a is b else min_dim(a, b)


_SYMBOLIC_UFUNCS = {
    "Sum": np.frompyfunc(operator.add, 2, 1),
    "Prod": np.frompyfunc(operator.mul, 2, 1),
    "Max": np.frompyfunc(_max_dim, 2, 1),
    "Min": np.frompyfunc(_min_dim, 2, 1),
}


_UFUNCS = {"Sum": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}


_IDENTITY = {"Sum": 0, "Prod": 1}


def _fold_reduce(name: str) -> Callable[..., np.ndarray]:
    def reduce(x: Any, axis: Any, *, keep_dims: bool) -> np.ndarray:
        x = np.asarray(x)
        axes = _axes(axis, x.ndim)
        identity = _identity(name, x.dtype)
        shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
        if not keep_dims:
            shape = tuple(d for i, d in enumerate(x.shape) if i not in axes)
        if is_symbolic(x):
            # frompyfunc ufuncs reduce over one axis at a time, the last one first.
            for a in reversed(axes):
                x = _SYMBOLIC_UFUNCS[name].reduce(x, axis=a, initial=identity if name in _IDENTITY else np._NoValue)
            out = np.empty(shape, object)
            out[...] = x
            return out
        values = upcast(x)
        y = _UFUNCS[name].reduce(values, axis=axes, initial=identity, dtype=values.dtype)
        with np.errstate(over="ignore"):
            return np.asarray(y).astype(x.dtype).reshape(shape)

    return reduce


def _identity(name: str, dtype: np.dtype) -> Any:
    """Return the result of an empty reduction; None for symbolic dimensions."""
    if name in _IDENTITY:
        return _IDENTITY[name]
    if dtype.kind == "O":
        return None
    if jnp.issubdtype(dtype, jnp.floating):
        return -np.inf if name == "Max" else np.inf
    info = np.iinfo(dtype)
    return info.min if name == "Max" else info.max


def _fold_logical(fn: Any) -> Callable[..., np.ndarray]:
    def reduce(x: Any, axis: Any, *, keep_dims: bool) -> np.ndarray:
        x = np.asarray(x)
        return np.asarray(fn(x, axis=_axes(axis, x.ndim), keepdims=keep_dims), dtype=bool)

    return reduce


def _fold_mean(x: Any, axis: Any, *, keep_dims: bool) -> np.ndarray:
    x = np.asarray(x)
    axes = _axes(axis, x.ndim)
    if is_symbolic(x):
        raise InconclusiveDimensionOperation("the mean of symbolic dimensions is not a dimension")
    count = _size(x.shape, axes)
    if jnp.issubdtype(x.dtype, jnp.integer):
        total = np.sum(x, axis=axes, keepdims=keep_dims)  # in 64 bits
        # TensorFlow divides as C does, towards zero.
        return np.asarray(np.sign(total) * (np.abs(total) // max(count, 1))).astype(x.dtype)
    values = upcast(x)
    if x.dtype.kind == "c":
        count = max(count, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sum(values, axis=axes, keepdims=keep_dims) / values.dtype.type(count)).astype(x.dtype)


@op("Sum", fold=_fold_reduce("Sum"), pattern=Pattern.MATERIALIZED)
def reduce_sum(x, axis: Static, *, keep_dims=False):
    """Sum over axes. TF: core/kernels/reduction_ops_sum.cc.

    Args:
      axis: ints in ``[-rank, rank)``, a scalar or vector without duplicates; none: the array is returned.
    """
    axes = _axes(axis, x.ndim)
    return _restore_dims(in_float32(lambda v: lax.reduce_sum(v, axes), x), axes, keep_dims)


@op("Prod", fold=_fold_reduce("Prod"), pattern=Pattern.MATERIALIZED)
def reduce_prod(x, axis: Static, *, keep_dims=False):
    """Multiply over axes. Arguments are those of `reduce_sum`."""
    axes = _axes(axis, x.ndim)
    return _restore_dims(in_float32(lambda v: lax.reduce_prod(v, axes), x), axes, keep_dims)


@op("Mean", fold=_fold_mean, pattern=Pattern.MATERIALIZED)
def reduce_mean(x, axis: Static, *, keep_dims=False):
    """Average over axes. TF: core/kernels/reduction_ops_mean.cc.

    Integers are summed in 64 bits (32 bits without ``jax_enable_x64``: larger sums wrap) and divided towards zero. The
    mean of no elements is NaN for floats, 0 for complex numbers, and -1 for integers, where TensorFlow divides by zero.
    """
    axes = _axes(axis, x.ndim)
    count = _size(x.shape, axes)
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and count == 0:
        count = 1

    def mean(v: Any) -> Any:
        return lax.div(lax.reduce_sum(v, axes), number(count, v.dtype))

    if jnp.issubdtype(x.dtype, jnp.integer):
        dtype = canonical(np.uint64 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else np.int64)
        y = lax.convert_element_type(mean(lax.convert_element_type(x, dtype)), x.dtype)
    else:
        y = in_float32(mean, x)
    return _restore_dims(y, axes, keep_dims)


@op("Max", fold=_fold_reduce("Max"), pattern=Pattern.MATERIALIZED)
def reduce_max(x, axis: Static, *, keep_dims=False):
    """Return the maximum over axes.

    Arguments are those of `reduce_sum`.

    NaN if an element is NaN; equal maxima share the gradient.
    """
    axes = _axes(axis, x.ndim)
    return _restore_dims(lax.reduce_max(x, axes), axes, keep_dims)


@op("Min", fold=_fold_reduce("Min"), pattern=Pattern.MATERIALIZED)
def reduce_min(x, axis: Static, *, keep_dims=False):
    """Return the minimum over axes.

    Arguments are those of `reduce_sum`.

    NaN if an element is NaN; equal minima share the gradient.
    """
    axes = _axes(axis, x.ndim)
    return _restore_dims(lax.reduce_min(x, axes), axes, keep_dims)


@op("All", fold=_fold_logical(np.all), pattern=Pattern.MATERIALIZED)
def reduce_all(x, axis: Static, *, keep_dims=False):
    """Return the logical and over axes.

    Arguments are those of `reduce_sum`.
    """
    axes = _axes(axis, x.ndim)
    return _restore_dims(lax.reduce_and(x, axes), axes, keep_dims)


@op("Any", fold=_fold_logical(np.any), pattern=Pattern.MATERIALIZED)
def reduce_any(x, axis: Static, *, keep_dims=False):
    """Return the logical or over axes.

    Arguments are those of `reduce_sum`.
    """
    axes = _axes(axis, x.ndim)
    return _restore_dims(lax.reduce_or(x, axes), axes, keep_dims)


@op("EuclideanNorm", pattern=Pattern.MATERIALIZED)
def euclidean_norm(x, axis: Static, *, keep_dims=False):
    """Return the root of the sum of squares.

    TF: core/kernels/reduction_ops_euclidean.cc.

    Squares have the dtype of the input, so that float16 and integers overflow where TensorFlow's do. The root of an
    integer sum that wrapped to a negative number is the C cast of NaN: the minimum of int32 or int64, 0 in narrower
    dtypes.
    """
    axes = _axes(axis, x.ndim)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        re, im = lax.real(x), lax.imag(x)
        y = lax.sqrt(lax.reduce_sum(lax.add(lax.mul(re, re), lax.mul(im, im)), axes))
        y = lax.convert_element_type(y, x.dtype)
    elif jnp.issubdtype(x.dtype, jnp.integer):
        total = lax.reduce_sum(lax.mul(x, x), axes)
        root = lax.convert_element_type(lax.sqrt(lax.convert_element_type(total, canonical(np.float64))), x.dtype)
        lowest = np.iinfo(x.dtype).min if x.dtype.itemsize >= 4 else 0
        y = lax.select(lax.lt(total, lax.full_like(total, 0)), lax.full_like(root, lowest), root)
    else:
        squares = lax.mul(x, x)
        y = in_float32(lambda v: lax.sqrt(lax.reduce_sum(v, axes)), squares)
    return _restore_dims(y, axes, keep_dims)


def _arg_axis(dimension: Any, x: Any) -> int:
    if np.ndim(dimension) != 0:
        raise OpError(f"dimension must be a scalar, not an array of shape {np.shape(dimension)}")
    if x.ndim == 0:
        raise OpError("a scalar has no axis to search")
    axis = normalize_axis(dimension, x.ndim)
    if x.shape[axis] == 0:
        raise OpError(f"axis {axis} is empty in shape {x.shape}")
    return axis


def _arg(x: Any, dimension: Any, output_type: Any, largest: bool) -> Any:
    x = jnp.asarray(x)
    axis = _arg_axis(dimension, x)
    if x.dtype == bool:
        x = lax.convert_element_type(x, jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.floating):
        # TensorFlow starts with index 0 and the worst finite value, and replaces them by a better one, never by NaN.
        worst = lax.full_like(x, jnp.finfo(x.dtype).min if largest else jnp.finfo(x.dtype).max)
        x = lax.select(lax.gt(x, worst) if largest else lax.lt(x, worst), x, worst)
    index = (lax.argmax if largest else lax.argmin)(ensure_length(x, axis, 1), axis, np.int32)
    return lax.convert_element_type(index, canonical(output_type))


def _fold_arg(x: Any, dimension: Any, output_type: Any, largest: bool) -> np.ndarray:
    x = np.asarray(x)
    axis = _arg_axis(dimension, x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        info = jnp.finfo(x.dtype)
        x = np.where(x > info.min, x, info.min) if largest else np.where(x < info.max, x, info.max)
    return np.asarray((np.argmax if largest else np.argmin)(x, axis=axis)).astype(output_type)


@op(
    "ArgMax",
    fold=lambda x, dimension, *, output_type: _fold_arg(x, dimension, output_type, True),
    pattern=Pattern.MATERIALIZED,
)
def arg_max(x, dimension: Static, *, output_type=np.int64):
    """Return the index of the first maximum along an axis.

    TF: core/kernels/argmax_op.cc.
    """
    return _arg(x, dimension, output_type, True)


@op(
    "ArgMin",
    fold=lambda x, dimension, *, output_type: _fold_arg(x, dimension, output_type, False),
    pattern=Pattern.MATERIALIZED,
)
def arg_min(x, dimension: Static, *, output_type=np.int64):
    """Return the index of the first minimum along an axis.

    Arguments are those of `arg_max`.
    """
    return _arg(x, dimension, output_type, False)


def _scan_axis(axis: Any, rank: int) -> int:
    if np.ndim(axis) != 0 or rank == 0:
        raise OpError(f"expected one axis of a tensor of rank >= 1, got {axis} for rank {rank}")
    return normalize_axis(axis, rank)


def _shifted(x: Any, axis: int, reverse: bool, identity: Any) -> Any:
    """Shift along the scan by one: the inclusive scan becomes exclusive."""
    one = jnp.asarray(identity, x.dtype)
    low, high = (-1, 1) if reverse else (1, -1)
    return lax.pad(x, one, [(low, high, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])


def _scan(fn: Any, x: Any, axis: Any, exclusive: bool, reverse: bool, identity: Any) -> Any:
    axis = _scan_axis(axis, x.ndim)
    if exclusive:
        x = _shifted(x, axis, reverse, identity)
    return in_float32(lambda v: fn(v, axis=axis, reverse=reverse), x)


def _fold_scan(name: str) -> Callable[..., np.ndarray]:
    def scan(x: Any, axis: Any, *, exclusive: bool, reverse: bool) -> np.ndarray:
        x = np.asarray(x)
        axis = _scan_axis(axis, x.ndim)
        values = np.flip(upcast(x), axis) if reverse else upcast(x)
        ufunc = _SYMBOLIC_UFUNCS[name] if is_symbolic(x) else _UFUNCS[name]
        y = ufunc.accumulate(values, axis=axis, dtype=values.dtype)
        if exclusive and x.shape[axis]:
            first = np.empty_like(np.take(y, [0], axis))
            first[...] = _IDENTITY[name]
            y = np.concatenate([first, np.take(y, range(x.shape[axis] - 1), axis)], axis)
        return (np.flip(y, axis) if reverse else y).astype(x.dtype)

    return scan


@op("Cumsum", fold=_fold_scan("Sum"), pattern=Pattern.MATERIALIZED)
def cumsum(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative sums along an axis."""
    return _scan(lax.cumsum, x, axis, exclusive, reverse, 0)


@op("Cumprod", fold=_fold_scan("Prod"), pattern=Pattern.MATERIALIZED)
def cumprod(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative products along an axis.

    Arguments are those of `cumsum`.

    The gradient is exact where elements are 0; TensorFlow divides by the input, and returns 0.
    """
    return _scan(lax.cumprod, x, axis, exclusive, reverse, 1)


@op("CumulativeLogsumexp", pattern=Pattern.MATERIALIZED)
def cumulative_logsumexp(x, axis: Static, *, exclusive=False, reverse=False):
    """Return cumulative log-sum-exps along an axis.

    Arguments are those of `cumsum`.

    All results after NaN are NaN; TensorFlow's CPU kernel replaces NaN by the element beside it.
    """
    return _scan(lax.cumlogsumexp, x, axis, exclusive, reverse, -np.inf)
