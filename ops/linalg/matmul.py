"""Matrix products, and the rarer functions and solvers of matrices (the others are in decompositions.py).

Where TensorFlow stops with an error that depends on values (a singular matrix, one that is not positive definite),
the result here is inf or NaN: a compiled JAX function cannot raise.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.loops.shard_map import fori_loop, while_loop
from tf2jax_lite.ops.common.accumulation import total
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import canonical
from tf2jax_lite.xla_cpu.dot_order import is_better_swapped, swapped_dot

from ._decomposition_jvps import eig as decomposed
from .banded import solved_by_rows

_FEW_BANDS = 16
_HALF = (np.dtype(np.float16), np.dtype(jnp.bfloat16))


def widened(x: Any) -> Any:
    """Returns float16 and bfloat16 as float32: XLA factorizes neither."""
    x = jnp.asarray(x)
    return x.astype(np.float32) if x.dtype in _HALF else x


def conj_transpose(x: Any) -> Any:
    """Returns the adjoint of matrices."""
    x = jnp.swapaxes(x, -1, -2)
    return jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


def as_matrix(x: Any, square: bool = False) -> Any:
    """Returns ``x`` as a JAX array of matrices.

    Raises:
      OpError: it has a rank below 2, or its matrices are not square though they have to be.
    """
    x = jnp.asarray(x)
    if x.ndim < 2:
        raise OpError(f"a matrix has rank 2 or more, not {x.ndim}")
    if square and x.shape[-1] != x.shape[-2]:
        raise OpError(f"matrices have to be square, not {x.shape[-2]}x{x.shape[-1]}")
    return x


def full_product(x: Any, y: Any) -> Any:
    """Multiplies matrices in full precision, as factorizations need it."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


# --- Products

Labels = Sequence[Hashable]


def _transpose(x: Any, labels: Labels, wanted: Labels) -> Any:
    permutation = tuple(labels.index(label) for label in wanted)
    return x if permutation == tuple(range(len(permutation))) else lax.transpose(x, permutation)


def _contract(x: Any, x_labels: Labels, y: Any, y_labels: Labels, out: Labels, dtype: Any) -> Any:
    """Sums products over the labels that ``out`` lacks; every label occurs once in an operand."""
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
    given, other = [*batch, *left, *right], [*batch, *right, *left]
    if is_better_swapped(given, other, out):
        return _transpose(swapped_dot(x, y, numbers, dtype), other, out)
    return _transpose(lax.dot_general(x, y, numbers, preferred_element_type=dtype), given, out)


def _drop_ones(x: Any, labels: Labels, other: Any, other_labels: Labels, which: Any) -> tuple[Any, list[Hashable]]:
    """Removes dimensions of size 1 that would have to be broadcast to the other operand's."""
    dropped = [
        axis
        for axis, label in enumerate(labels)
        if which(label) and x.shape[axis] == 1 and label in other_labels and other.shape[other_labels.index(label)] != 1
    ]
    kept = [label for axis, label in enumerate(labels) if axis not in dropped]
    return (lax.squeeze(x, dropped) if dropped else x), kept


@op("MatMul", heavy=True)
def mat_mul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    grad_a: bool = False,
    grad_b: bool = False,
) -> Any:
    """Multiplies two matrices. See tf.raw_ops.MatMul; ``grad_a`` and ``grad_b`` are hints."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    if a.ndim != 2 or b.ndim != 2:
        raise OpError(f"matrices are expected, not ranks {a.ndim} and {b.ndim}")
    contract = (((0 if transpose_a else 1,), (1 if transpose_b else 0,)), ((), ()))
    return lax.dot_general(a, b, contract, preferred_element_type=a.dtype)


def _batch(x: Any, y: Any, adj_x: bool, adj_y: bool, dtype: Any) -> Any:
    x, y = as_matrix(x), as_matrix(y)
    if x.dtype != y.dtype:
        # One operand type for all backends; exact, as the result's type holds both.
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


@op("BatchMatMul", "BatchMatMulV2", heavy=True)
def batch_mat_mul_v2(
    x: Any, y: Any, *, adj_x: bool = False, adj_y: bool = False, grad_x: bool = False, grad_y: bool = False
) -> Any:
    """Multiplies matrices in the last two dimensions, broadcasting the others. See tf.raw_ops.BatchMatMulV2."""
    return _batch(x, y, adj_x, adj_y, x.dtype)


@op("BatchMatMulV3", heavy=True)
def batch_mat_mul_v3(
    x: Any, y: Any, *, Tout: Any, adj_x: bool = False, adj_y: bool = False, grad_x: bool = False, grad_y: bool = False
) -> Any:
    """As BatchMatMulV2, with results of another type. See tf.raw_ops.BatchMatMulV3."""
    return _batch(x, y, adj_x, adj_y, canonical(Tout))


@op("SparseMatMul", heavy=True)
def sparse_mat_mul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
) -> Any:
    """Multiplies two dense matrices that may be mostly zeros. See tf.raw_ops.SparseMatMul."""
    return mat_mul(
        jnp.asarray(a).astype(np.float32),
        jnp.asarray(b).astype(np.float32),
        transpose_a=transpose_a,
        transpose_b=transpose_b,
    )


def _subscripts(text: str, rank: int | None) -> list[Hashable]:
    """Splits subscripts into labels; dimensions of an ellipsis are numbered from the last, -1."""
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
    """Takes the diagonal over dimensions that share a label."""
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
    """Puts ``x`` on the diagonal of dimensions that share a label."""
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


@op("Einsum", heavy=True)
def einsum(inputs: list[Any], *, equation: str) -> Any:
    """Sums products over named dimensions. See tf.raw_ops.Einsum.

    Only the dimensions of an ellipsis are broadcast, as in TensorFlow.
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
    narrow, narrow_labels = _drop_ones(x, x_labels, y, y_labels, lambda label: isinstance(label, int))
    y, y_labels = _drop_ones(y, y_labels, x, x_labels, lambda label: isinstance(label, int))
    x, x_labels = _reduced(narrow, narrow_labels, {*unique, *y_labels})
    y, y_labels = _reduced(y, y_labels, {*unique, *x_labels})
    return _embedded(_contract(x, x_labels, y, y_labels, unique, dtype), unique, out)


