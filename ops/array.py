"""Arrays put together, taken apart and rearranged."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.errors import OpError

from . import slicing as _slicing  # noqa: F401
from .registry import Static, op
from .values import Mixed, as_array, canonical, dims, is_static, known, normalize_axes, normalize_axis


@op("Const", host=lambda *, value, dtype=None: np.asarray(value))
def const(*, value: Any, dtype: Any = None) -> Any:
    """Returns a constant. See tf.raw_ops.Const."""
    return np.asarray(value)


@op("Identity", "Snapshot", "DeepCopy", "GuaranteeConst", host=lambda input: input)
def identity(input: Any) -> Any:
    """Returns its input. See tf.raw_ops.Identity."""
    return input


@op("IdentityN", host=lambda input: list(input))
def identity_n(input: list[Any]) -> list[Any]:
    """Returns its inputs. See tf.raw_ops.IdentityN."""
    return list(input)


@op("StopGradient", host=lambda input: input)
def stop_gradient(input: Any) -> Any:
    """Returns its input; no gradient flows. See tf.raw_ops.StopGradient."""
    return lax.stop_gradient(input)


@op("PreventGradient", options=("raise_on_prevent_gradient",))
def prevent_gradient(input: Any, *, message: str = "", raise_on_prevent_gradient: bool = True) -> Any:
    """Returns its input; differentiating it is an error, if configured so. See tf.raw_ops.PreventGradient."""
    if not raise_on_prevent_gradient:
        return input

    @jax.custom_jvp
    def node(x: Any) -> Any:
        return x

    @node.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise OpError(
            f"gradient of PreventGradient asked for{': ' + message if message else ''}. "
            "Allow it with override_config('raise_on_prevent_gradient', False) at conversion."
        )

    return node(jnp.asarray(input))


@op("CheckNumerics", "CheckNumericsV2")
def check_numerics(tensor: Any, *, message: str) -> Any:
    """Returns its input; NaN and infinity pass (use jax_debug_nans to find them). See tf.raw_ops.CheckNumerics."""
    return tensor


@op("NoOp", "ControlTrigger")
def no_op() -> tuple[()]:
    """Does nothing. See tf.raw_ops.NoOp."""
    return ()


@op("Placeholder")
def placeholder(*, dtype: Any, shape: Any = None) -> Any:
    """Refuses: a placeholder that is no argument has no value. See tf.raw_ops.Placeholder."""
    raise OpError("the placeholder is not fed; name it among the inputs")


@op("PlaceholderWithDefault", host=lambda input, *, shape=None: input)
def placeholder_with_default(input: Any, *, shape: Any = None) -> Any:
    """Returns its default. See tf.raw_ops.PlaceholderWithDefault."""
    return input


def _join(parts: list[Any], axis: int) -> Any:
    arrays = [np.asarray(p) for p in parts]
    if any(a.dtype == object for a in arrays):
        arrays = [a.astype(object) for a in arrays]
    return np.concatenate(arrays, axis)


def _host_concat(values: list[Any], axis: Any) -> Any:
    return _join(values, normalize_axis(np.asarray(axis).reshape(()), np.ndim(values[0])))


@op("ConcatV2", host=_host_concat)
def concat_v2(values: list[Any], axis: Static) -> Any:
    """Concatenates. See tf.raw_ops.ConcatV2."""
    return lax.concatenate(
        [jnp.asarray(v) for v in values], normalize_axis(np.asarray(axis).reshape(()), jnp.ndim(values[0]))
    )


@op("Concat", host=lambda concat_dim, values: _host_concat(values, concat_dim))
def concat(concat_dim: Static, values: list[Any]) -> Any:
    """Concatenates. See tf.raw_ops.Concat."""
    return concat_v2(values, concat_dim)


def _host_pack(values: list[Any], *, axis: int = 0) -> Any:
    axis = normalize_axis(axis, np.ndim(values[0]) + 1)
    return _join([np.expand_dims(np.asarray(v), axis) for v in values], axis)


@op("Pack", host=_host_pack)
def pack(values: list[Any], *, axis: int = 0) -> Any:
    """Stacks along a new axis. See tf.raw_ops.Pack."""
    static = [is_static(v) for v in values]
    if any(static) and not all(static) and all(jnp.ndim(v) == 0 for v in values) and len(values) <= 16:
        return Mixed(tuple(values), next(v.dtype for v, known in zip(values, static, strict=True) if not known))
    axis = normalize_axis(axis, jnp.ndim(values[0]) + 1)
    return lax.concatenate([lax.expand_dims(jnp.asarray(as_array(v)), (axis,)) for v in values], axis)


def _host_unpack(value: Any, *, num: int, axis: int = 0) -> Any:
    axis = normalize_axis(axis, np.ndim(value))
    return [np.asarray(np.take(value, i, axis)) for i in range(num)]


@op("Unpack", host=_host_unpack)
def unpack(value: Any, *, num: int, axis: int = 0) -> list[Any]:
    """Takes slices along an axis apart. See tf.raw_ops.Unpack."""
    axis = normalize_axis(axis, jnp.ndim(value))
    return [lax.index_in_dim(jnp.asarray(value), i, axis, keepdims=False) for i in range(num)]


def _host_split(axis: Any, value: Any, *, num_split: int) -> Any:
    axis = normalize_axis(np.asarray(axis).reshape(()), np.ndim(value))
    return np.split(value, num_split, axis)


@op("Split", host=_host_split)
def split(axis: Static, value: Any, *, num_split: int) -> list[Any]:
    """Splits into equal parts. See tf.raw_ops.Split."""
    axis = normalize_axis(np.asarray(axis).reshape(()), jnp.ndim(value))
    total = jnp.shape(value)[axis]
    if isinstance(total, int) and total % num_split:
        raise OpError(f"dimension {axis} of size {total} does not split into {num_split} equal parts")
    part = total // num_split
    return [lax.slice_in_dim(jnp.asarray(value), i * part, (i + 1) * part, axis=axis) for i in range(num_split)]


def _split_sizes(size_splits: Any, total: Any) -> list[Any]:
    sizes: list[Any] = list(dims(size_splits))
    if any(isinstance(s, int) and s == -1 for s in sizes):
        at = sizes.index(-1)
        sizes[at] = total - sum(s for i, s in enumerate(sizes) if i != at)
    return sizes


def _host_split_v(value: Any, size_splits: Any, axis: Any, *, num_split: int) -> Any:
    axis = normalize_axis(np.asarray(axis).reshape(()), np.ndim(value))
    sizes = _split_sizes(size_splits, np.shape(value)[axis])
    return np.split(value, np.cumsum(sizes)[:-1].astype(int), axis)


@op("SplitV", host=_host_split_v)
def split_v(value: Any, size_splits: Static, axis: Static, *, num_split: int) -> list[Any]:
    """Splits into parts of given sizes. See tf.raw_ops.SplitV."""
    axis = normalize_axis(np.asarray(axis).reshape(()), jnp.ndim(value))
    start: Any = 0
    out = []
    for part in _split_sizes(size_splits, jnp.shape(value)[axis]):
        out.append(lax.slice_in_dim(jnp.asarray(value), start, start + part, axis=axis))
        start = start + part
    return out


def _host_slice(input: Any, begin: Any, size: Any) -> Any:
    where = []
    for b, s in zip(dims(begin), dims(size), strict=True):
        where.append(slice(b, None if isinstance(s, int) and s == -1 else b + s))
    return input[tuple(where)]


@op("Slice", host=_host_slice, partial=("begin",))
def slice_(input: Any, begin: Any, size: Static) -> Any:
    """Takes a box; where ``begin`` is traced, it is moved inside if it reaches out. See tf.raw_ops.Slice."""
    input = jnp.asarray(input)
    first = known(begin)
    if first is not None:
        starts = dims(first)
        limits = [
            d if isinstance(s, int) and s == -1 else b + s
            for b, s, d in zip(starts, dims(size), input.shape, strict=True)
        ]
        if all(isinstance(v, int) for v in (*starts, *limits)):
            for b, e, d in zip(starts, limits, input.shape, strict=True):
                if b < 0 or (isinstance(d, int) and e > d):
                    raise OpError(f"slice from {list(starts)} to {limits} reaches out of {list(input.shape)}")
        return lax.slice(input, starts, limits)
    sizes = []
    for i, s in enumerate(dims(size)):
        if isinstance(s, int) and s == -1:
            raise OpError(f"size -1 in dimension {i} with a traced 'begin' gives a shape that depends on values")
        sizes.append(s)
    entries = begin.items if isinstance(begin, Mixed) else [begin[i] for i in range(input.ndim)]
    return lax.dynamic_slice(input, [jnp.asarray(entry) for entry in entries], sizes)


@op("Transpose", host=lambda x, perm: np.transpose(x, normalize_axes(perm, np.ndim(x))))
def transpose(x: Any, perm: Static) -> Any:
    """Permutes dimensions. See tf.raw_ops.Transpose."""
    return lax.transpose(jnp.asarray(x), normalize_axes(perm, jnp.ndim(x)))


@op(
    "Tile",
    host=lambda input, multiples: (
        jnp.tile(input, dims(multiples)) if np.size(input) > 1024 else np.tile(input, dims(multiples))
    ),
)
def tile(input: Any, multiples: Static) -> Any:
    """Repeats. See tf.raw_ops.Tile."""
    return jnp.tile(input, dims(multiples))


def _padding(paddings: Any) -> list[tuple[Any, Any]]:
    return [tuple(dims(row)) for row in np.asarray(paddings).reshape(-1, 2)]  # type: ignore[misc]


@op("Pad")
def pad(input: Any, paddings: Static) -> Any:
    """Pads with zeros. See tf.raw_ops.Pad."""
    return pad_v2(input, paddings, np.zeros((), input.dtype))


@op("PadV2")
def pad_v2(input: Any, paddings: Static, constant_values: Any) -> Any:
    """Pads with a value. See tf.raw_ops.PadV2."""
    # TensorFlow gives the padding no gradient.
    constant_values = lax.stop_gradient(jnp.asarray(constant_values))
    return lax.pad(jnp.asarray(input), constant_values, [(a, b, 0) for a, b in _padding(paddings)])


@op("MirrorPad")
def mirror_pad(input: Any, paddings: Static, *, mode: str) -> Any:
    """Pads with mirrored values. See tf.raw_ops.MirrorPad."""
    return jnp.pad(input, _padding(paddings), "reflect" if mode == "REFLECT" else "symmetric")


@op("ReverseV2", host=lambda tensor, axis: np.flip(tensor, normalize_axes(axis, np.ndim(tensor))))
def reverse_v2(tensor: Any, axis: Static) -> Any:
    """Reverses along axes. See tf.raw_ops.ReverseV2."""
    return lax.rev(jnp.asarray(tensor), normalize_axes(axis, jnp.ndim(tensor)))


@op("OneHot")
def one_hot(indices: Any, depth: Static, on_value: Any, off_value: Any, *, axis: int = -1) -> Any:
    """Returns ``on_value`` where the position is the index. See tf.raw_ops.OneHot."""
    rank = jnp.ndim(indices) + 1
    axis = normalize_axis(axis, rank)
    (count,) = dims(depth)
    dtype = canonical(indices.dtype)
    positions = lax.broadcasted_iota(dtype, tuple(count if i == axis else 1 for i in range(rank)), axis)
    hit = jnp.expand_dims(indices, axis) == positions
    return jnp.where(hit, jnp.asarray(on_value), jnp.asarray(off_value))


@op("MatrixBandPart")
def matrix_band_part(input: Any, num_lower: Static, num_upper: Static) -> Any:
    """Keeps a band around the diagonal. See tf.raw_ops.MatrixBandPart."""
    input = jnp.asarray(input)
    rows, columns = input.shape[-2:]
    offset = lax.broadcasted_iota(np.int32, (rows, columns), 1) - lax.broadcasted_iota(np.int32, (rows, columns), 0)
    keep = jnp.ones((rows, columns), bool)
    if int(num_lower) >= 0:
        keep = keep & (offset >= -int(num_lower))
    if int(num_upper) >= 0:
        keep = keep & (offset <= int(num_upper))
    return jnp.where(keep, input, jnp.zeros((), input.dtype))


@op("SpaceToBatchND")
def space_to_batch_nd(input: Any, block_shape: Static, paddings: Static) -> Any:
    """Moves blocks of spatial dimensions into the batch. See tf.raw_ops.SpaceToBatchND."""
    blocks, pads = dims(block_shape), _padding(paddings)
    count = len(blocks)
    x = jnp.asarray(input)
    config = [(0, 0, 0), *[(a, b, 0) for a, b in pads], *[(0, 0, 0)] * (x.ndim - 1 - count)]
    x = lax.pad(x, np.zeros((), x.dtype), config)
    split: list[Any] = [x.shape[0]]
    for size, block in zip(x.shape[1 : 1 + count], blocks, strict=True):
        split += [size // block, block]
    x = lax.reshape(x, (*split, *x.shape[1 + count :]))
    rest = range(1 + 2 * count, x.ndim)
    x = lax.transpose(x, (*(2 + 2 * i for i in range(count)), 0, *(1 + 2 * i for i in range(count)), *rest))
    batch = x.shape[count]
    for block in blocks:
        batch = batch * block
    return lax.reshape(x, (batch, *x.shape[count + 1 :]))


@op("BatchToSpaceND")
def batch_to_space_nd(input: Any, block_shape: Static, crops: Static) -> Any:
    """Moves blocks of the batch into spatial dimensions. See tf.raw_ops.BatchToSpaceND."""
    blocks, cut = dims(block_shape), _padding(crops)
    count = len(blocks)
    x = jnp.asarray(input)
    batch = x.shape[0]
    for block in blocks:
        batch = batch // block
    x = lax.reshape(x, (*blocks, batch, *x.shape[1:]))
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    x = lax.transpose(x, (*order, *range(2 * count + 1, x.ndim)))
    sizes = [x.shape[1 + 2 * i] * blocks[i] for i in range(count)]
    x = lax.reshape(x, (batch, *sizes, *x.shape[1 + 2 * count :]))
    for i, (before, after) in enumerate(cut):
        x = lax.slice_in_dim(x, before, x.shape[1 + i] - after, axis=1 + i)
    return x
