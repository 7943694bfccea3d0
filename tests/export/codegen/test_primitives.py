"""Source of every primitive computes the same values and derivatives."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

import tf2jax_lite as tf2jax
from tf2jax_lite.export.codegen import functions, registry
from tf2jax_lite.jaxprs.compat import COMPOSITE, composite_jaxpr
from tf2jax_lite.loops import derivatives

from .test_source import imported, nested, written

X = np.float32([[0.3, 0.7, 0.2, 0.55], [0.1, 0.9, 0.4, 0.45], [0.8, 0.6, 0.35, 0.15]])
SQUARE = X[:, :3] + 2 * np.eye(3, dtype=np.float32)
INDICES = np.int32([[0, 1], [2, 3], [0, 1]])


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of one array, written out and read back."""

    fn: Callable[[Any], Any]
    x: np.ndarray = dataclasses.field(default_factory=lambda: X)
    grad: bool = True


def scattered(method, **options):
    return Case(lambda x: getattr(x.at[INDICES[:, 0], INDICES[:, 1]], method)(np.float32([2.0, 3.0, 4.0]), **options))


def small(x):
    """Halve an array until it is small."""
    return derivatives.while_loop(lambda x: jnp.sum(x * x) > 1, lambda x: jnp.sin(x) / 2, x)[0]


def small_derivative(x):
    return jnp.sum(jax.grad(lambda x: jnp.sum(small(x) ** 3))(x) ** 2)


