"""Linear algebra as ``jax.lax.linalg``, from kernels of CPU, GPU and TPU."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.support.errors import UnsupportedError

from .core import LazyBroadcast, OpContext
from .prng import threefry

_KERNELS: dict[str, Callable[..., Any]] = {}
_NAME = re.compile(r"(?:(?:lapack|blas)_[sdcz]|(?:cu|hip|roc)(?:solver|sparse|blas)_|(?:cu|hip)_)(\w+?)(?:_ffi)?")
# Kernels whose names never had a suffix.
_BARE = {"lu_pivots_to_permutation"}


def _kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        _KERNELS.update(dict.fromkeys(names, fn))
        return fn

    return register


def linear_algebra(target: str) -> Callable[..., Any] | None:
    """Return the function for a custom call's target, or None."""
    match = _NAME.fullmatch(target)
    if match and (target.endswith("_ffi") or match[1] in _BARE):
        return _KERNELS.get(match[1])
    return _KERNELS.get(target) if target[:1].isupper() else None


def config_of(ctx: OpContext) -> dict[str, Any]:
    """Return a custom call's own attributes."""
    config = ctx.attr("mhlo.backend_config") or ctx.attr("backend_config")
    return config if isinstance(config, dict) else {}


def _letter(ctx: OpContext, name: str, default: str) -> str:
    value = config_of(ctx).get(name)
    return default if value is None else chr(int(value))


def _is_lower(ctx: OpContext) -> bool:
    config = config_of(ctx)
    return bool(config["lower"]) if "lower" in config else _letter(ctx, "uplo", "L") == "L"


def _info(ctx: OpContext) -> Any:
    """Success: jax.lax.linalg itself gives NaN where LAPACK would report failure."""
    shape = ctx.op.types[-1].shape
    return (
        np.broadcast_to(np.zeros((), np.int32), shape)
        if None not in shape
        else LazyBroadcast(np.zeros((), np.int32), ())
    )


@_kernel("potrf")
def _potrf(ctx: OpContext, x: Any) -> Any:
    if _is_lower(ctx):
        return lax.linalg.cholesky(x, symmetrize_input=False), _info(ctx)
    return jnp.swapaxes(lax.linalg.cholesky(jnp.swapaxes(x, -1, -2).conj(), symmetrize_input=False), -1, -2).conj(), (
        _info(ctx)
    )


@_kernel("getrf")
def _getrf(ctx: OpContext, x: Any) -> Any:
    factors, pivots, _ = lax.linalg.lu(x)
    return factors, lax.add(pivots, jnp.ones_like(pivots)), _info(ctx)


@dataclasses.dataclass(frozen=True, eq=False)
class Scales:
    """The scales of the reflectors of a QR decomposition, with the decomposed matrix.

    The product of the reflectors, Q, is computed from that by a decomposition that JAX can differentiate.
    """

    matrix: Any
    shape: tuple[int, ...]
    dtype: np.dtype


@_kernel("geqrf")
def _geqrf(ctx: OpContext, x: Any) -> Any:
    m, n = x.shape[-2:]
    if not _only_makes_q(ctx):
        packed, taus = jnp.linalg.qr(x, mode="raw")
        return jnp.swapaxes(packed, -1, -2), taus
    _, r = lax.linalg.qr(x, full_matrices=False)
    if m > n:
        r = jnp.concatenate([r, jnp.zeros((*r.shape[:-2], m - n, n), r.dtype)], -2)
    return r, Scales(x, (*x.shape[:-2], min(m, n)), x.dtype)


def _only_makes_q(ctx: OpContext) -> bool:
    """Return whether scales are orgqr's alone, and so is the lower matrix."""
    packed, taus = ctx.op.results
    readers = [op for op in ctx.ops if taus in op.operands]
    made = [op for op in readers if "gqr" in str(op.attrs.get("call_target_name", ""))]
    if len(made) != len(readers):
        return False
    # jax cuts out R with select(below the diagonal, 0, packed).
    seen = [op for op in ctx.ops if packed in op.operands]
    return bool(seen) and all(
        op in made
        or op.name in ("stablehlo.slice", "stablehlo.pad")
        or (op.name == "stablehlo.select" and op.operands[2] == packed)
        for op in seen
    )


@_kernel("orgqr", "ungqr")
def _orgqr(ctx: OpContext, x: Any, taus: Any) -> Any:
    if isinstance(taus, Scales):
        rows, columns = x.shape[-2:]
        q, _ = lax.linalg.qr(taus.matrix, full_matrices=columns == rows)
        return q if q.shape == x.shape else q[..., :columns]
    return lax.linalg.householder_product(x, taus)


@_kernel("syevd", "heevd")
def _syevd(ctx: OpContext, x: Any) -> Any:
    vectors, found = lax.linalg.eigh(x, lower=_is_lower(ctx), symmetrize_input=False)
    return vectors, found, _info(ctx)


