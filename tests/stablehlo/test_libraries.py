"""Linear algebra and random numbers of all releases and platforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tf2jax_lite as tf2jax

from .harness import case, check, same

R = np.random.RandomState(2)
A = R.randn(4, 4).astype(np.float32)
T = R.randn(5, 3).astype(np.float32)
S = (A @ A.T + 4 * np.eye(4)).astype(np.float32)
B = np.stack([S, S + np.eye(4, dtype=np.float32)])
KEY = np.uint32([1, 2])
# Kernels become one call, though the checks that were written around them stay.
G = {"grad": True, "second": False, "vmap": True, "size": None, "tol": 1e-4}

LINALG = [
    case("cholesky", jnp.linalg.cholesky, S, **G),
    case("cholesky_upper", lambda x: jax.scipy.linalg.cholesky(x), S, grad=True, second=False, size=None, tol=1e-4),
    case("qr", lambda x: abs(jnp.linalg.qr(x)[1]), A, grad=True, second=False, size=None, tol=1e-3),
    case("qr_tall", jnp.linalg.qr, T, vmap=True, size=None, tol=1e-4),
    case("qr_wide", jnp.linalg.qr, T.T, size=None, tol=1e-4),
    case("qr_complete", lambda x: jnp.linalg.qr(x, mode="complete"), T, size=None, tol=1e-4),
    case("qr_r", lambda x: jnp.linalg.qr(x, mode="r"), T, size=None, tol=1e-4),
    case("qr_raw", lambda x: jnp.linalg.qr(x, mode="raw"), T, size=None, tol=1e-4),
    case("eigh", jnp.linalg.eigh, S, size=None, tol=1e-4),
    case("eigh_gradient", lambda x: jnp.linalg.eigh(x)[0], S, **G),
    case("svd", lambda x: jnp.linalg.svd(x, full_matrices=False), T, size=None, tol=1e-4),
    case("singular_values", lambda x: jnp.linalg.svd(x, compute_uv=False), T, **G),
    case("eig", jnp.linalg.eig, A, size=None, tol=1e-3),
    case("lu", lax.linalg.lu, A, size=None),
    case("solve", jnp.linalg.solve, S, A, **G),
    case("inverse", jnp.linalg.inv, S, **G),
    case("determinant", jnp.linalg.slogdet, S, size=None, grad=True, second=False, tol=1e-4),
    case("triangular", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), S, A, **G),
    case("batched", lambda x: (jnp.linalg.cholesky(x), jnp.linalg.inv(x)), B, size=None, tol=1e-4),
    case("schur", lax.linalg.schur, A, size=None, tol=1e-4),
    case("hessenberg", lax.linalg.hessenberg, A, size=None, tol=1e-4),
    case("tridiagonal", lax.linalg.tridiagonal, S, size=None, tol=1e-4),
    case("tridiagonal_solve", lax.linalg.tridiagonal_solve, S[0] * [0, 1, 1, 1], S[1] + 9, S[2] * [1, 1, 1, 0], A),
    case("expm", lambda x: jax.scipy.linalg.expm(x / 9), A, size=None, tol=1e-4),
    case("complex_cholesky", jnp.linalg.cholesky, (S + 0j).astype(np.complex64), size=None, tol=1e-4),
]


def typed(draw, impl="threefry2x32"):
    return lambda data: draw(jax.random.wrap_key_data(data, impl=impl))


RANDOM = [
    case("uniform", typed(lambda k: jax.random.uniform(k, (3,))), KEY, size=None),
    case("normal", typed(lambda k: jax.random.normal(k, (3,))), KEY, size=None),
    case("split", typed(lambda k: jax.random.key_data(jax.random.split(k, 3))), KEY, size=None),
    case("fold_in", typed(lambda k: jax.random.bits(jax.random.fold_in(k, 3), (2,))), KEY, size=None, vmap=True),
    case("permutation", typed(lambda k: jax.random.permutation(k, 7)), KEY, size=None),
    case("categorical", typed(lambda k: jax.random.categorical(k, jnp.ones(4), shape=(5,))), KEY, size=None),
    case("randint", typed(lambda k: jax.random.randint(k, (5,), 0, 9)), KEY, size=None),
    case("rbg", typed(lambda k: jax.random.uniform(k, (3,)), "rbg"), np.uint32([1, 2, 3, 4])),
    case(
        "rbg_split",
        typed(lambda k: jax.random.bits(jax.random.split(k)[1], (3,)), "rbg"),
        np.uint32([1, 2, 3, 4]),
        size=None,
    ),
]


@pytest.mark.default_cases("tridiagonal_solve")
@pytest.mark.parametrize("case", LINALG + RANDOM, ids=str)
def test_case(case):
    check(case)


@pytest.mark.full
def test_eigenvectors_solve_their_equation():
    fn = jax.export.export(jax.jit(jnp.linalg.eig))(jax.ShapeDtypeStruct((4, 4), np.float32))
    found, vectors = tf2jax.from_stablehlo(fn.mlir_module_serialized)(A)
    same(A @ vectors, vectors * found, 1e-3)


# jax's test data for backward compatibility of modules.
OLD = [
    "annotate_data_placement",
    "cpu_cholesky_lapack_potrf",
    "cpu_lu_lapack_getrf",
    "cpu_qr_lapack_geqrf",
    "cpu_svd_lapack_gesdd",
    "cuda_cholesky_solver_potrf",
    "cuda_lu_cusolver_getrf",
    "cuda_qr_cusolver_geqrf",
    "cuda_svd_cusolver_gesvd",
    "cuda_threefry2x32",
    "cuda_tridiagonal_solve",
    "rocm_lu_rocsolver_getrf",
    "stablehlo_dynamic_approx_top_k",
    "stablehlo_dynamic_rng_bit_generator",
    "stablehlo_dynamic_top_k",
    "tpu_ApproxTopK",
    "tpu_Lu",
    "tpu_Qr",
]


def _modules(data):
    if isinstance(data, dict):
        if "mlir_module_serialized" in data:
            yield data
        else:
            for value in data.values():
                yield from _modules(value)


@pytest.mark.default_cases(
    "annotate_data_placement",
    "stablehlo_dynamic_rng_bit_generator",
    "tpu_Lu",
    "cpu_qr_lapack_geqrf",
    "cuda_svd_cusolver_gesvd",
)
@pytest.mark.parametrize("name", OLD)
def test_old_modules(name):
    package = "jax._src.internal_test_util.export_back_compat_test_data"
    file = pytest.importorskip(f"{package}.{name}", reason="not part of this jax")
    found = [m for key, value in vars(file).items() if key.startswith("data") for m in _modules(value)]
    assert found
    with jax.enable_x64(True):
        for module in found[:2]:
            fn = tf2jax.from_stablehlo(module["mlir_module_serialized"])
            got = jax.tree.leaves(fn(*jax.tree.leaves(module["inputs"])))
            want = jax.tree.leaves(module["expected_outputs"])
            assert len(got) == len(want)
            for g, w in zip(got, want, strict=True):
                assert np.shape(g) == np.shape(w)
                # Singular vectors and the like are free in their signs.
                np.testing.assert_allclose(abs(np.asarray(g)), abs(np.asarray(w)), rtol=1e-3, atol=1e-3)


def test_random_numbers_of_symbolic_sizes():
    """Functions of such a module take the sizes before their own arguments."""

    def draw(key, x):
        key = jax.random.fold_in(jax.random.wrap_key_data(key), 3)
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0)

    key, x = np.uint32([1, 2]), np.ones(6, np.float32)
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b"), np.float32)
    exported = jax.export.export(jax.jit(draw))(key, spec)
    read = tf2jax.from_stablehlo(exported.mlir_module_serialized)
    np.testing.assert_array_equal(read(key, x), draw(key, x))
