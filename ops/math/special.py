"""Bessel, incomplete gamma and beta functions, zeta, Spence, Dawson, Fresnel.

JAX computes most values. Where it differs from TensorFlow's kernels on CPU (parameters that are 0, negative or
infinite, where a limit has more than one value) results are TensorFlow's; tests/ops/math/test_special.py compares.
Bessel functions J, Y and K, and Dawson's and Fresnel's integrals are the approximations of S. L. Moshier's Cephes
Mathematical Library, as in TensorFlow's kernels; coefficients have the highest power first.
`jax.scipy.special.dawsn` is the same approximation, but jax 0.9 does not have it.

Derivatives of Bessel functions are expressed by the functions themselves. So they have derivatives of any order, and no
gradient is NaN by a branch that is not selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from tf2jax_lite.ops.common.derivatives import random_gamma_grad
from tf2jax_lite.ops.common.precision import in_float32
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern

from . import _bessel_coefficients as tables


def _register(name: str, summary: str, fn: Callable[..., Any], inputs: int = 1) -> None:
    def unary(x):
        return fn(jnp.asarray(x))

    def binary(a, x):
        shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(x))
        return fn(jnp.broadcast_to(a, shape), jnp.broadcast_to(x, shape))

    call = unary if inputs == 1 else binary
    call.__doc__ = f"{summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, pattern=Pattern.TRANSCENDENTAL)(call)


def _const(value: float, like: Any) -> Any:
    return jnp.asarray(value, like.dtype)


# --- Of one argument


@jax.custom_jvp
def _spence(x: Any) -> Any:
    return special.spence(x)


def _spence_derivative(x: Any) -> Any:
    one = lax.eq(x, jnp.ones((), x.dtype))
    quotient = jnp.log(x) / (1 - jnp.where(one, jnp.zeros((), x.dtype), x))
    return jnp.where(one, -jnp.ones((), x.dtype), quotient)


_spence.defjvps(lambda t, y, x: t * _spence_derivative(x))


@jax.custom_jvp
def _expint(x: Any) -> Any:
    # NaN below 0, as in TensorFlow; JAX's loop does not end between -0.5 and 0 in float32.
    out = jnp.where(x < 0, np.nan, special.expi(jnp.where(x < 0, jnp.ones_like(x), x)))
    return jnp.where(x == 0, -np.inf, out)


_expint.defjvps(lambda t, y, x: t * jnp.exp(x) / x)


@jax.custom_jvp
def _i0(x: Any) -> Any:
    return special.i0(x)


# JAX differentiates exp(|x|), and takes 1 for the derivative of |x| at 0; the derivative of I0 is 0 there.
_i0.defjvps(lambda t, y, x: t * special.i1(x))


@jax.custom_jvp
def _i1e(x: Any) -> Any:
    return special.i1e(x)


def _i1e_derivative(x: Any, y: Any) -> Any:
    zero = x == 0
    out = special.i0e(x) - y * (lax.sign(x) + 1 / jnp.where(zero, jnp.ones_like(x), x))
    return jnp.where(zero, _const(0.5, x), out)


_i1e.defjvps(lambda t, y, x: t * _i1e_derivative(x, y))


@jax.custom_jvp
def _ndtri(x: Any) -> Any:
    return special.ndtri(x)


# Infinite at 0 and 1, and NaN for NaN, where JAX's derivative is 0 and 1/2.
_ndtri.defjvps(lambda t, y, x: t * (_const(math.sqrt(2 * math.pi), x) * lax.exp(y * y / 2)))

_register("BesselI0", "Return the modified Bessel function I of order zero", lambda x: in_float32(_i0, x))
_register("BesselI0e", "Return Bessel I of order zero, times exp(-|x|)", lambda x: in_float32(special.i0e, x))
_register("BesselI1", "Return the modified Bessel function I of order one", lambda x: in_float32(special.i1, x))
_register("BesselI1e", "Return Bessel I of order one, times exp(-|x|)", lambda x: in_float32(_i1e, x))
_register("Ndtri", "Return the quantile of the standard normal distribution", _ndtri)
_register("Spence", "Return Spence's dilogarithm", _spence)
_register("Expint", "Return the exponential integral", _expint)


# --- Of two or three arguments


@jax.custom_jvp
def _zeta(x: Any, q: Any) -> Any:
    """Return the Hurwitz zeta function, with a derivative only with respect to q."""
    inf = np.array(np.inf, x.dtype)
    out = jnp.where((q == inf) & (x > 1), 0, lax.zeta(x, q))
    out = jnp.where(x == inf, jnp.where(q > 1, 0, jnp.where(q == 1, 1, jnp.where(q < 1, inf, out))), out)
    return jnp.where(x < 1, np.nan, out)


@_zeta.defjvp
def _zeta_jvp(primals: Any, tangents: Any) -> Any:
    x, q = primals
    return _zeta(x, q), -x * _zeta(x + 1, q) * tangents[1]


def _polygamma(n: Any, x: Any) -> Any:
    inf = np.array(np.inf, x.dtype)
    out = lax.polygamma(lax.stop_gradient(n), x)  # no gradient of n in TensorFlow
    out = jnp.where((x == inf) & (n >= 1) & (n == jnp.floor(n)), 0, out)
    return jnp.where((n == inf) & ~jnp.isnan(x), jnp.where(x <= 1, inf, np.nan), out)


def _flat(a: Any, x: Any) -> Any:
    """Return where incomplete gamma functions are constant; JAX's jvp is NaN there."""
    return ((a == np.inf) & (x > 0)) | ((x == np.inf) & (a > 0)) | ((x == 0) & ~(a > 0))


