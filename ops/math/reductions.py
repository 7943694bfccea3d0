"""Reductions, scans and histograms."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, UnboundedError
from tf2jax_lite.jaxprs.compat import InconclusiveDimensionOperation, max_dim, min_dim
from tf2jax_lite.ops.common.broadcasting import number
from tf2jax_lite.ops.registry import Static, op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, is_symbolic, normalize_axis, static_value
from tf2jax_lite.xla_cpu.cumulative import cumulative
from tf2jax_lite.xla_cpu.materialize import materialize
from tf2jax_lite.xla_cpu.reductions import arg_reduce, reduce_axes

_HALF = (jnp.bfloat16, jnp.float16)


def _axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Returns reduction axes sorted, in ``[0, rank)``; TensorFlow refuses duplicates."""
    out = sorted(normalize_axis(a, rank) for a in np.asarray(axes).reshape(-1))
    if rank == 0 and out:
        raise OpError(f"axis {out[0]} is out of range for a tensor of rank 0")
    for a, b in itertools.pairwise(out):
        if a == b:
            raise OpError(f"axis {a} is given twice")
    return tuple(out)


def _scan_axis(axis: Any, rank: int) -> int:
    if np.ndim(axis) != 0 or rank == 0:
        raise OpError(f"expected one axis of a tensor of rank >= 1, got {axis} for rank {rank}")
    return normalize_axis(axis, rank)


def _kept(y: Any, axes: tuple[int, ...], keep_dims: bool) -> Any:
    return lax.expand_dims(y, axes) if keep_dims and axes else y


def _in_float32(fn: Callable[[Any], Any], x: Any) -> Any:
    """Applies ``fn`` with 16-bit floats widened: at least as accurate as TensorFlow's blockwise accumulation."""
    if x.dtype in _HALF:
        return lax.convert_element_type(fn(lax.convert_element_type(x, jnp.float32)), x.dtype)
    return fn(x)


def _size(shape: Any, axes: tuple[int, ...]) -> Any:
    return functools.reduce(operator.mul, (shape[a] for a in axes), 1)


# ---- numpy twins ----


def _max_dim(a: Any, b: Any) -> Any:
    return a if a is b else max_dim(a, b)


def _min_dim(a: Any, b: Any) -> Any:
    return a if a is b else min_dim(a, b)


_SYMBOLIC = {
    "Sum": np.frompyfunc(operator.add, 2, 1),
    "Prod": np.frompyfunc(operator.mul, 2, 1),
    "Max": np.frompyfunc(_max_dim, 2, 1),
    "Min": np.frompyfunc(_min_dim, 2, 1),
}
_EXACT = {"Sum": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}
_IDENTITY = {"Sum": 0, "Prod": 1}


def _host_reduce(name: str) -> Callable[..., np.ndarray]:
    def reduce(x: Any, axis: Any, *, keep_dims: bool = False) -> np.ndarray:
        x = np.asarray(x)
        axes = _axes(axis, x.ndim)
        identity = _identity(name, x.dtype)
        shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
        if not keep_dims:
            shape = tuple(d for i, d in enumerate(x.shape) if i not in axes)
        if is_symbolic(x):
            # frompyfunc ufuncs reduce over one axis at a time, the last one first.
            for a in reversed(axes):
                x = _SYMBOLIC[name].reduce(x, axis=a, initial=identity if name in _IDENTITY else np._NoValue)
            out = np.empty(shape, object)
            out[...] = x
            return out
        wide = x.astype(np.float32) if x.dtype in _HALF else x
        y = _EXACT[name].reduce(wide, axis=axes, initial=identity, dtype=wide.dtype)
        with np.errstate(over="ignore"):
            return np.asarray(y).astype(x.dtype).reshape(shape)

    return reduce


def _identity(name: str, dtype: np.dtype) -> Any:
    """What TensorFlow gives for the reduction of nothing."""
    if name in _IDENTITY:
        return _IDENTITY[name]
    if dtype.kind == "O":
        return None
    if jnp.issubdtype(dtype, jnp.floating):
        return -np.inf if name == "Max" else np.inf
    info = np.iinfo(dtype)
    return info.min if name == "Max" else info.max


def _host_logical(fn: Any) -> Callable[..., np.ndarray]:
    def reduce(x: Any, axis: Any, *, keep_dims: bool = False) -> np.ndarray:
        x = np.asarray(x)
        return np.asarray(fn(x, axis=_axes(axis, x.ndim), keepdims=keep_dims), dtype=bool)

    return reduce


