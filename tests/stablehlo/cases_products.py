"""Products, convolutions and linear algebra: data for the sweep."""

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
from jax import lax

from .harness import case
from .values import C2, A, B, C, D, M, S, V, f32


def conv(name, numbers, lhs, rhs, strides=(1, 1), padding="SAME", **options):
    grad = options.pop("grad", True)
    return case(
        name,
        lambda x, k: lax.conv_general_dilated(x, k, strides, padding, dimension_numbers=numbers, **options),
        f32(*lhs),
        f32(*rhs),
        grad=grad,
        vmap=True,
        tol=1e-4,
    )


PRODUCTS = [
    case(
        "dot_general", lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,)))), f32(2, 3, 4), f32(2, 3, 5), **D
    ),
    case(
        "dot_general_two",
        lambda x, y: lax.dot_general(x, y, (((1, 2), (2, 0)), ((), ()))),
        f32(2, 3, 4),
        f32(4, 5, 3),
        **D,
    ),
    *(
        case(
            f"dot_{p}",
            lambda x, y, p=p: lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=p),
            M,
            M.T.copy(),
            **D,
        )
        for p in ("high", "highest", ("default", "highest"))
    ),
    case("dot_preferred", lambda x: lax.dot(x, x, preferred_element_type=np.float32), jnp.asarray(V, jnp.bfloat16)),
    case("dot_preferred_integers", lambda x: lax.dot(x, x, preferred_element_type=np.int32), np.int8([100, 100])),
    *(
        case(f"dot_algorithm_{p}", lambda x, y, p=p: lax.dot(x, y, precision=lax.DotAlgorithmPreset[p]), M, M.T.copy())
        for p in ("F32_F32_F32", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "DEFAULT")
    ),
    case("dot_complex", lambda x, y: lax.dot(x, y), C, C2, **D),
    case("dot_bool", lambda x: lax.dot(x, x.T), M > 0),
    case("ragged_dot", lax.ragged_dot, f32(6, 3), f32(2, 3, 4), np.int32([2, 4]), vmap=False),
    conv("conv_1d", ("NWC", "WIO", "NWC"), (2, 7, 3), (3, 3, 4), (2,)),
    conv("conv_2d", ("NHWC", "HWIO", "NHWC"), (2, 5, 6, 3), (3, 2, 3, 4), (2, 1)),
    conv("conv_2d_first", ("NCHW", "OIHW", "NCHW"), (2, 3, 5, 6), (4, 3, 3, 2), padding="VALID"),
    conv("conv_2d_odd_order", ("CNHW", "IHWO", "HWNC"), (3, 2, 5, 6), (3, 3, 2, 4), padding=[(1, 0), (2, -1)]),
    conv("conv_3d", ("NDHWC", "DHWIO", "NDHWC"), (1, 3, 4, 3, 2), (2, 2, 2, 2, 3), (1, 2, 1)),
    conv("conv_groups", ("NHWC", "HWIO", "NHWC"), (2, 4, 4, 4), (2, 2, 2, 6), feature_group_count=2),
    conv("conv_depthwise", ("NHWC", "HWIO", "NHWC"), (2, 4, 4, 3), (2, 2, 1, 6), feature_group_count=3),
    conv("conv_batch_groups", ("NHWC", "HWIO", "NHWC"), (4, 4, 4, 2), (2, 2, 2, 4), batch_group_count=2),
    conv("conv_dilated", ("NHWC", "HWIO", "NHWC"), (1, 7, 7, 2), (3, 3, 2, 2), rhs_dilation=(2, 3)),
    conv(
        "conv_lhs_dilated",
        ("NHWC", "HWIO", "NHWC"),
        (1, 4, 4, 2),
        (3, 3, 2, 2),
        padding=[(1, 1), (2, 0)],
        lhs_dilation=(2, 3),
    ),
    conv("conv_highest", ("NHWC", "HWIO", "NHWC"), (1, 4, 4, 2), (3, 3, 2, 2), precision="highest"),
    case(
        "conv_preferred",
        lambda x, k: lax.conv_general_dilated(
            x, k, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), preferred_element_type=np.float32
        ),
        jnp.asarray(f32(1, 4, 2), jnp.bfloat16),
        jnp.asarray(f32(3, 2, 2), jnp.bfloat16),
    ),
    case(
        "conv_complex",
        lambda x: lax.conv_general_dilated(
            x.reshape(1, 4, 1), x[:3].reshape(3, 1, 1), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        ),
        C,
    ),
    case(
        "conv_transpose", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), f32(1, 4, 4, 2), f32(3, 3, 2, 4), **D
    ),
    case("conv_patches", lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID"), f32(1, 2, 4, 4), **D),
    case("fft", lambda x: (jnp.fft.fft(x), jnp.fft.ifft(x), jnp.fft.rfft(x), jnp.fft.irfft(x)), V, **D),
    case("fft_more", lambda x: (jnp.fft.fft2(x), jnp.fft.irfft2(jnp.fft.rfft2(x)), jnp.fft.fftn(x[None])), M, **B),
]


G = {"grad": True, "vmap": True, "tol": 1e-3}
Z = (S + 1j * (A - A.T)).astype(np.complex64)


