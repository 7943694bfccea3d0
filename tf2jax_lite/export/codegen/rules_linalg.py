"""Print products, convolutions, Fourier transforms and linear algebra.

They become calls of ``jax.lax``.
"""

from __future__ import annotations

from typing import Any

from . import literals
from .registry import Equation, Raw, call, rule

__all__: list[str] = []


@rule("dot_general")
def _dot_general(eqn: Equation) -> str:
    p = eqn.params
    (left, right), batch = p["dimension_numbers"]
    a, b = eqn.inputs
    same = a.dtype == b.dtype == eqn.outputs[0].dtype
    plain = not any(batch) and tuple(left) == (len(a.shape) - 1,) and tuple(right) == (0,) and len(b.shape) == 2
    if plain and same and p["precision"] is None and len(a.shape) >= 1:
        return f"{eqn.typed[0]} @ {eqn.typed[1]}"
    numbers = tuple(tuple(tuple(int(d) for d in side) for side in pair) for pair in p["dimension_numbers"])
    kwargs: dict[str, Any] = {}
    if p["precision"] is not None:
        kwargs["precision"] = Raw(_precision(p["precision"]))
    if p["preferred_element_type"] is not None and not same:
        kwargs["preferred_element_type"] = p["preferred_element_type"]
    return call("lax.dot_general", *eqn.typed, literals.value(numbers), **kwargs)


def _precision(precision: Any) -> str:
    if isinstance(precision, (tuple, list)):
        return f"({', '.join(f'lax.Precision.{p.name}' for p in precision)})"
    return literals.value(precision)


_AXES = {
    "abc,cde->abde": "btehd",
    "abcd,cde->abe": "bthde",
    "abcd,aecd->acbe": "bqhdk",
    "abcd,aecd->aceb": "bkhdq",
    "abcd,adbe->acbe": "bhqkd",
    "abcd,aceb->aecd": "bkhdq",
}
"""Letters of the axes of attention's products: batch, time or query and key, embedding, head, and its size."""


@rule("einsum")
def _einsum(eqn: Equation) -> str:
    subscripts = f"{','.join(eqn.params['operands'])}->{eqn.params['result']}"
    if subscripts in _AXES:
        subscripts = subscripts.translate(str.maketrans("abcde", _AXES[subscripts]))
    return call("jnp.einsum", literals.value(subscripts), *eqn.typed)


@rule("conv_general_dilated")
def _conv(eqn: Equation) -> str:
    p = eqn.params
    numbers = p["dimension_numbers"]
    rank = len(numbers.lhs_spec)
    letters = "DHW"[-(rank - 2) :] if rank <= 5 else "0123456789"[: rank - 2]
    kwargs: dict[str, Any] = {
        "window_strides": tuple(p["window_strides"]),
        "padding": tuple(map(tuple, p["padding"])),
    }
    for name in ("lhs_dilation", "rhs_dilation"):
        if any(d != 1 for d in p[name]):
            kwargs[name] = tuple(p[name])
    kwargs["dimension_numbers"] = (
        _spec(numbers.lhs_spec, "NC", letters),
        _spec(numbers.rhs_spec, "OI", letters),
        _spec(numbers.out_spec, "NC", letters),
    )
    for name in ("feature_group_count", "batch_group_count"):
        if p[name] != 1:
            kwargs[name] = p[name]
    if p["precision"] is not None:
        kwargs["precision"] = Raw(_precision(p["precision"]))
    if p["preferred_element_type"] not in (None, eqn.inputs[0].dtype):
        kwargs["preferred_element_type"] = p["preferred_element_type"]
    return call("lax.conv_general_dilated", *eqn.typed, **kwargs)


def _spec(axes: Any, first: str, letters: str) -> str:
    out = [""] * len(axes)
    for letter, axis in zip(first + letters, axes, strict=True):
        out[axis] = letter
    return "".join(out)


@rule("fft")
def _fft(eqn: Equation) -> str:
    p = eqn.params
    return call("lax.fft", eqn.typed[0], literals.value(p["fft_type"].name), literals.shape(p["fft_lengths"]))


@rule("cholesky")
def _cholesky(eqn: Equation) -> str:
    return call("lax.linalg.cholesky", eqn.typed[0], symmetrize_input=False)


@rule("triangular_solve")
def _triangular_solve(eqn: Equation) -> str:
    p = eqn.params
    words = {k: p[k] for k in ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal") if p[k]}
    return call("lax.linalg.triangular_solve", *eqn.typed, **words)


@rule("qr")
def _qr(eqn: Equation) -> str:
    return call("lax.linalg.qr", eqn.typed[0], full_matrices=eqn.params["full_matrices"])


@rule("lu")
def _lu(eqn: Equation) -> str:
    return call("lax.linalg.lu", eqn.typed[0])


@rule("svd")
def _svd(eqn: Equation) -> str:
    p = eqn.params
    text = call("lax.linalg.svd", eqn.typed[0], full_matrices=p["full_matrices"], compute_uv=p["compute_uv"])
    return text if p["compute_uv"] else f"({text},)"


@rule("eigh")
def _eigh(eqn: Equation) -> str:
    p = eqn.params
    words = {"lower": p["lower"], "sort_eigenvalues": p["sort_eigenvalues"], "symmetrize_input": False}
    return call("lax.linalg.eigh", eqn.typed[0], **words)


@rule("eig")
def _eig(eqn: Equation) -> str:
    p = eqn.params
    words = {k: p[k] for k in ("compute_left_eigenvectors", "compute_right_eigenvectors")}
    return call("lax.linalg.eig", eqn.typed[0], **words)


@rule("schur")
def _schur(eqn: Equation) -> str:
    return call("lax.linalg.schur", eqn.typed[0], compute_schur_vectors=eqn.params["compute_schur_vectors"])


@rule("hessenberg", "householder_product", "tridiagonal_solve")
def _linalg(eqn: Equation) -> str:
    return call(f"lax.linalg.{eqn.name}", *eqn.typed)


@rule("lu_pivots_to_permutation")
def _permutation(eqn: Equation) -> str:
    return call("lax.linalg.lu_pivots_to_permutation", eqn.typed[0], str(eqn.params["permutation_size"]))