def _unless_flat(fn: Callable[[Any, Any], Any], a: Any, x: Any) -> Any:
    """Return ``fn(a, x)``, and some constant where that is flat."""
    flat, one = _flat(a, x), np.ones((), a.dtype)
    return fn(jnp.where(flat, one, a), jnp.where(flat, one, x))


def _igamma(a: Any, x: Any) -> Any:
    out = jnp.where(a <= 0, np.nan, _unless_flat(lax.igamma, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 1, out)
    out = jnp.where((a == np.inf) & (x > 0), 0, out)
    return jnp.where((x == 0) & ~(a > 0), 0, out)


def _igammac(a: Any, x: Any) -> Any:
    out = jnp.where((a <= 0) | jnp.isnan(a), np.nan, _unless_flat(lax.igammac, a, x))
    out = jnp.where((x == np.inf) & (a > 0), 0, out)
    return jnp.where((a == np.inf) & (x >= 0) & (x < np.inf), 1, out)


def _igamma_grad_a(a: Any, x: Any) -> Any:
    return jnp.where(_flat(a, x), np.zeros((), a.dtype), _unless_flat(lax.igamma_grad_a, a, x))


_register("Igamma", "Return the lower regularized incomplete gamma function", _igamma, 2)
_register("Igammac", "Return the upper regularized incomplete gamma function", _igammac, 2)
_register("IgammaGradA", "Return the derivative of Igamma with respect to a", _igamma_grad_a, 2)
_register("RandomGammaGrad", "Return the derivative of gamma samples with respect to alpha", random_gamma_grad, 2)
_register("Zeta", "Return the Hurwitz zeta function", _zeta, 2)
_register("Polygamma", "Return the polygamma function of order a (the digamma function for 0)", _polygamma, 2)


@jax.custom_jvp
def _betainc(a: Any, b: Any, x: Any) -> Any:
    undefined = (a <= 0) | (b <= 0) | ((jnp.isinf(a) | jnp.isinf(b)) & (x > 0) & (x < 1))
    out = jnp.where((x == 0) | (x == 1), x, lax.betainc(a, b, x))
    return jnp.where(undefined, np.nan, out)


@_betainc.defjvp
def _betainc_jvp(primals: Any, tangents: Any) -> Any:
    # As in TensorFlow, which is finite at both ends where a parameter is 1; JAX's is NaN.
    a, b, x = primals
    log_beta = lax.lgamma(a) + lax.lgamma(b) - lax.lgamma(a + b)
    density = jnp.exp(special.xlog1py(b - 1, -x) + special.xlogy(a - 1, x) - log_beta)
    return _betainc(a, b, x), tangents[2] * density


@op("Betainc")
def betainc(a, b, x):
    """Return the regularized incomplete beta function.

    As in TensorFlow, only the derivative with respect to ``x`` is defined.
    """
    shape = jnp.broadcast_shapes(jnp.shape(a), jnp.shape(b), jnp.shape(x))
    return _betainc(*(jnp.broadcast_to(jnp.asarray(v), shape) for v in (a, b, x)))


# Squares of the first two zeros of J0 and of J1.
_ZEROS_0 = (5.783185962946785, 30.471262343662087)
_ZEROS_1 = (14.681970642123893, 49.2184563216946)
_ASYMPTOTIC = (
    ((tables.P0_TOP, tables.P0_BOTTOM), (tables.Q0_TOP, tables.Q0_BOTTOM)),
    ((tables.P1_TOP, tables.P1_BOTTOM), (tables.Q1_TOP, tables.Q1_BOTTOM)),
)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a polynomial, highest power first."""
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + _const(c, x)
    return total


def ratio(x: Any, top: Sequence[float], bottom: Sequence[float]) -> Any:
    """Evaluate a ratio of two polynomials, highest powers first."""
    return polynomial(x, top) / polynomial(x, bottom)


def _chebyshev(x: Any, coefficients: Sequence[float]) -> Any:
    """Evaluate a Chebyshev series in x / 2, highest term first, half the constant."""
    last, before, oldest = jnp.full_like(x, coefficients[0]), jnp.zeros_like(x), jnp.zeros_like(x)
    for c in coefficients[1:]:
        last, before, oldest = x * last - before + _const(c, x), last, before
    return (last - oldest) * _const(0.5, x)


def _modulus_and_phase(x: Any, order: int) -> tuple[Any, Any, Any]:
    """Return p, q and the angle in p cos(angle) - q sin(angle), for x >= 5."""
    s = _const(25.0, x) / (x * x)
    scale = _const(math.sqrt(2 / math.pi), x) * lax.rsqrt(x)
    p, q = (ratio(s, *coefficients) for coefficients in _ASYMPTOTIC[order])
    q = q * (_const(5.0, x) / x)
    return p * scale, q * scale, x - _const(math.pi * (2 * order + 1) / 4, x)


def _asymptotic_j(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.cos(angle) - q * lax.sin(angle)


def _asymptotic_y(x: Any, order: int) -> Any:
    p, q, angle = _modulus_and_phase(x, order)
    return p * lax.sin(angle) + q * lax.cos(angle)


def _piecewise(x: Any, edge: float, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """Return near(x) up to the edge, far(x) beyond; arguments are clamped to each."""
    at = _const(edge, x)
    return jnp.where(x <= at, near(lax.min(x, at)), far(lax.max(x, at)))


def _near_j(x: Any, zeros: tuple[float, float], top: Sequence[float], bottom: Sequence[float]) -> Any:
    z = x * x
    return (z - _const(zeros[0], x)) * (z - _const(zeros[1], x)) * ratio(z, top, bottom)


@jax.custom_jvp
def _j0(x: Any) -> Any:
    def near(y: Any) -> Any:
        series = _const(1.0, y) - y * y * _const(0.25, y)
        return jnp.where(y < _const(1e-5, y), series, _near_j(y, _ZEROS_0, tables.J0_TOP, tables.J0_BOTTOM))

    return _piecewise(lax.abs(x), 5.0, near, lambda y: _asymptotic_j(y, 0))


_j0.defjvps(lambda t, y, x: t * -_j1(x))


@jax.custom_jvp
def _j1(x: Any) -> Any:
    def near(y: Any) -> Any:
        return y * _near_j(y, _ZEROS_1, tables.J1_TOP, tables.J1_BOTTOM)

    size = _piecewise(lax.abs(x), 5.0, near, lambda y: _asymptotic_j(y, 1))
    return jnp.where(x < 0, -size, size)


def _j1_derivative(x: Any, y: Any) -> Any:
    zero = x == 0
    return jnp.where(zero, _const(0.5, x), _j0(x) - y / jnp.where(zero, _const(1.0, x), x))


_j1.defjvps(lambda t, y, x: t * _j1_derivative(x, y))


def _for_positive(x: Any, at_zero: float, fn: Callable[[Any], Any]) -> Any:
    """Return fn(x) for positive x, ``at_zero`` for others, and NaN for NaN."""
    outside = x <= 0
    return jnp.where(outside, _const(at_zero, x), fn(jnp.where(outside, _const(1.0, x), x)))


@jax.custom_jvp
def _y0(x: Any) -> Any:
    def near(y: Any) -> Any:
        return ratio(y * y, tables.Y0_TOP, tables.Y0_BOTTOM) + _const(2 / math.pi, y) * lax.log(y) * _j0(y)

    return _for_positive(x, -math.inf, lambda v: _piecewise(v, 5.0, near, lambda y: _asymptotic_y(y, 0)))


_y0.defjvps(lambda t, y, x: t * -_y1(x))


@jax.custom_jvp
def _y1(x: Any) -> Any:
    def near(y: Any) -> Any:
        logarithmic = _j1(y) * lax.log(y) - 1 / y
        return y * ratio(y * y, tables.Y1_TOP, tables.Y1_BOTTOM) + _const(2 / math.pi, y) * logarithmic

    out = _for_positive(x, -math.inf, lambda v: _piecewise(v, 5.0, near, lambda y: _asymptotic_y(y, 1)))
    if x.dtype == np.float64:
        return out
    return jnp.where(x == 0, _const(math.nan, x), out)  # as TensorFlow's float32 kernel


_y1.defjvps(lambda t, y, x: t * (_y0(x) - y / x))


def _k_near(y: Any, order: int) -> Any:
    log = lax.log(y * _const(0.5, y))
    if order == 0:
        return _chebyshev(y * y - 2, tables.K0_NEAR) - log * special.i0(y)
    return _chebyshev(y * y - 2, tables.K1_NEAR) / y + log * special.i1(y)


def _k_far(y: Any, order: int) -> Any:
    return _chebyshev(_const(8.0, y) / y - 2, (tables.K0_FAR, tables.K1_FAR)[order]) * lax.rsqrt(y)


def _k(x: Any, order: int) -> Any:
    return _for_positive(
        x, math.inf, lambda v: _piecewise(v, 2.0, lambda y: _k_near(y, order), lambda y: lax.exp(-y) * _k_far(y, order))
    )


def _ke(x: Any, order: int) -> Any:
    return _for_positive(
        x, math.inf, lambda v: _piecewise(v, 2.0, lambda y: lax.exp(y) * _k_near(y, order), lambda y: _k_far(y, order))
    )


_k0 = jax.custom_jvp(lambda x: _k(x, 0))
_k1 = jax.custom_jvp(lambda x: _k(x, 1))
_k0e = jax.custom_jvp(lambda x: _ke(x, 0))
_k1e = jax.custom_jvp(lambda x: _ke(x, 1))
_k0.defjvps(lambda t, y, x: t * -_k1(x))
_k1.defjvps(lambda t, y, x: t * (-_k0(x) - y / x))
_k0e.defjvps(lambda t, y, x: t * (y - _k1e(x)))
_k1e.defjvps(lambda t, y, x: t * (y * (1 - 1 / x) - _k0e(x)))


def _register_bessel(name: str, summary: str, fn: Callable[[Any], Any]) -> None:
    def call(x):
        return in_float32(fn, jnp.asarray(x))

    call.__doc__ = f"Return the {summary}, elementwise. TF: tf.raw_ops.{name}."
    op(name, pattern=Pattern.TRANSCENDENTAL)(call)


for _order, _name in enumerate(("zero", "one")):
    _register_bessel(f"BesselJ{_order}", f"Bessel function J of order {_name}", (_j0, _j1)[_order])
    _register_bessel(f"BesselY{_order}", f"Bessel function Y of order {_name}", (_y0, _y1)[_order])
    _register_bessel(f"BesselK{_order}", f"modified Bessel function K of order {_name}", (_k0, _k1)[_order])
    _register_bessel(f"BesselK{_order}e", f"Bessel function K of order {_name}, times exp(x)", (_k0e, _k1e)[_order])


# fmt: off
# Dawson's integral, in x^2 up to 3.25, then beside 1 / (2 x) in 1 / x^2 up to 6.25 and beyond.
_DAWSON = (
    (
        (1.13681498971755972054E-11, 8.49262267667473811108E-10, 1.94434204175553054283E-8, 9.53151741254484363489E-7,
         3.07828309874913200438E-6, 3.52513368520288738649E-4, -8.50149846724410912031E-4, 4.22618223005546594270E-2,
         -9.17480371773452345351E-2, 1.0),
        (2.40372073066762605484E-11, 1.48864681368493396752E-9, 5.21265281010541664570E-8, 1.27258478273186970203E-6,
         2.32490249820789513991E-5, 3.25524741826057911661E-4, 3.48805814657162590916E-3, 2.79448531198828973716E-2,
         1.58874241960120565368E-1, 5.74918629489320327824E-1, 1.0),
    ),
    (
        (5.08955156417900903354E-1, -2.44754418142697847934E-1, 9.41512335303534411857E-2, -2.18711255142039025206E-2,
         3.66207612329569181322E-3, -4.23209114460388756528E-4, 3.59641304793896631888E-5, -2.14640351719968974225E-6,
         9.10010780076391431042E-8, -2.40274520828250956942E-9, 3.59233385440928410398E-11),
        (1.0, -6.31839869873368190192E-1, 2.36706788228248691528E-1, -5.31806367003223277662E-2,
         8.48041718586295374409E-3, -9.47996768486665330168E-4, 7.81025592944552338085E-5, -4.55875153252442634831E-6,
         1.89100358111421846170E-7, -4.91324691331920606875E-9, 7.18466403235734541950E-11),
    ),
    (
        (-5.90592860534773254987E-1, 6.29235242724368800674E-1, -1.72858975380388136411E-1, 1.64837047825189632310E-2,
         -4.86827613020462700845E-4),
        (1.0, -2.69820057197544900361E0, 1.73270799045947845857E0, -3.93708582281939493482E-1,
         3.44278924041233391079E-2, -9.73655226040941223894E-4),
    ),
)
# Fresnel's integrals for x^2 < 2.5625, in x^4.
_COS = (
    (-4.98843114573573548651E-8, 9.50428062829859605134E-6, -6.45191435683965050962E-4, 1.88843319396703850064E-2,
     -2.05525900955013891793E-1, 1.0),
    (3.99982968972495980367E-12, 9.15439215774657478799E-10, 1.25001862479598821474E-7, 1.22262789024179030997E-5,
     8.68029542941784300606E-4, 4.12142090722199792936E-2, 1.0),
)
_SIN = (
    (-2.99181919401019853726E3, 7.08840045257738576863E5, -6.29741486205862506537E7, 2.54890880573376359104E9,
     -4.42979518059697779103E10, 3.18016297876567817986E11),
    (1.0, 2.81376268889994315696E2, 4.55847810806532581675E4, 5.17343888770096400730E6, 4.19320245898111231129E8,
     2.24411795645340920940E10, 6.07366389490084639049E11),
)
# Beyond, the auxiliary functions f and g in 1 / (pi x^2)^2.
_F = (
    (4.21543555043677546506E-1, 1.43407919780758885261E-1, 1.15220955073585758835E-2, 3.45017939782574027900E-4,
     4.63613749287867322088E-6, 3.05568983790257605827E-8, 1.02304514164907233465E-10, 1.72010743268161828879E-13,
     1.34283276233062758925E-16, 3.76329711269987889006E-20),
    (1.0, 7.51586398353378947175E-1, 1.16888925859191382142E-1, 6.44051526508858611005E-3, 1.55934409164153020873E-4,
     1.84627567348930545870E-6, 1.12699224763999035261E-8, 3.60140029589371370404E-11, 5.88754533621578410010E-14,
     4.52001434074129701496E-17, 1.25443237090011264384E-20),
)
_G = (
    (5.04442073643383265887E-1, 1.97102833525523411709E-1, 1.87648584092575249293E-2, 6.84079380915393090172E-4,
     1.15138826111884280931E-5, 9.82852443688422223854E-8, 4.45344415861750144738E-10, 1.08268041139020870318E-12,
     1.37555460633261799868E-15, 8.36354435630677421531E-19, 1.86958710162783235106E-22),
    (1.0, 1.47495759925128324529E0, 3.37748989120019970451E-1, 2.53603741420338795122E-2, 8.14679107184306179049E-4,
     1.27545075667729118702E-5, 1.04314589657571990585E-7, 4.60680728146520428211E-10, 1.10273215066240270757E-12,
     1.38796531259578871258E-15, 8.39158816283118707363E-19, 1.86958710162783236342E-22),
)
# fmt: on


@jax.custom_jvp
def _dawson(x: Any) -> Any:
    size = lax.abs(x)
    z = lax.min(size, jnp.full_like(x, 3.25))
    out = z * ratio(z * z, *_DAWSON[0])
    for start, coefficients in zip((3.25, 6.25), _DAWSON[1:], strict=True):
        inverse = 1 / lax.max(size, jnp.full_like(x, start))
        square = inverse * inverse
        far = (inverse + square * inverse * ratio(square, *coefficients)) * jnp.asarray(0.5, x.dtype)
        out = jnp.where(size < start, out, far)
    return jnp.where(x < 0, -out, out)


_dawson.defjvps(lambda t, y, x: t * (1 - 2 * x * y))


def _fresnel(
    near: Callable[[Any], Any], far: Callable[..., Any], integrand: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Return a Fresnel integral by its values for ``x ** 2`` below and above 2.5625."""

    @jax.custom_jvp
    def call(x: Any) -> Any:
        size = lax.abs(x)
        small = x * x < 2.5625
        # Beyond 36974 the integral is 1/2; the squares in use stay finite.
        z = jnp.where(small, jnp.full_like(x, 2.0), lax.min(size, jnp.full_like(x, 36974.0)))
        square = z * z
        t = 1 / (math.pi * square)
        u = t * t
        f, g = 1 - u * ratio(u, *_F), t * ratio(u, *_G)
        angle = jnp.asarray(math.pi / 2, x.dtype) * square
        beyond = 0.5 + far(f, g, lax.cos(angle), lax.sin(angle)) / (math.pi * z)
        out = jnp.where(small, near(jnp.where(small, size, jnp.zeros_like(x))), beyond)
        out = jnp.where(size > 36974.0, jnp.full_like(x, 0.5), out)
        return jnp.where(x < 0, -out, out)

    call.defjvps(lambda t, y, x: t * integrand(jnp.asarray(math.pi / 2, x.dtype) * (x * x)))
    return call


def _near_cos(x: Any) -> Any:
    return x * ratio((x * x) * (x * x), *_COS)


def _near_sin(x: Any) -> Any:
    return x * x * x * ratio((x * x) * (x * x), *_SIN)


_fresnel_cos = _fresnel(_near_cos, lambda f, g, c, s: f * s - g * c, lax.cos)
_fresnel_sin = _fresnel(_near_sin, lambda f, g, c, s: -(f * c + g * s), lax.sin)


@op("Dawsn")
def dawsn(x):
    """Return Dawson's integral."""
    return in_float32(_dawson, jnp.asarray(x))


@op("FresnelCos")
def fresnel_cos(x):
    """Return Fresnel's cosine integral."""
    return in_float32(_fresnel_cos, jnp.asarray(x))


@op("FresnelSin")
def fresnel_sin(x):
    """Return Fresnel's sine integral."""
    return in_float32(_fresnel_sin, jnp.asarray(x))