CASES = {
    **{
        name: Case(getattr(lax, name))
        for name in """abs acos asin asinh atan atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv erfc exp
        exp2 expm1 lgamma log log1p logistic neg rsqrt sin sinh sqrt square tan tanh stop_gradient""".split()  # noqa: SIM905
    },
    "acosh": Case(lambda x: lax.acosh(x + 1)),
    "log2": Case(jnp.log2),
    "polynomial": Case(lambda x: jnp.polyval(np.float32([1, -2, 3]), x)),
    "power": Case(lambda x: lax.pow(x, x) + lax.integer_pow(x, 3)),
    "of two": Case(lambda x: lax.atan2(x, x + 1) + lax.max(x, 0.5) - lax.min(x, 0.3) + lax.rem(x, 0.25)),
    "of two, special": Case(
        lambda x: lax.igamma(x, x + 1) + lax.igammac(x + 1, x) + lax.zeta(np.float32(2.5), x), grad=False
    ),
    "incomplete beta": Case(lambda x: lax.betainc(np.float32(1.5), np.float32(2), x)),
    "polygamma": Case(lambda x: lax.polygamma(jnp.ones_like(x), x)),
    "infinities": Case(lambda x: jnp.where(x > 0.5, x, -jnp.inf) + jnp.where(x > 0.5, jnp.nan, x), grad=False),
    "rounded": Case(lambda x: lax.round(x * 5, lax.RoundingMethod.TO_NEAREST_EVEN) + lax.floor(x) + lax.ceil(x)),
    "rounded away": Case(lambda x: lax.round(x * 5, lax.RoundingMethod.AWAY_FROM_ZERO) + lax.sign(x)),
    "compared": Case(lambda x: [x < 0.5, x <= 0.5, x == x, x != 0.3, x > 0.2, x >= 0.2, lax.is_finite(x)], grad=False),
    "nan": Case(lambda x: jnp.isnan(x / (x - x)), grad=False),
    "in total order": Case(lambda x: [lax.le_to_p.bind(x, -x), lax.lt_to_p.bind(x, x)], grad=False),
    "bits": Case(
        lambda x: (
            *((b := lax.bitcast_convert_type(x, np.int32)) & 7, b | 1, b ^ 5, ~b, lax.clz(b), b << 2, b >> 3),
            *(lax.shift_right_logical(b, 3), lax.population_count(b), lax.nextafter(x, x + 1)),
        ),
        grad=False,
    ),
    "complex": Case(lambda x: jnp.real(z := lax.complex(x, x + 1) * 2j) + jnp.imag(z) + jnp.real(jnp.conj(z) * z)),
    "integers": Case(lambda x: [(n := (x * 20).astype(np.int32)) // 3, n % 3, lax.div(n, 4), n * n], grad=False),
    "clamped": Case(lambda x: lax.clamp(0.25, x, 0.6)),
    "reduced precision": Case(lambda x: lax.reduce_precision(x, 8, 10), grad=False),
    "shapes": Case(
        lambda x: jnp.swapaxes(x, 0, 1).reshape(2, 6)[None, :, ::2] + jnp.zeros((3, 2, 3)) + jnp.tile(x[0, 0], 3)
    ),
    "moved": Case(lambda x: jnp.concatenate([lax.rev(x, (0,)), jnp.pad(x, ((0, 1), (0, 0)))], 0)),
    "parts": Case(lambda x: [*jnp.split(x, [1, 3], axis=1), lax.squeeze(x[:1], (0,)), jnp.stack([x, x], 1)]),
    "taken": Case(lambda x: [x[INDICES[:, 0], INDICES[:, 1]], jnp.take(x, INDICES[:, 0], axis=0, mode="fill")]),
    "taken dynamically": Case(
        lambda x: lax.dynamic_update_slice(
            x, lax.dynamic_slice(x, ((x[0, 0] > 0) + 0, 1), (2, 2)), ((x[0, 0] > 0) + 0, 0)
        )
    ),
    "counted": Case(lambda x: x[:, :1] * lax.iota(np.float32, 4) + lax.broadcasted_iota(np.float32, (3, 4), 0)),
    **{f"scatter {m}": scattered(m) for m in ("set", "add", "subtract", "min", "max")},
    "scatter multiply": scattered("multiply", unique_indices=True),
    "reduced": Case(lambda x: [x.sum(0), x.max(1), x.min(1), x.prod(0), (x > 0.5).all(0), (x > 0.5).any()]),
    "reduced by exclusion": Case(
        lambda x: lax.reduce_xor(lax.bitcast_convert_type(x, np.int32), axes=(0,)), grad=False
    ),
    "positions of extremes": Case(lambda x: [jnp.argmax(x, 1), jnp.argmin(x, 0)], grad=False),
    "running": Case(lambda x: jnp.cumsum(x, 1) + jnp.cumprod(x, 0) + lax.cummax(x, 1) + lax.cummin(x, 1, reverse=True)),
    "running logarithm": Case(lambda x: lax.cumlogsumexp(x, 1)),
    "sorted": Case(lambda x: [jnp.sort(x, 1), jnp.argsort(x, 0), *lax.top_k(x, 2)]),
    "sorted, two keys": Case(lambda x: lax.sort((jnp.round(x), x), num_keys=2)),
    "about the largest": Case(lambda x: [*lax.approx_max_k(x, 2), *lax.approx_min_k(x, 2)]),
    "searched": Case(lambda x: jnp.searchsorted(jnp.sort(x[0]), x[1]), grad=False),
    "products": Case(lambda x: [x @ x.T, jnp.einsum("ij,ij->i", x, x), lax.dot(x, x.T, precision="highest")]),
    "convolution": Case(
        lambda x: lax.conv_general_dilated(
            x[None, :, :, None], X[:2, :2, None, None], (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    ),
    "windows": Case(
        lambda x: [
            lax.reduce_window(x, -np.inf, lax.max, (2, 2), (1, 2), "SAME"),
            lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "VALID"),
            lax.cumsum(x, 0),
        ]
    ),
    "windows, minimum": Case(lambda x: lax.reduce_window(x, np.inf, lax.min, (2, 2), (1, 1), "VALID"), grad=False),
    "windows by any function": Case(
        lambda x: lax.reduce_window(x, np.float32(0), lambda a, b: a + b * b, (2, 2), (1, 1), "SAME"), grad=False
    ),
    "reduced by any function": Case(
        lambda x: lax.reduce(
            (x, x + 1), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0] * b[1], a[1] * b[1]), (0,)
        ),
        grad=False,
    ),
    "solved": Case(lambda x: [jnp.linalg.solve(x, SQUARE), jnp.linalg.det(x)], SQUARE),
    "inverse": Case(jnp.linalg.inv, np.stack([SQUARE, SQUARE.T])),
    "triangular": Case(lambda x: lax.linalg.triangular_solve(x, SQUARE, left_side=True, lower=True), SQUARE),
    "tridiagonal": Case(lambda x: lax.linalg.tridiagonal_solve(x, x + 3, x, x[:, None]), SQUARE[0], grad=False),
    "factors": Case(
        lambda x: [lax.linalg.cholesky(x @ x.T), *jnp.linalg.qr(x), jnp.linalg.svd(x, compute_uv=False)], SQUARE
    ),
    "factors, LU": Case(lambda x: lax.linalg.lu(x)[0], SQUARE),
    "permutation": Case(lambda x: lax.linalg.lu_pivots_to_permutation(lax.linalg.lu(x)[1], 3), SQUARE, grad=False),
    "symmetric": Case(lambda x: jnp.linalg.eigh(x + x.T)[0], SQUARE),
    "singular vectors": Case(lambda x: [jnp.abs(v) for v in jnp.linalg.svd(x, full_matrices=False)], SQUARE),
    "eigenvalues": Case(lambda x: jnp.abs(jnp.linalg.eigvals(x)), SQUARE, grad=False),
    "eigenvectors": Case(lambda x: [jnp.abs(v) for v in lax.linalg.eig(x)], SQUARE, grad=False),
    "Hessenberg": Case(lambda x: lax.linalg.hessenberg(x), SQUARE, grad=False),
    "householder": Case(lambda x: lax.linalg.householder_product(*lax.linalg.geqrf(x)), SQUARE, grad=False)
    if hasattr(lax.linalg, "geqrf")
    else Case(lambda x: lax.linalg.householder_product(x, x[0]), SQUARE, grad=False),
    "Schur": Case(lambda x: lax.linalg.schur(x), SQUARE, grad=False),
    "Fourier": Case(lambda x: [jnp.abs(jnp.fft.fft2(x)), jnp.fft.irfft(jnp.fft.rfft(x))]),
    "loops": Case(
        lambda x: [
            lax.scan(lambda c, r: (c * r + 1, (c, r + c, c, r)), x[0], x, reverse=True),
            lax.while_loop(lambda c: c[0].sum() < 50, lambda c: (c[0] * 2, c[1] + 1), (x, 0)),
        ],
        grad=False,
    ),
    "loops under vmap": Case(
        jax.vmap(
            lambda x: lax.while_loop(lambda c: c[0].sum() < 9 + c[2] * x[0], lambda c: (c[0] * 2, *c[1:]), (x, 0, 1.0))
        ),
        grad=False,
    ),
    "padded by nothing": Case(lambda x: lax.pad(x[0, 0] * x, 0.0, [(0, 0, 0)] * 2) + lax.pad(x[0, 0], 0.0, [])),
    "derivatives of a loop": Case(
        lambda x: [jax.jvp(small, (x,), (x,))[1], jax.vjp(small, x)[1](x)[0], jax.grad(small_derivative)(x)], grad=False
    ),
    "a loop of many": Case(
        lambda x: lax.scan(lambda c, r: (tuple(v * r + i for i, v in enumerate(c)), None), (x[0],) * 9, x)[0]
    ),
    "branches": Case(
        lambda x: lax.cond(x[0, 0] > 0.2, lambda y: y * 2, jnp.sin, x) + lax.switch(1, [jnp.sin, jnp.cos], x)
    ),
    "by platform": Case(lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos, default=jnp.tan)),
    "checkpoint": Case(jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)))),
    "own derivative": Case(jax.nn.relu),
    "own derivative inside of another": Case(jax.scipy.special.expi),
    "barrier": Case(lambda x: lax.optimization_barrier((x, x + 1))),
    "random": Case(
        lambda x: (
            *(jax.random.normal(k := jax.random.fold_in(jax.random.key(3), 5), (2,)), *jax.random.uniform(k, (2, 2))),
            *(jax.random.gamma(jax.random.split(k)[0], x), jax.random.bits(k, (3,))),
        ),
        grad=False,
    ),
}