# --- Functions of matrices


@op("Eig", stored=True)
def eig(input: Any, *, compute_v: bool = True, Tout: Any) -> tuple[Any, Any]:
    """Eigenvalues and eigenvectors of any square matrix, in LAPACK's order. See tf.raw_ops.Eig.

    JAX has it on CPU, and on some GPU builds. Without ``compute_v`` the second result is 0 (in TensorFlow, anything).
    """
    input, dtype = as_matrix(input, square=True), canonical(Tout)
    if compute_v:
        values, vectors = decomposed(input)
        return values.astype(dtype), vectors.astype(dtype)
    return jnp.linalg.eigvals(input).astype(dtype), jnp.zeros((), dtype)


def _root_of_triangular(x: Any) -> Any:
    """Returns the upper triangular square root of an upper triangular matrix, diagonal by diagonal."""
    size = x.shape[-1]
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]
    diagonal = jnp.sqrt(jnp.diagonal(x, axis1=-2, axis2=-1))
    sums = diagonal[..., :, None] + diagonal[..., None, :]
    sums = jnp.where(sums == 0, 1, sums)

    def fill(step: Any, root: Any) -> Any:
        return jnp.where(distance == step, (x - full_product(root, root)) / sums, root)

    start = jnp.where(distance == 0, diagonal[..., None], 0)
    return fori_loop(1, size, fill, start) if size > 1 else start


def _complex(dtype: Any) -> np.dtype:
    return np.dtype(np.complex128) if np.dtype(dtype) in (np.float64, np.complex128) else np.dtype(np.complex64)


@jax.custom_jvp
def _square_root(x: Any) -> Any:
    triangle, basis = lax.linalg.schur(x.astype(_complex(x.dtype)))
    root = full_product(full_product(basis, _root_of_triangular(triangle)), conj_transpose(basis))
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return root
    # A real matrix with a negative eigenvalue has no real root: NaN, as in TensorFlow. Round-off is far smaller.
    sizes = [jnp.max(jnp.abs(part), axis=(-2, -1), keepdims=True, initial=0) for part in (jnp.imag(root), root)]
    is_real = sizes[0] <= jnp.finfo(x.dtype).eps ** 0.5 * sizes[1]
    return jnp.where(is_real, jnp.real(root), jnp.nan).astype(x.dtype)


@_square_root.defjvp
def _square_root_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # R dR + dR R = dX, as one system of linear equations for the rows of dR.
    root, size = _square_root(primals[0]), primals[0].shape[-1]
    eye = np.eye(size, dtype=root.dtype)
    left = jnp.einsum("...ij,kl->...ikjl", root, eye)
    right = jnp.einsum("ij,...lk->...ikjl", eye, root)
    system = (left + right).reshape(*root.shape[:-2], size * size, size * size)
    tangent = jnp.linalg.solve(system, tangents[0].reshape(*root.shape[:-2], size * size, 1))
    return root, tangent.reshape(root.shape)


@op("MatrixSquareRoot")
def matrix_square_root(input: Any) -> Any:
    """Square roots of matrices, by the Schur decomposition, which JAX has on CPU. See tf.raw_ops.MatrixSquareRoot."""
    input = as_matrix(input, square=True)
    return _square_root(widened(input)).astype(input.dtype)


