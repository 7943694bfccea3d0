"""Matrix products and Einsum.

Where TensorFlow's linear algebra raises an error that depends on values (a singular matrix, a matrix that is not
positive definite), results here are inf or NaN: a compiled JAX function cannot raise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.precision import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical

Labels = Sequence[Hashable]


def as_matrix(x: Any, square: bool = False) -> Any:
    """Return ``x`` as an array of matrices, square ones if ``square``."""
    x = jnp.asarray(x)
    if x.ndim < 2:
        raise OpError(f"a matrix has rank 2 or more, not {x.ndim}")
    if square and x.shape[-1] != x.shape[-2]:
        raise OpError(f"matrices have to be square, not {x.shape[-2]}x{x.shape[-1]}")
    return x


def _transpose(x: Any, labels: Labels, wanted: Labels) -> Any:
    permutation = tuple(labels.index(label) for label in wanted)
    return x if permutation == tuple(range(len(permutation))) else lax.transpose(x, permutation)


def _contract(x: Any, x_labels: Labels, y: Any, y_labels: Labels, out: Labels, dtype: Any) -> Any:
    """Sum products over labels that ``out`` lacks; none repeats in an operand."""
    x_axes = {label: axis for axis, label in enumerate(x_labels)}
    y_axes = {label: axis for axis, label in enumerate(y_labels)}
    batch = [label for label in out if label in x_axes and label in y_axes]
    summed = [label for label in x_labels if label in y_axes and label not in out]
    for label in (*batch, *summed):
        left, right = x.shape[x_axes[label]], y.shape[y_axes[label]]
        if isinstance(left, int) and isinstance(right, int) and left != right:
            raise OpError(f"dimensions {left} and {right} do not fit: {tuple(x.shape)} times {tuple(y.shape)}")
    numbers = (
        (tuple(x_axes[label] for label in summed), tuple(y_axes[label] for label in summed)),
        (tuple(x_axes[label] for label in batch), tuple(y_axes[label] for label in batch)),
    )
    taken = {*batch, *summed}
    left, right = ([label for label in labels if label not in taken] for labels in (x_labels, y_labels))
    labels, swapped = [*batch, *left, *right], [*batch, *right, *left]
    if _is_rotated(swapped, out) and not _is_rotated(labels, out):
        x, y, labels, numbers = y, x, swapped, ((numbers[0][1], numbers[0][0]), (numbers[1][1], numbers[1][0]))
    return _transpose(lax.dot_general(x, y, numbers, preferred_element_type=dtype), labels, out)


def _is_rotated(labels: Labels, wanted: Labels) -> bool:
    """Return whether dimensions are as wanted, except for one later block.

    A product of such a result reads it in its present layout. An attention's weights times its values are so with
    swapped operands: (batch, heads, size, queries) where (batch, queries, heads, size) is wanted. On GPU XLA needs no
    copy then, as for the result of `jnp.einsum`.
    """
    same = next((i for i, (a, b) in enumerate(zip(labels, wanted, strict=True)) if a != b), len(labels))
    rest, other = list(labels[same:]), list(wanted[same:])
    return not rest or any(rest[i:] + rest[:i] == other for i in range(1, len(rest)))


def _drop_ones(x: Any, labels: Labels, other: Any, other_labels: Labels, which: Any) -> tuple[Any, list[Hashable]]:
    """Remove dimensions of size 1 that would be broadcast to the other operand's."""
    dropped = [
        axis
        for axis, label in enumerate(labels)
        if which(label) and x.shape[axis] == 1 and label in other_labels and other.shape[other_labels.index(label)] != 1
    ]
    others = [label for axis, label in enumerate(labels) if axis not in dropped]
    return (lax.squeeze(x, dropped) if dropped else x), others