def of_case(case):
    with tf2jax.override_op("Softsign", lambda features: _flat(case.fn(features))):
        fn = tf2jax.convert(tf.function(tf.nn.softsign), tf.TensorSpec(case.x.shape, case.x.dtype))
    return fn


def _flat(results):
    """Return all results as one vector, as the op that replaces the function."""
    leaves = [jnp.ravel(leaf).astype(np.float32) for leaf in jax.tree.leaves(results)]
    return jnp.concatenate(leaves) if len(leaves) > 1 else leaves[0]


@pytest.mark.default_cases(
    "rounded away",
    "compared",
    "reduced precision",
    "scatter multiply",
    "about the largest",
    "windows, minimum",
    "windows by any function",
    "reduced by any function",
    "solved",
    "eigenvalues",
    "by platform",
    "checkpoint",
)
@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    case = CASES[name]
    fn, params = of_case(case)
    text, constants = written(fn, params)
    model = imported(text, tmp_path / "model.py").model

    def both(call, params):
        total = lambda x: (_finite(call(params, x)[0]) ** 2).sum()  # noqa: E731
        return jax.jit(lambda x: (call(params, x)[0], jax.grad(total)(x) if case.grad else ()))(case.x)

    with warnings.catch_warnings(action="error", category=UserWarning):  # dtypes that JAX truncates
        got = both(model, nested(params, constants))
    want = both(fn, params)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_slice_indices_have_one_dtype_with_64_bits(tmp_path):
    """A bare 0 would be an int64 beside an int32."""
    with jax.enable_x64(True):
        case = Case(
            lambda x: lax.dynamic_update_slice(
                x,
                lax.dynamic_slice(x, (np.int32(0), (x[0, 0] > 0).astype(np.int32)), (1, 2)),
                ((x[0, 0] > 0).astype(np.int32), np.int32(0)),
            )
        )
        fn, params = of_case(case)
        text, constants = written(fn, params)
        model = imported(text, tmp_path / "model.py").model
        np.testing.assert_array_equal(jax.jit(model)(constants, case.x)[0], fn(params, case.x)[0])


