"""Products of CSR matrices with dense ones (SpMM) and with each other (SpGEMM)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.dynamic_shapes.tracker import DynamicShapes, row_capacity, truncate_rows
from tf2jax_lite.ops.arrays.gather import take, take_nd
from tf2jax_lite.ops.common.nonzero import nonzero
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Bound, Pattern
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical, static_value

from .coo import scatter_entries
from .csr import SparseMatrix, as_matrix

__all__: list[str] = []


def _check_shapes(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    """Raise OpError if shapes cannot be multiplied."""
    if len(a) != len(b):
        raise OpError(f"matrices of ranks {len(a)} and {len(b)} cannot be multiplied")
    for one, other, what in ((a[-1], b[-2], "inner dimensions"), (a[0], b[0], "batch sizes")):
        if what == "batch sizes" and len(a) < 3:
            continue
        if isinstance(one, int) and isinstance(other, int) and one != other:
            raise OpError(f"cannot multiply matrices of shapes {list(a)} and {list(b)}: the {what} differ")


def _check_flags(transpose: bool, adjoint: bool, which: str) -> None:
    if transpose and adjoint:
        raise OpError(f"only one of adjoint_{which} and transpose_{which} may be true")


def _dense_operand(b: Any, transpose: bool, adjoint: bool) -> Any:
    b = jnp.asarray(b)
    if b.ndim > 1 and (transpose or adjoint):
        b = jnp.swapaxes(b, -1, -2)
    return lax.conj(b) if adjoint and jnp.iscomplexobj(b) else b


@op("SparseMatrixMatMul", pattern=Pattern.CONTRACTION)
def sparse_matrix_mat_mul(
    a,
    b,
    *,
    transpose_a=False,
    transpose_b=False,
    adjoint_a=False,
    adjoint_b=False,
    transpose_output=False,
    conjugate_output=False,
):
    """Multiply a sparse matrix by a dense one.

    TF: core/kernels/sparse/mat_mul_op.cc.
    """
    _check_flags(transpose_a, adjoint_a, "a")
    _check_flags(transpose_b, adjoint_b, "b")
    matrix, b = as_matrix(a, b.dtype), _dense_operand(b, transpose_b, adjoint_b)
    rows, columns = matrix.flat()
    height, width = matrix.matrix
    if transpose_a or adjoint_a:
        rows, columns, height, width = columns, rows, width, height
    values = matrix.conj().values if adjoint_a else matrix.values
    _check_shapes((*matrix.dims[:-2], height, width), b.shape)
    flat = jnp.reshape(b, (matrix.batches * width, b.shape[-1]))
    # Only entries are multiplied: rows of b without an entry may be NaN.
    parts = jnp.asarray(values)[:, None] * take(flat, jnp.asarray(columns), 0)
    start = jnp.zeros((matrix.batches * height, b.shape[-1]), parts.dtype)
    out = scatter_entries(start, jnp.asarray(rows)[:, None], parts, "add")
    out = jnp.reshape(out, (*matrix.dims[:-2], height, b.shape[-1]))
    if transpose_output:
        out = jnp.swapaxes(out, -1, -2)
    return lax.conj(out) if conjugate_output and jnp.iscomplexobj(out) else out


def _operand(matrix: Any, dtype: Any, transpose: bool, adjoint: bool) -> SparseMatrix:
    matrix = as_matrix(matrix, dtype)
    if transpose or adjoint:
        matrix = matrix.transposed()
    return matrix.conj() if adjoint else matrix


@op("SparseMatrixSparseMatMul")
def sparse_matrix_sparse_mat_mul(
    a, b, *, type, transpose_a=False, transpose_b=False, adjoint_a=False, adjoint_b=False, bound: Bound
):
    """Multiply sparse matrices.

    TF: core/kernels/sparse/sparse_mat_mul_op.cc.

    There is an entry wherever entries of both are multiplied, even if their sum is 0. With traced indices the product
    is computed as one of dense matrices.
    """
    _check_flags(transpose_a, adjoint_a, "a")
    _check_flags(transpose_b, adjoint_b, "b")
    a, b = _operand(a, type, transpose_a, adjoint_a), _operand(b, type, transpose_b, adjoint_b)
    _check_shapes(a.dims, b.dims)
    shape = (*a.dims[:-2], a.dims[-2], b.dims[-1])
    if static_value(a.indices) is None or static_value(b.indices) is None:
        return _traced_product(a, b, shape, bound)
    ours, theirs, indices, to = _terms(a, b)
    terms = take(a.values, ours, 0) * take(b.values, theirs, 0)
    start = jnp.zeros((len(indices),), terms.dtype)
    return SparseMatrix(indices, scatter_entries(start, to[:, None], terms, "add"), shape)


def _terms(a: SparseMatrix, b: SparseMatrix) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return both factors' positions for each term, product indices, and sum ids."""
    first, second = np.asarray(a.indices), np.asarray(b.indices)
    first_valid, second_valid = (np.flatnonzero(x[:, 0] >= 0) for x in (first, second))
    inner = np.asarray(a.flat()[1])[first_valid]
    rows = np.asarray(b.flat()[0])[second_valid]  # in order, as all matrices are
    begin, end = (np.searchsorted(rows, inner, side) for side in ("left", "right"))
    counts = end - begin
    ours = np.repeat(np.arange(len(inner)), counts)
    theirs = np.arange(counts.sum()) + np.repeat(begin - np.cumsum(counts) + counts, counts)
    ours, theirs = first_valid[ours], second_valid[theirs]
    found = np.concatenate([first[ours][:, :-1], second[theirs][:, -1:]], axis=1)
    indices, to = np.unique(found, axis=0, return_inverse=True)
    return ours, theirs, indices.astype(canonical(np.int64)), to.reshape(-1)


def _traced_product(
    a: SparseMatrix, b: SparseMatrix, shape: tuple[Any, ...], bound: int | DynamicShapes | None
) -> SparseMatrix:
    product = jnp.matmul(a.dense(), b.dense(), precision=lax.Precision.HIGHEST)
    ones = (m.with_values(jnp.ones(m.values.shape, np.float32)).dense() for m in (a, b))
    is_entry = jnp.reshape(jnp.matmul(*ones) > 0, (-1,))
    count = is_entry.shape[0]
    size = row_capacity(bound, count, "which entries a product has depends on traced indices")
    where = nonzero(is_entry, size, count)
    of = (a.indices, b.indices)
    (where,) = truncate_rows(bound, lambda: jnp.count_nonzero(is_entry), where, of=of)
    columns, rest = [], where
    for d in reversed(shape):
        columns.insert(0, rest % d)
        rest = rest // d
    int64 = canonical(np.int64)
    indices = jnp.where((where < count)[:, None], jnp.stack(columns, 1), -1).astype(int64)
    return SparseMatrix(indices, take_nd(product, indices), shape)