@op("MatMul", pattern=Pattern.CONTRACTION)
def mat_mul(a, b, *, transpose_a=False, transpose_b=False, grad_a=False, grad_b=False):
    """Multiply two matrices.

    Args:
      a: ``[m, k]``, or ``[k, m]`` if transposed.
      b: ``[k, n]`` of the same dtype, or ``[n, k]`` if transposed.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.ndim != 2 or b.ndim != 2:
        raise OpError(f"matrices are expected, not ranks {a.ndim} and {b.ndim}")
    contract = (((0 if transpose_a else 1,), (1 if transpose_b else 0,)), ((), ()))
    return lax.dot_general(a, b, contract, preferred_element_type=a.dtype)


def _batch(x: Any, y: Any, adj_x: bool, adj_y: bool, dtype: Any) -> Any:
    x, y = as_matrix(x), as_matrix(y)
    if x.dtype != y.dtype:
        # All backends take operands of one dtype; the cast is exact, as the result's dtype holds both.
        x, y = x.astype(dtype), y.astype(dtype)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x, y = jnp.conj(x) if adj_x else x, jnp.conj(y) if adj_y else y
    x_batch: list[Hashable] = list(range(2 - x.ndim, 0))
    y_batch: list[Hashable] = list(range(2 - y.ndim, 0))
    out = x_batch if len(x_batch) >= len(y_batch) else y_batch
    x_labels = [*x_batch, *(("k", "m") if adj_x else ("m", "k"))]
    y_labels = [*y_batch, *(("n", "k") if adj_y else ("k", "n"))]
    left, left_labels = _drop_ones(x, x_labels, y, y_labels, lambda label: isinstance(label, int))
    right, right_labels = _drop_ones(y, y_labels, x, x_labels, lambda label: isinstance(label, int))
    return _contract(left, left_labels, right, right_labels, [*out, "m", "n"], dtype)


@op("BatchMatMul", "BatchMatMulV2", pattern=Pattern.CONTRACTION)
def batch_mat_mul_v2(x, y, *, adj_x=False, adj_y=False, grad_x=False, grad_y=False):
    """Multiply matrices of two batches, which broadcast.

    Args:
      x: ``[..., m, k]``, or ``[..., k, m]`` if adjoint.
      y: ``[..., k, n]`` of the same dtype, or ``[..., n, k]`` if adjoint.
    """
    return _batch(x, y, adj_x, adj_y, x.dtype)


@op("BatchMatMulV3", pattern=Pattern.CONTRACTION)
def batch_mat_mul_v3(x, y, *, Tout, adj_x=False, adj_y=False, grad_x=False, grad_y=False):
    """Multiply matrices of two batches, of two dtypes."""
    return _batch(x, y, adj_x, adj_y, canonical(Tout))


@op("SparseMatMul", pattern=Pattern.CONTRACTION)
def sparse_mat_mul(a, b, *, transpose_a=False, transpose_b=False, a_is_sparse=False, b_is_sparse=False):
    """Multiply two dense matrices that may be mostly zero, in float32.

    Args:
      a: ``[m, k]``, or ``[k, m]`` if transposed; float32 or bfloat16.
      b: ``[k, n]``, or ``[n, k]`` if transposed; float32 or bfloat16.
    """
    return mat_mul(
        jnp.asarray(a).astype(np.float32),
        jnp.asarray(b).astype(np.float32),
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


def _subscripts(text: str, rank: int | None) -> list[Hashable]:
    """Split subscripts into labels, with an ellipsis numbered from the last, -1."""
    before, dots, after = text.partition("...")
    if not dots:
        labels: list[Hashable] = list(text)
        if rank is not None and len(labels) != rank:
            raise OpError(f"subscripts {text!r} do not fit a tensor of rank {rank}")
        return labels
    if rank is not None and rank < len(before) + len(after):
        raise OpError(f"subscripts {text!r} do not fit a tensor of rank {rank}")
    count = 0 if rank is None else rank - len(before) - len(after)
    return [*before, *range(-count, 0), *after]


def _diagonals(x: Any, labels: list[Hashable]) -> tuple[Any, list[Hashable]]:
    """Take the diagonal over dimensions that share a label."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = jnp.diagonal(x, 0, first, second)
            labels = [name for axis, name in enumerate(labels) if axis not in (first, second)] + [label]
    return x, labels


def _reduced(x: Any, labels: list[Hashable], keep: set[Hashable]) -> tuple[Any, list[Hashable]]:
    axes = tuple(axis for axis, label in enumerate(labels) if label not in keep)
    return (total(x, axes) if axes else x), [label for label in labels if label in keep]


def _embedded(x: Any, labels: list[Hashable], out: list[Hashable]) -> Any:
    """Put ``x`` on the diagonal of dimensions that share a label."""
    if len(labels) == len(out):
        return x
    shape = [x.shape[labels.index(label)] for label in out]
    first = [out.index(label) for label in labels]
    result = lax.broadcast_in_dim(x, shape, first)
    zero = jnp.zeros((), x.dtype)
    for axis, label in enumerate(out):
        if out.index(label) != axis:
            same = lax.broadcasted_iota(np.int32, shape, axis) == lax.broadcasted_iota(
                np.int32, shape, out.index(label)
            )
            result = jnp.where(same, result, zero)
    return result


@op("Einsum", pattern=Pattern.CONTRACTION)
def einsum(inputs, *, equation):
    """Sum products over labeled dimensions.

    TF: core/kernels/linalg/einsum_op_impl.h.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(inputs) or len(inputs) not in (1, 2):
        raise OpError(f"equation {equation!r} does not describe a product of {len(inputs)} tensors")
    arrays = [jnp.asarray(v) for v in inputs]
    dtype = arrays[0].dtype
    operands = [_diagonals(a, _subscripts(t, a.ndim)) for a, t in zip(arrays, terms, strict=True)]
    ellipsis = sorted({label for _, labels in operands for label in labels if isinstance(label, int)})
    before, dots, after = right.partition("...")
    out: list[Hashable] = [*before, *(ellipsis if dots else ()), *after]
    unique = list(dict.fromkeys(out))
    unknown = [label for label in unique if all(label not in labels for _, labels in operands)]
    if unknown:
        raise OpError(f"equation {equation!r}: label {unknown[0]!r} occurs in no input")
    if len(operands) == 1:
        x, labels = _reduced(*operands[0], set(unique))
        return _embedded(_transpose(x, labels, unique), unique, out)
    (x, x_labels), (y, y_labels) = operands
    squeezed, squeezed_labels = _drop_ones(x, x_labels, y, y_labels, lambda label: isinstance(label, int))
    y, y_labels = _drop_ones(y, y_labels, x, x_labels, lambda label: isinstance(label, int))
    x, x_labels = _reduced(squeezed, squeezed_labels, {*unique, *y_labels})
    y, y_labels = _reduced(y, y_labels, {*unique, *x_labels})
    return _embedded(_contract(x, x_labels, y, y_labels, unique, dtype), unique, out)
