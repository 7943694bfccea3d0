"""Operations of jax.lax and jax.numpy, there and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from .harness import WRITTEN_OUT, case, check

R = np.random.RandomState(0)
V = R.randn(5).astype(np.float32)
P = np.abs(V) + np.float32(0.1)
M = R.randn(5, 3).astype(np.float32)
I2 = np.array([1, -2], np.int32)
C = (V + 1j * V[::-1]).astype(np.complex64)
D = {"grad": True, "vmap": True}


def f32(*shape):
    return R.randn(*shape).astype(np.float32)


ELEMENTWISE = [
    case(
        "unary",
        lambda x: [
            f(x)
            for f in (lax.sin, lax.cos, lax.tan, lax.tanh, lax.sinh, lax.cosh, lax.asinh, lax.atan, lax.exp, lax.exp2)
        ],
        V,
        **D,
    ),
    case(
        "unary_positive",
        lambda x: [
            f(x)
            for f in (lax.log, lax.log1p, lax.sqrt, lax.rsqrt, lax.cbrt, lax.expm1, lax.logistic, lax.square, lax.abs)
        ],
        P,
        **D,
    ),
    case(
        "inverse",
        lambda x: (lax.asin(x / 4), lax.acos(x / 4), lax.atanh(x / 4), lax.acosh(x + 2)),
        P,
        size=WRITTEN_OUT,
        **D,
    ),
    case("steps", lambda x: (lax.floor(x), lax.ceil(x), lax.round(x), lax.sign(x), lax.is_finite(x)), V, vmap=True),
    case("round_even", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.float32([0.5, 1.5, -2.5])),
    case("erf", lambda x: (lax.erf(x), lax.erfc(x)), V, grad=True, size=None),
    case("gammas", lambda x: (lax.lgamma(x), lax.digamma(x)), P, size=None, tol=1e-4),
    case("erf_inv", lambda x: lax.erf_inv(x / 4), P, size=None),
    case("bessel", lambda x: (lax.bessel_i0e(x), lax.bessel_i1e(x)), P, size=None),
    case("igamma", lambda x: lax.igamma(x, x + 1), P, size=None),
    case("nextafter", lambda x: lax.nextafter(x, x + 1), P, size=None),
    case("precision", lambda x: lax.reduce_precision(x, 5, 4), V),
    case(
        "binary",
        lambda x, y: (x + y, x - y, x * y, x / y, lax.atan2(x, y), lax.pow(abs(x), y), lax.max(x, y), lax.min(x, y)),
        V,
        V[::-1].copy() + 1,
        **D,
    ),
    case("rem", lambda x, y: (lax.rem(x, y), jnp.mod(x, y), x // y), V, V[::-1].copy() + 1),
    case("compare", lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y), V, V[::-1].copy(), vmap=True),
    case(
        "integers",
        lambda x: (jnp.mod(x, 3), x // 2, jnp.clip(x, 0, 3), x << 1, x >> 1, ~x, x & 3, x | 4, x ^ 5, -x, abs(x), x**2),
        np.array([-3, 0, 5], np.int32),
        vmap=True,
    ),
    case("bits", lambda x: (lax.clz(x), lax.population_count(x), x >> np.uint32(1)), np.uint32([0, 1, 77])),
    case("scalars", lambda x: 2 * x + 1, V, **D),
    case("broadcast", lambda x, y: (x + y, x * y[:1], jnp.broadcast_to(y, (2, 5, 3))), M, M[0], **D),
    case("broadcast_both", lambda x, y: (x[:, None] + y[None], jnp.exp(x[:, None] * jnp.ones((5, 3)))), V, M[0], **D),
    case("where", lambda x: (jnp.where(x > 0, x, 0.0), jnp.where(x > 0, 1, 2)), M, vmap=True),
    case("clamp", lambda x: (lax.clamp(-0.5, x, 0.5), lax.clamp(x - 1, x, x + 1)), M, vmap=True),
    case(
        "convert",
        lambda x: (x.astype(np.int8), x.astype(np.uint8), x.astype(np.float16), x.astype(bool), x.astype(jnp.bfloat16)),
        np.float32([1, 2, 3]),
    ),
    case("small_ints", lambda x: (x.astype(jnp.int4) + jnp.int4(1)).astype(np.int32), np.int32([1, 2, -5])),
    case("float8", lambda x: x.astype(jnp.float8_e4m3fn).astype(np.float32), V),
    case("bitcast", lambda x: (lax.bitcast_convert_type(x, np.int32), lax.bitcast_convert_type(x, np.uint8)), V),
    case("bfloat16", lambda x: (x @ x.T, x.sum(), jnp.sin(x) + jnp.bfloat16(1)), jnp.asarray(M, jnp.bfloat16)),
    case("complex", lambda x: (lax.conj(x), x.real, x.imag, abs(x), x * 2, x.sum(), jnp.exp(x)), C, size=None),
    case("complex_constant", lambda x: (x + (1 + 2j), x * np.complex64([1, 2j, 3, 4, 5])), C),
    case("make_complex", lambda x: lax.complex(x, x + 1) * 2, V),
    case("relu", jax.nn.relu, np.float32([-1, 0, 2]), **D),
    case("activations", lambda x: (jax.nn.gelu(x), jax.nn.silu(x), jax.nn.softmax(x), jax.nn.log_softmax(x)), M, **D),
    case("softplus", lambda x: (jax.nn.softplus(x), jax.nn.logsumexp(x)), M, **D),
    case("layer_norm", lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-3), M, **D),
]

SHAPES = [
    case("reshape", lambda x: (x.reshape(3, 5), x.T, x[None], x.ravel(), jnp.squeeze(x[:, :1])), M, **D),
    case("pad", lambda x: (jnp.pad(x, 1), lax.pad(x, 0.0, [(1, -1, 1), (0, 0, 2)])), M, **D),
    case("join", lambda x: (jnp.concatenate([x, x], 1), jnp.stack([x, x]), jnp.tile(x, (2, 2))), M, size=None, **D),
    case("cut", lambda x: (x[1:3], x[::2, 1:], x[::-1], jnp.split(x, 5), jnp.roll(x, 1, 0)), M, size=None, **D),
    case(
        "iota", lambda x: (jnp.arange(5) * x, jnp.eye(5) @ x, jnp.tril(jnp.ones((5, 5))) @ x, jnp.linspace(0, 1, 5)), V
    ),
    case("constant", lambda x: x + np.arange(5, dtype=np.float32), V, **D),
    case("constants", lambda x: (jnp.zeros(3), jnp.ones((2, 2), np.int32), x * 0), V),
    case("barrier", lambda x: lax.optimization_barrier((x, x + 1)), M),
    case("empty", lambda x: (x.sum(), x + 1, jnp.concatenate([x, jnp.ones((2, 3))])), np.zeros((0, 3), np.float32)),
]

INDEXING = [
    case("gather", lambda x, i: x[i], M, I2, **D),
    case("gather_two", lambda x, i: x[i, i], M, I2, grad=True),
    case("gather_clip", lambda x, i: x.at[i].get(mode="clip"), M, I2, grad=True),
    case("gather_fill", lambda x, i: x.at[i].get(mode="fill"), M, np.int32([1, 9]), size=None),
    case("take", lambda x, i: jnp.take(x, i, 1), M, I2, size=None, grad=True),
    case("take_along", lambda x, i: jnp.take_along_axis(x, i, 0), M, np.int32([[0, 1, 2], [4, 3, 2]]), size=None, **D),
    case("one_hot", lambda i: jax.nn.one_hot(i, 4), np.int32([1, 3])),
    case("boolean", lambda x: jnp.nonzero(x, size=4), np.int32([3, 0, 3, 2])),
    case("scatter_add", lambda x, i: x.at[i].add(2.0 * x[:2]), M, I2, **D),
    case("scatter_mul", lambda x, i: x.at[i].multiply(2.0), M, I2),
    case("scatter_set", lambda x, i: x.at[i].set(x[:2] * 3), M, I2, **D),
    case("scatter_bounds", lambda x, i: (x.at[i].max(0.0), x.at[i].min(0.0)), M, I2),
    case("scatter_apply", lambda x, i: x.at[i].apply(jnp.sin), M, I2),
    case("scatter_outside", lambda x, i: x.at[i].add(1.0, mode="drop"), M, np.int32([1, 9])),
    case("segment_sum", lambda x: jax.ops.segment_sum(x, jnp.array([0, 0, 1, 1, 2]), 3), M, **D),
    case("bincount", lambda x: jnp.bincount(x, length=4), np.int32([3, 0, 3, 2])),
    case("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 2)), M, np.int32(4), **D),
    case(
        "dynamic_update",
        lambda x, i: lax.dynamic_update_slice(x, x[:1, :2] * 2, (i, i)),
        M,
        np.int32(2),
        **D,
    ),
]

REDUCTIONS = [
    case("sums", lambda x: (x.sum(), x.sum(0), x.mean(1), jnp.prod(x, 0), x.max(), x.min(1)), M, vmap=True),
    case("sum_gradients", lambda x: (x.sum(0), x.max(1), jnp.prod(x, 1)), M, grad=True),
    case("logic", lambda x: ((x > 0).any(0), (x > 0).all(), (x > 9).all(1)), M, vmap=True),
    case("bit_logic", lambda x: (lax.reduce_or(x, (0,)), lax.reduce_and(x, (0,)), lax.reduce_xor(x, (0,))), I2),
    case("start", lambda x: (lax.reduce(x, np.float32(2), lax.add, (0,)), jnp.max(x, initial=0.3)), M, grad=True),
    case("general", lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * b + a + b, (0,)), M, vmap=True),
    case(
        "two_at_once",
        lambda x: lax.reduce((x, 2 * x), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
        M,
    ),
    case("argmax", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x.astype(int))), M, vmap=True),
    case("argmax_nan", lambda x: (jnp.argmax(x), jnp.argmin(x)), np.float32([1, np.nan, 3, np.nan])),
    case("cumulative", lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cumsum(x, 1, reverse=True)), M, **D),
    case("cumulative_bounds", lambda x: (lax.cummax(x, 1, reverse=True), lax.cummin(x, 0)), M, **D),
    case("cumlogsumexp", lambda x: (lax.cumlogsumexp(x, 0), lax.cumlogsumexp(x, 1, reverse=True)), M, **D),
    case("max_pool", lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "SAME"), M, **D),
    case("sum_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), "SAME"), M, **D),
    case("window_general", lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"), M),
    case(
        "max_pool_gradient",
        jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 2), (2, 2), "VALID").sum()),
        M,
    ),
    case("associative_scan", lambda x: lax.associative_scan(jnp.add, x), V, **D),
    case("statistics", lambda x: (jnp.median(x), jnp.quantile(x, 0.3), x.std()), V),
]

SORTING = [
    case("sort", lambda x: (jnp.sort(x, 0), jnp.sort(x, 1), -jnp.sort(-x, 0)), M, **D),
    case("sort_nan", jnp.sort, np.float32([1, np.nan, -np.inf, -0.0, 0.0, -np.nan])),
    case("argsort", lambda x: (jnp.argsort(x), jnp.argsort(x, descending=True)), V, vmap=True),
    case("two_keys", lambda x, y: lax.sort((x, y, x + y), num_keys=2), np.int32([1, 1, 0]), np.float32([2, 1, 0])),
    case("one_of_two_keys", lambda x, y: lax.sort((x, y), num_keys=1), np.float32([1, 1, 0]), np.float32([2, 1, 0])),
    case("sort_complex", jnp.sort, C),
    case("top_k", lambda x: lax.top_k(x, 2), M, **D),
    case("approx_max", lambda x: lax.approx_max_k(x, 2), M),
    case("searchsorted", lambda x: jnp.searchsorted(jnp.sort(x), 0.3), V),
    case("unique", lambda x: jnp.unique(x, size=4), np.int32([3, 1, 3, 2])),
]

PRODUCTS = [
    case("matmul", lambda x, y: x @ y, M, M.T, **D),
    case(
        "batched", lambda x, y: jnp.einsum("bij,bjk->bik", x, y, precision="highest"), f32(2, 3, 4), f32(2, 4, 5), **D
    ),
    case("preferred", lambda x: lax.dot(x, x, preferred_element_type=np.float32), jnp.asarray(V, jnp.bfloat16)),
    case("algorithm", lambda x, y: lax.dot(x, y, precision=lax.DotAlgorithmPreset.F32_F32_F32), M, M.T),
    case("integers", lambda x: x @ x.T, np.int32([[1, 2], [3, 4]])),
    case(
        "convolution",
        lambda x, k: lax.conv_general_dilated(
            x,
            k,
            (1, 2),
            [(1, 1), (0, 2)],
            lhs_dilation=(2, 1),
            rhs_dilation=(1, 2),
            feature_group_count=2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        f32(1, 6, 6, 4),
        f32(3, 3, 2, 4),
        grad=True,
    ),
    case("conv_transpose", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), f32(1, 4, 4, 2), f32(3, 3, 2, 4)),
    case("convolve", jnp.convolve, V, V[:3]),
    case("ragged", lax.ragged_dot, f32(6, 3), f32(2, 3, 4), np.int32([2, 4]), size=None),
    case("fft", lambda x: (jnp.fft.rfft(x), jnp.fft.ifft2(x), jnp.fft.irfft(jnp.fft.rfft(x))), M, vmap=True),
]


@pytest.mark.default_cases("erf_inv", "precision", "bitcast")
@pytest.mark.parametrize("case", ELEMENTWISE + SHAPES, ids=str)
def test_elementwise_and_shapes(case):
    check(case)


@pytest.mark.default_cases("gather_fill", "one_hot", "scatter_apply")
@pytest.mark.parametrize("case", INDEXING, ids=str)
def test_indexing(case):
    check(case)


@pytest.mark.default_cases("max_pool_gradient", "statistics", "sort_complex", "approx_max")
@pytest.mark.parametrize("case", REDUCTIONS + SORTING, ids=str)
def test_reductions_and_sorting(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("case", PRODUCTS, ids=str)
def test_products(case):
    check(case)