@_kernel("gesdd", "gesvd", "gesvdj")
def _gesdd(ctx: OpContext, x: Any) -> Any:
    config = config_of(ctx)
    mode = _letter(ctx, "mode", "N")
    if "compute_uv" in config:
        mode = ("A" if config.get("full_matrices") else "S") if config["compute_uv"] else "N"
    if mode == "N":
        found = lax.linalg.svd(x, compute_uv=False)
        return _unused(ctx, 0), found, _unused(ctx, 2), _unused(ctx, 3), _info(ctx)
    if mode not in "AS" or len(ctx.op.types) != 5:
        raise UnsupportedError(f"singular values in mode {mode!r}")
    u, found, vh = lax.linalg.svd(x, full_matrices=mode == "A", compute_uv=True)
    if "gesvdj" in ctx.attr("call_target_name"):
        vh = jnp.swapaxes(vh, -1, -2).conj()
    first, second = (vh, u) if config.get("transposed") else (u, vh)
    return _unused(ctx, 0), found, first, second, _info(ctx)


def _unused(ctx: OpContext, index: int) -> Any:
    if ctx.op.used[index]:
        raise UnsupportedError(f"result {index} of {ctx.attr('call_target_name')!r} is scratch")
    return None


@_kernel("geev")
def _geev(ctx: OpContext, x: Any) -> Any:
    left, right = (_letter(ctx, f"compute_{side}", "N") == "V" for side in ("left", "right"))
    found, *vectors = lax.linalg.eig(x, compute_left_eigenvectors=left, compute_right_eigenvectors=right)
    remaining = iter(vectors)
    complex_ = jnp.iscomplexobj(x)
    first = 1 if complex_ else 2
    made = [next(remaining) if wanted else _unused(ctx, first + i) for i, wanted in enumerate((left, right))]
    parts = [found] if complex_ else [lax.real(found), lax.imag(found)]
    return *parts, *made, _info(ctx)


@_kernel("gees")
def _gees(ctx: OpContext, x: Any) -> Any:
    wanted = _letter(ctx, "mode", "N") == "V"
    found = lax.linalg.schur(x, compute_schur_vectors=wanted)
    count = len(ctx.op.types)
    scratch = [_unused(ctx, i) for i in range(2, count - 2)]
    first = [found[0], found[1] if wanted else _unused(ctx, 1)]
    selected = np.zeros((), np.int32)
    return *first, *scratch, np.broadcast_to(selected, ctx.op.types[-2].shape), _info(ctx)


@_kernel("gehrd")
def _gehrd(ctx: OpContext, x: Any) -> Any:
    return *lax.linalg.hessenberg(x), _info(ctx)


@_kernel("sytrd", "hetrd")
def _sytrd(ctx: OpContext, x: Any) -> Any:
    return *lax.linalg.tridiagonal(x, lower=_is_lower(ctx)), _info(ctx)


@_kernel("gtsv2")
def _gtsv2(ctx: OpContext, low: Any, main: Any, high: Any, b: Any) -> Any:
    return [lax.linalg.tridiagonal_solve(low, main, high, b)]


@_kernel("gtsv")
def _gtsv(ctx: OpContext, low: Any, main: Any, high: Any, b: Any) -> Any:
    return (
        *(_unused(ctx, i) for i in range(3)),
        lax.linalg.tridiagonal_solve(low, main, high, b),
        _info(ctx),
    )


@_kernel("trsm")
def _trsm(ctx: OpContext, a: Any, b: Any, *rest: Any) -> Any:
    if rest:
        raise UnsupportedError("a triangular solve with operands beside the two matrices")
    transpose = _letter(ctx, "trans_x", "N")
    return lax.linalg.triangular_solve(
        a,
        b,
        left_side=_letter(ctx, "side", "L") == "L",
        lower=_letter(ctx, "uplo", "L") == "L",
        transpose_a=transpose != "N",
        conjugate_a=transpose == "C",
        unit_diagonal=_letter(ctx, "diag", "N") == "U",
    )


@_kernel("lu_pivots_to_permutation")
def _permutation(ctx: OpContext, pivots: Any) -> Any:
    return [lax.linalg.lu_pivots_to_permutation(pivots, int(ctx.type.shape[-1] or 0))]


@_kernel("threefry2x32")
def _threefry(ctx: OpContext, *words: Any) -> Any:
    return threefry(*words)


# ---- TPU ----


@_kernel("Eigh")
def _tpu_eigh(ctx: OpContext, x: Any) -> Any:
    flags = str(ctx.attr("backend_config", "1,1")).split(",")
    sorted_ = flags[1:2] != ["0"]
    return lax.linalg.eigh(x, lower=flags[0] == "1", symmetrize_input=False, sort_eigenvalues=sorted_)


@_kernel("LuDecomposition")
def _tpu_lu(ctx: OpContext, x: Any) -> Any:
    return lax.linalg.lu(x)


@_kernel("Qr")
def _tpu_qr(ctx: OpContext, x: Any) -> Any:
    packed, taus = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(packed, -1, -2), taus


@_kernel("ProductOfElementaryHouseholderReflectors")
def _tpu_reflectors(ctx: OpContext, x: Any, taus: Any) -> Any:
    return [lax.linalg.householder_product(x, taus)]