def symmetric(fn):
    return lambda x: fn((x + x.T) / 2)


LINALG = [
    case("cholesky", lax.linalg.cholesky, S, **G),
    case("cholesky_raw", lambda x: lax.linalg.cholesky(x, symmetrize_input=False), S, vmap=True),
    case("cholesky_complex", lax.linalg.cholesky, Z, **G),
    case("cholesky_update", lambda x, v: lax.linalg.cholesky_update(x, v), np.linalg.cholesky(S).T.copy(), V[:3]),
    case("triangular_solve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), S, M, **G),
    case("triangular_solve_right", lambda a, b: lax.linalg.triangular_solve(a, b.T, transpose_a=True), S, M, **G),
    case(
        "triangular_solve_unit",
        lambda a, b: lax.linalg.triangular_solve(
            a, b, left_side=True, unit_diagonal=True, transpose_a=True, conjugate_a=True
        ),
        Z,
        M.astype(np.complex64),
        **G,
    ),
    case("lu", lax.linalg.lu, A, **G),
    case("lu_tall", lax.linalg.lu, M.T.copy(), **G),
    case("lu_permutation", lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), np.int32([2, 1, 3])),
    case("qr", lambda x: lax.linalg.qr(x, full_matrices=False), M.T.copy(), **G),
    case("qr_full", lax.linalg.qr, M.T.copy(), vmap=True),
    case("qr_wide", lambda x: lax.linalg.qr(x, full_matrices=False), M, vmap=True),
    case("qr_pivoting", lambda x: lax.linalg.qr(x, pivoting=True, full_matrices=False), M.T.copy()),
    case("qr_raw", lambda x: jnp.linalg.qr(x, mode="raw"), M.T.copy()),
    case("householder_product", lambda x: lax.linalg.householder_product(*lax.linalg.hessenberg(x)), A),
    case("eigh", lax.linalg.eigh, S, **G),
    case("eigh_upper", lambda x: lax.linalg.eigh(x, lower=False, symmetrize_input=False), S),
    case("eigh_subset", lambda x: lax.linalg.eigh(x, subset_by_index=(0, 2)), S),
    case("eigh_complex", lambda x: lax.linalg.eigh(x)[1], Z, vmap=True),
    case("eigvalsh", lambda x: jnp.linalg.eigvalsh(x), S, **G),
    case("svd", lambda x: lax.linalg.svd(x, full_matrices=False), M, **G),
    case("svd_full", lambda x: lax.linalg.svd(x), M, vmap=True),
    case("svd_values", lambda x: lax.linalg.svd(x, compute_uv=False), M, **G),
    case("svd_complex", lambda x: lax.linalg.svd(x, compute_uv=False), Z, vmap=True),
    case("svd_qr", lambda x: lax.linalg.svd(x, compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR), M),
    case("eig", lax.linalg.eig, A, vmap=True, tol=1e-3),
    case(
        "eig_values",
        lambda x: lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False),
        A,
        second=False,
        **G,
    ),
    case("schur", lax.linalg.schur, A, tol=1e-3),
    case("schur_values", lambda x: lax.linalg.schur(x, compute_schur_vectors=False), A, tol=1e-3),
    case("hessenberg", lax.linalg.hessenberg, A, tol=1e-3, vmap=True),
    case("tridiagonal", lax.linalg.tridiagonal, S, tol=1e-3, vmap=True),
    case("tridiagonal_solve", lax.linalg.tridiagonal_solve, S[0] * [0, 1, 1], S[1] + 9, S[2] * [1, 1, 0], A, **G),
    case("symmetric_product", lambda a, c: lax.linalg.symmetric_product(a, c), A, S),
    case("solve", jnp.linalg.solve, S, A, **G),
    case("inverse", jnp.linalg.inv, S, **G),
    case("determinant", lambda x: (jnp.linalg.det(x), jnp.linalg.slogdet(x)), S, **G),
    case("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], M.T.copy(), V, tol=1e-3),
    case("matrix_rank", lambda x: (jnp.linalg.matrix_rank(x), jnp.linalg.norm(x, 2), jnp.linalg.cond(x)), S, tol=1e-3),
    case("pinv", jnp.linalg.pinv, M, tol=1e-3, vmap=True),
    case("expm", lambda x: jax.scipy.linalg.expm(x / 9), A, tol=1e-3),
    case("sqrtm", lambda x: jax.scipy.linalg.sqrtm(x).real, S, tol=1e-3),
    case("cho_solve", lambda x, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(x), b), S, M, **G),
    case(
        "batched", lambda x: (jnp.linalg.cholesky(x), jnp.linalg.inv(x), jnp.linalg.det(x)), np.stack([S, S + S]), **G
    ),
    case(
        "custom_linear_solve",
        lambda a, b: lax.custom_linear_solve(
            lambda x: a @ x,
            b,
            lambda mv, b: jnp.linalg.solve(a, b),
            transpose_solve=lambda mv, b: jnp.linalg.solve(a.T, b),
        ),
        S,
        V[:3],
        **G,
    ),
    case("conjugate_gradients", lambda a, b: jax.scipy.sparse.linalg.cg(a, b, maxiter=5)[0], S, V[:3], tol=1e-3),
]