@op("MatrixLogarithm")
def matrix_logarithm(input: Any) -> Any:
    """Logarithms of complex matrices, by inverse scaling and squaring. See tf.raw_ops.MatrixLogarithm.

    It needs the Schur decomposition, which JAX has on CPU, and has no gradient (in TensorFlow neither).
    """
    input = as_matrix(input, square=True)
    eye = np.eye(input.shape[-1], dtype=input.dtype)
    triangle, basis = lax.linalg.schur(lax.stop_gradient(input))

    def far(state: Any) -> Any:
        root, count = state
        return (jnp.max(jnp.sum(jnp.abs(root - eye), -2), initial=0) > 0.25) & (count < 60)

    def halve(state: Any) -> Any:
        root, count = state
        return _root_of_triangular(root), count + 1

    root, count = while_loop(far, halve, (triangle, jnp.zeros((), np.int32)))
    # log(I + X) is the integral of X (I + t X)^-1 over t in [0, 1]: Gauss-Legendre, which is a Pade approximant.
    nodes, weights = np.polynomial.legendre.leggauss(8)
    rest = root - eye
    logarithm = jnp.zeros_like(rest)
    for node, weight in zip(nodes, weights, strict=True):
        solved = lax.linalg.triangular_solve(eye + rest * float((node + 1) / 2), rest, left_side=True)
        logarithm = logarithm + solved * float(weight / 2)
    logarithm = logarithm * jnp.exp2(count.astype(jnp.real(rest).dtype))
    exact = jnp.log(jnp.diagonal(triangle, axis1=-2, axis2=-1))[..., None]
    logarithm = jnp.where(eye == 1, exact, logarithm)
    return full_product(full_product(basis, logarithm), conj_transpose(basis))


# --- Solvers of banded matrices


def triangular_solve(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    """Solves equations with triangular matrices, broadcasting the batch."""
    batch = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    matrix = jnp.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    rhs = jnp.broadcast_to(rhs, (*batch, *rhs.shape[-2:]))
    return lax.linalg.triangular_solve(
        matrix, rhs, left_side=True, lower=lower, transpose_a=adjoint, conjugate_a=adjoint
    )


@op("BandedTriangularSolve")
def banded_triangular_solve(bands: Any, rhs: Any, *, lower: bool = True, adjoint: bool = False) -> Any:
    """Solves equations with triangular matrices given by their bands. See tf.raw_ops.BandedTriangularSolve.

    Each row is a band, its element r the one in row r of the matrix: the diagonal first if ``lower``, else last.
    Few bands are solved row by row, many as a dense matrix.
    """
    bands, rhs = as_matrix(bands), as_matrix(rhs)
    count, size = bands.shape[-2:]
    if count < 1 or count > size:
        raise OpError(f"a matrix of {size} rows has between 1 and {size} bands, not {count}")
    if count <= min(size // 8, _FEW_BANDS):
        return solved_by_rows(widened(bands), widened(rhs), lower, adjoint).astype(rhs.dtype)
    row, column = np.arange(size)[:, None], np.arange(size)[None, :]
    offset = row - column if lower else column - row
    band = offset if lower else count - 1 - offset
    inside = (offset >= 0) & (offset < count)
    full = bands[..., np.where(inside, band, 0), np.broadcast_to(row, (size, size))]
    full = jnp.where(inside, full, jnp.zeros((), bands.dtype))
    return triangular_solve(widened(full), widened(rhs), lower, adjoint).astype(rhs.dtype)


@op("TridiagonalSolve")
def tridiagonal_solve(
    diagonals: Any, rhs: Any, *, partial_pivoting: bool = True, perturb_singular: bool = False
) -> Any:
    """Solves equations with tridiagonal matrices. See tf.raw_ops.TridiagonalSolve.

    Whether rows are exchanged is the backend's choice, not ``partial_pivoting``'s; CPU and GPU exchange them.
    ``perturb_singular``, which TensorFlow honours on GPU only, is not done. A singular matrix gives inf or NaN.
    """
    diagonals, rhs = as_matrix(diagonals), as_matrix(rhs)
    if diagonals.shape[-2] != 3:
        raise OpError(f"three diagonals are needed, not {diagonals.shape[-2]}")
    above, middle, below = (diagonals[..., i, :] for i in range(3))
    at, zero = lax.iota(np.int32, rhs.shape[-2]), jnp.zeros((), diagonals.dtype)
    above, below = jnp.where(at == rhs.shape[-2] - 1, zero, above), jnp.where(at == 0, zero, below)
    return lax.linalg.tridiagonal_solve(below, middle, above, rhs)