def _host_mean(x: Any, axis: Any, *, keep_dims: bool = False) -> np.ndarray:
    x = np.asarray(x)
    axes = _axes(axis, x.ndim)
    if is_symbolic(x):
        raise InconclusiveDimensionOperation("the mean of symbolic dimensions is not a dimension")
    count = _size(x.shape, axes)
    if jnp.issubdtype(x.dtype, jnp.integer):
        total = np.sum(x, axis=axes, keepdims=keep_dims)  # 64 bits wide
        # TensorFlow divides the way C does, towards zero.
        return np.asarray(np.sign(total) * (np.abs(total) // max(count, 1))).astype(x.dtype)
    wide = x.astype(np.float32) if x.dtype in _HALF else x
    if x.dtype.kind == "c":
        count = max(count, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.sum(wide, axis=axes, keepdims=keep_dims) / wide.dtype.type(count)).astype(x.dtype)


# ---- reductions ----


@op("Sum", host=_host_reduce("Sum"), stored=True)
def reduce_sum(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Sums over axes; 16-bit floats accumulate in float32. See tf.raw_ops.Sum."""
    axes = _axes(axis, x.ndim)
    return _kept(_in_float32(lambda v: reduce_axes(lax.reduce_sum, v, axes), x), axes, keep_dims)


@op("Prod", host=_host_reduce("Prod"), stored=True)
def reduce_prod(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Multiplies over axes; 16-bit floats accumulate in float32. See tf.raw_ops.Prod."""
    axes = _axes(axis, x.ndim)
    return _kept(_in_float32(lambda v: lax.reduce_prod(v, axes), x), axes, keep_dims)


@op("Mean", host=_host_mean, stored=True)
def reduce_mean(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Averages over axes. See tf.raw_ops.Mean.

    Integers are summed in 64 bits and divided towards zero, as TensorFlow does (32 bits without ``jax_enable_x64``:
    sums beyond that wrap). The mean of no integers, a division by zero in TensorFlow, is -1; of no floats NaN, but of
    no complex numbers 0.
    """
    axes = _axes(axis, x.ndim)
    count = _size(x.shape, axes)
    if jnp.issubdtype(x.dtype, jnp.complexfloating) and count == 0:
        count = 1

    def mean(v: Any) -> Any:
        return lax.div(reduce_axes(lax.reduce_sum, v, axes), number(count, v.dtype))

    if jnp.issubdtype(x.dtype, jnp.integer):
        wide = canonical(np.uint64 if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else np.int64)
        y = lax.convert_element_type(mean(lax.convert_element_type(x, wide)), x.dtype)
    else:
        y = _in_float32(mean, x)
    return _kept(y, axes, keep_dims)


@op("Max", host=_host_reduce("Max"), stored=True)
def reduce_max(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Largest elements over axes; NaN wins; ties share the gradient. See tf.raw_ops.Max."""
    axes = _axes(axis, x.ndim)
    return _kept(reduce_axes(lax.reduce_max, x, axes), axes, keep_dims)


@op("Min", host=_host_reduce("Min"), stored=True)
def reduce_min(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Smallest elements over axes; NaN wins; ties share the gradient. See tf.raw_ops.Min."""
    axes = _axes(axis, x.ndim)
    return _kept(reduce_axes(lax.reduce_min, x, axes), axes, keep_dims)


@op("All", host=_host_logical(np.all), stored=True)
def reduce_all(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Logical and over axes. See tf.raw_ops.All."""
    axes = _axes(axis, x.ndim)
    return _kept(lax.reduce_and(x, axes), axes, keep_dims)


@op("Any", host=_host_logical(np.any), stored=True)
def reduce_any(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Logical or over axes. See tf.raw_ops.Any."""
    axes = _axes(axis, x.ndim)
    return _kept(lax.reduce_or(x, axes), axes, keep_dims)


@op("EuclideanNorm", stored=True)
def euclidean_norm(x: Any, axis: Static, *, keep_dims: bool = False) -> Any:
    """Square root of the sum of squares. See tf.raw_ops.EuclideanNorm.

    Squares are taken in the input's own dtype, so that float16 and integers overflow where TensorFlow's do. An
    integer sum that wrapped to a negative has the root that the C cast of NaN gives: the smallest int32 or int64,
    and 0 in narrower types.
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
        y = _in_float32(lambda v: lax.sqrt(reduce_axes(lax.reduce_sum, v, axes)), squares)
    return _kept(y, axes, keep_dims)


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
        # TensorFlow starts from (index 0, worst finite value) and replaces on "better", so NaN never wins.
        worst = lax.full_like(x, jnp.finfo(x.dtype).min if largest else jnp.finfo(x.dtype).max)
        x = lax.select(lax.gt(x, worst) if largest else lax.lt(x, worst), x, worst)
    index = arg_reduce(lax.argmax if largest else lax.argmin, x, axis)
    return lax.convert_element_type(index, canonical(output_type))


def _host_arg(x: Any, dimension: Any, output_type: Any, largest: bool) -> np.ndarray:
    x = np.asarray(x)
    axis = _arg_axis(dimension, x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        info = jnp.finfo(x.dtype)
        x = np.where(x > info.min, x, info.min) if largest else np.where(x < info.max, x, info.max)
    return np.asarray((np.argmax if largest else np.argmin)(x, axis=axis)).astype(output_type)


@op(
    "ArgMax", host=lambda x, dimension, *, output_type=np.int64: _host_arg(x, dimension, output_type, True), stored=True
)
def arg_max(x: Any, dimension: Static, *, output_type: Any = np.int64) -> Any:
    """Index of the first largest element; NaN is passed over. See tf.raw_ops.ArgMax."""
    return _arg(x, dimension, output_type, True)


@op(
    "ArgMin",
    host=lambda x, dimension, *, output_type=np.int64: _host_arg(x, dimension, output_type, False),
    stored=True,
)
def arg_min(x: Any, dimension: Static, *, output_type: Any = np.int64) -> Any:
    """Index of the first smallest element; NaN is passed over. See tf.raw_ops.ArgMin."""
    return _arg(x, dimension, output_type, False)


# ---- scans ----


def _shifted(x: Any, axis: int, reverse: bool, identity: Any) -> Any:
    """Moves elements one place on along the scan, so that an inclusive scan becomes the exclusive one."""
    one = jnp.asarray(identity, x.dtype)
    low, high = (-1, 1) if reverse else (1, -1)
    return lax.pad(x, one, [(low, high, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])


def _scan(fn: Any, x: Any, axis: Any, exclusive: bool, reverse: bool, identity: Any) -> Any:
    axis = _scan_axis(axis, x.ndim)
    if exclusive:
        x = _shifted(x, axis, reverse, identity)
    return _in_float32(lambda v: cumulative(fn, v, axis, reverse), x)


def _host_scan(name: str) -> Callable[..., np.ndarray]:
    def scan(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        x = np.asarray(x)
        axis = _scan_axis(axis, x.ndim)
        wide = x.astype(np.float32) if x.dtype in _HALF else x
        wide = np.flip(wide, axis) if reverse else wide
        ufunc = _SYMBOLIC[name] if is_symbolic(x) else _EXACT[name]
        y = ufunc.accumulate(wide, axis=axis, dtype=wide.dtype)
        if exclusive and x.shape[axis]:
            first = np.empty_like(np.take(y, [0], axis))
            first[...] = _IDENTITY[name]
            y = np.concatenate([first, np.take(y, range(x.shape[axis] - 1), axis)], axis)
        return (np.flip(y, axis) if reverse else y).astype(x.dtype)

    return scan


@op("Cumsum", host=_host_scan("Sum"), stored=True)
def cumsum(x: Any, axis: Static, *, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running sum; 16-bit floats accumulate in float32 (TensorFlow: in 16 bits). See tf.raw_ops.Cumsum."""
    return _scan(lax.cumsum, x, axis, exclusive, reverse, 0)


@op("Cumprod", host=_host_scan("Prod"), stored=True)
def cumprod(x: Any, axis: Static, *, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running product. See tf.raw_ops.Cumprod.

    16-bit floats accumulate in float32 (TensorFlow: in 16 bits). The gradient is right at zeros, where TensorFlow's,
    which divides by the input, gives 0.
    """
    return _scan(lax.cumprod, x, axis, exclusive, reverse, 1)


@op("CumulativeLogsumexp", stored=True)
def cumulative_logsumexp(x: Any, axis: Static, *, exclusive: bool = False, reverse: bool = False) -> Any:
    """Running log of the sum of exponentials. See tf.raw_ops.CumulativeLogsumexp.

    NaN makes all that follows NaN (TensorFlow's CPU kernel takes it for the value beside it).
    """
    return _scan(lax.cumlogsumexp, x, axis, exclusive, reverse, -np.inf)


# ---- counting ----


def _bins(size: Any, bound: int | DynamicShapes | None) -> Any:
    """Returns the number of bins, or the bound if the size is only known at run time."""
    value = static_value(size)
    if value is not None:
        if value.size != 1 or int(value.reshape(())) < 0:
            raise OpError(f"size must be one number >= 0, got {value}")
        return int(value.reshape(()))
    if isinstance(bound, DynamicShapes):
        return bound.as_dim(jnp.reshape(size, ()))
    if bound is None:
        raise UnboundedError("the number of bins depends on traced values; pass a fixed size")
    return bound


def _count(values: Any, weights: Any, size: Any, bins: int, binary: bool) -> Any:
    """Adds up the weights (or ones) of a vector of bin numbers; those outside ``[0, size)`` are dropped."""
    one = jnp.asarray(1, weights.dtype)
    update = one if binary or weights.size == 0 else jnp.asarray(weights)
    # A bin number beyond ``size`` must not land in the padding that a bound adds.
    inside = lax.bitwise_and(lax.ge(values, lax.full_like(values, 0)), lax.lt(values, jnp.asarray(size, values.dtype)))
    place = jnp.where(inside, values, bins)
    zeros = jnp.zeros((bins,), weights.dtype)
    if binary:
        return zeros.at[place].set(update, mode="drop")
    return zeros.at[place].add(update, mode="drop")


def _refuse_negative(values: Any) -> None:
    found = static_value(values)
    if found is not None and found.size and found.min() < 0:
        raise OpError("bin numbers must not be negative")


def _check_weights(values: Any, weights: Any) -> None:
    if weights.ndim and weights.size == 0:
        return
    if tuple(weights.shape) != tuple(values.shape):
        raise OpError(f"weights of shape {weights.shape} for values of shape {values.shape}")


@op("Bincount", dynamic_shape="prefix")
def bincount(arr: Any, size: Any, weights: Any, *, bound: int | DynamicShapes | None) -> Any:
    """Counts integers, or adds up their weights. See tf.raw_ops.Bincount.

    Negative numbers are an error where they are known while tracing, and dropped otherwise. A size that is only known
    at run time is padded to the bound with zeros.
    """
    _refuse_negative(arr)
    _check_weights(arr, weights)
    return _count(jnp.ravel(arr), jnp.ravel(weights), size, _bins(size, bound), False)


@op("DenseBincount", dynamic_shape="prefix")
def dense_bincount(
    x: Any, size: Any, weights: Any, *, binary_output: bool = False, bound: int | DynamicShapes | None
) -> Any:
    """Counts the integers of a vector, or of each row of a matrix. See tf.raw_ops.DenseBincount and `bincount`."""
    if x.ndim > 2:
        raise OpError(f"input must have rank 0, 1 or 2, not {x.ndim}")
    _refuse_negative(x)
    _check_weights(x, weights)
    bins = _bins(size, bound)
    if x.ndim < 2:
        return _count(jnp.ravel(x), jnp.ravel(weights), size, bins, binary_output)
    if weights.size == 0:
        return jax.vmap(lambda row: _count(row, jnp.ravel(weights), size, bins, binary_output))(jnp.asarray(x))
    rows = jax.vmap(lambda row, weight: _count(row, weight, size, bins, binary_output))
    return rows(jnp.asarray(x), jnp.asarray(weights))


def _count_rows(rows: Any, count: int, values: Any, weights: Any, size: Any, bins: int, binary: bool) -> Any:
    """Like `_count` for values that each belong to a row of the result."""
    weights = jnp.ravel(weights)
    update = jnp.asarray(1, weights.dtype) if binary or weights.size == 0 else weights
    inside = lax.bitwise_and(lax.ge(values, lax.full_like(values, 0)), lax.lt(values, jnp.asarray(size, values.dtype)))
    place = (rows, jnp.where(inside, values, bins))
    zeros = jnp.zeros((count, bins), weights.dtype)
    return zeros.at[place].set(update, mode="drop") if binary else zeros.at[place].add(update, mode="drop")


@op("SparseBincount", dynamic_shape="prefix")
def sparse_bincount(
    indices: Any,
    values: Any,
    dense_shape: Static,
    size: Any,
    weights: Any,
    *,
    binary_output: bool = False,
    bound: int | DynamicShapes | None,
) -> Any:
    """Counts the values of a sparse vector, or of each row of a sparse matrix. See tf.raw_ops.SparseBincount."""
    shape = np.asarray(dense_shape)
    if shape.shape not in ((1,), (2,)):
        raise OpError(f"a sparse tensor of rank 1 or 2 is expected, dense_shape is {shape}")
    _refuse_negative(values)
    _check_weights(values, weights)
    bins = _bins(size, bound)
    if shape.size == 1:
        return _count(jnp.ravel(values), jnp.ravel(weights), size, bins, binary_output)
    rows = jnp.asarray(indices)[:, 0]
    return _count_rows(rows, int(shape[0]), jnp.asarray(values), weights, size, bins, binary_output)


@op("RaggedBincount", dynamic_shape="prefix")
def ragged_bincount(
    splits: Any, values: Any, size: Any, weights: Any, *, binary_output: bool = False, bound: int | DynamicShapes | None
) -> Any:
    """Counts the values of each row of a ragged matrix. See tf.raw_ops.RaggedBincount."""
    _refuse_negative(values)
    if weights.ndim > 1 and weights.size == values.size:
        weights = weights.reshape(-1)  # a matrix whose rows are all as long, as tf.math.bincount hands it over
    _check_weights(values, weights)
    bins = _bins(size, bound)
    count = splits.shape[0] - 1
    place = lax.iota(canonical(np.int64), values.shape[0])
    rows = jnp.searchsorted(jnp.asarray(splits), place, side="right") - 1
    return _count_rows(rows, count, jnp.asarray(values), weights, size, bins, binary_output)


@op("HistogramFixedWidth")
def histogram_fixed_width(values: Any, value_range: Any, nbins: Static, *, dtype: Any = np.int32) -> Any:
    """Counts values in bins of equal width; the outer bins are open. See tf.raw_ops.HistogramFixedWidth.

    NaN, an error in TensorFlow, is dropped. Without ``jax_enable_x64`` bin borders are computed in float32.
    """
    nbins = int(nbins)
    if nbins <= 0:
        raise OpError(f"nbins must be positive, got {nbins}")
    limits = static_value(value_range)
    if limits is not None and not limits[0] < limits[1]:
        raise OpError(f"value_range must be increasing, got {limits}")
    values, value_range = jnp.ravel(values), jnp.asarray(value_range)
    wide = canonical(np.float64)
    low = value_range[0]
    # The kernel's own form, which no range overflows; another one puts values at the bins' borders elsewhere. Marks
    # keep XLA from multiplying with inverses, and from dividing the difference.
    first, last = materialize(lax.convert_element_type(value_range, wide) / materialize(jnp.full((2,), nbins, wide)))
    step = materialize(jnp.broadcast_to(last - first, values.shape))
    above = jnp.maximum(values, low)
    if wide == np.float64 or jnp.issubdtype(values.dtype, jnp.floating):
        offset = lax.convert_element_type(above, wide) - lax.convert_element_type(low, wide)
    else:
        offset = lax.convert_element_type(above - low, wide)  # large integers are no float32
    place = lax.convert_element_type(jnp.minimum(offset / step, nbins - 1), np.int32)
    if jnp.issubdtype(values.dtype, jnp.floating):
        place = jnp.where(jnp.isnan(values), nbins, place)
    return jnp.zeros((nbins,), canonical(dtype)).at[place].add(1, mode="drop")


@op("Bucketize")
def bucketize(x: Any, *, boundaries: Any) -> Any:
    """Number of boundaries that are not above each element. See tf.raw_ops.Bucketize."""
    limits = np.asarray(boundaries, np.float32)
    if np.any(limits[1:] < limits[:-1]):
        raise OpError("boundaries must be sorted")
    x = lax.convert_element_type(x, jnp.promote_types(x.dtype, np.float32) if _is_float(x) else np.float32)
    if limits.size > 64:
        return jnp.searchsorted(limits.astype(x.dtype), x, side="right").astype(np.int32)
    # NaN is below no boundary, so it lands past the last.
    above = x[..., None] < limits.astype(x.dtype)
    return jnp.sum(~above, axis=-1, dtype=np.int32)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)