def test_singular_vectors_are_computed_once():
    text, _ = written(*of_case(CASES["singular vectors"]))
    assert text.count("lax.linalg.svd(") == 1


@pytest.mark.parametrize(
    ("axes", "expected"),
    [((1,), "features[:, None]"), ((0, 2), "(features, (0, 2))")],
)
def test_new_axes_are_none_or_tuples(axes, expected, tmp_path):
    case = Case(lambda x: lax.expand_dims(x, axes) * 2)
    fn, params = of_case(case)
    text, constants = written(fn, params)
    assert expected in text
    model = imported(text, tmp_path / "model.py").model
    np.testing.assert_array_equal(jax.jit(model)(constants, case.x)[0], fn(params, case.x)[0])


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: x.reshape(-1), "lax.collapse(features, 0)"),
        (lambda x: x[:, None, None].reshape(3, 4), "features"),
        (lambda x: lax.reshape(lax.slice(x, (0, 0), (1, 4)), (4,)), "features[0]"),
        (lambda x: x.at[INDICES[:, 0]].set(1.0), ".set("),
        (lambda x: lax.argmax(x.astype(np.int32), 1, np.int32), "jnp.argmax("),
    ],
)
def test_shapes_and_indices_read_as_numpy(fn, expected, tmp_path):
    case = Case(fn)
    fn, params = of_case(case)
    text, constants = written(fn, params)
    assert expected in text and "lax.scatter" not in text, text
    model = imported(text, tmp_path / "model.py").model
    np.testing.assert_array_equal(jax.jit(model)(nested(params, constants), case.x)[0], fn(params, case.x)[0])


def _finite(x):
    return jnp.where(jnp.isfinite(x), x, 0)


# These come only from idioms, TensorFlow's ops, data-dependent dimensions, or other releases of JAX.
OTHERWISE = frozenset(
    """call einsum expand_dims copy copy_p dim_as_value forward_only mul_no_nan mulhi materialize
    random_gamma_grad random_unwrap random_wrap reverse_only split stack tile tri unstack add_any device_put
    igamma_grad_a random_clone rng_bit_generator rng_uniform select_and_gather_add select_and_scatter_add remat
    checkpoint custom_vjp_call one_minus_square polynomial log2 eq_to symmetric_product ragged_dot
    ragged_dot_general conv_general_dilated_patches scatter-sub name sharding_constraint custom_gradient
    without_gradient philox_key philox_uniform philox_dropout mod jax_uniform jax_dropout batch_norm index
    scale_by_size first_rows philox_normal jax_normal""".split()  # noqa: SIM905
)


def _primitives(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        if eqn.primitive.name == COMPOSITE:
            yield from _primitives(composite_jaxpr(eqn).jaxpr)
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            if hasattr(value, "eqns"):
                yield from _primitives(getattr(value, "jaxpr", value))


@pytest.mark.full
def test_every_rule_has_a_case():
    seen = set()
    for case in CASES.values():
        seen |= set(_primitives(jax.make_jaxpr(case.fn)(case.x).jaxpr))
    assert set(registry._RULES) | set(functions._STRUCTURED) <= seen | OTHERWISE
