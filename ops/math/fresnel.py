"""Dawson's and Fresnel's integrals.

Rational approximations of S. L. Moshier's Cephes Mathematical Library, as in TensorFlow's kernels; coefficients have
the highest power first. `jax.scipy.special.dawsn` is the same approximation, but jax 0.9 does not have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.registry import op

from .bessel import ratio

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
    """Return a Fresnel integral.

    Args:
      near: its value for ``x ** 2 < 2.5625``.
      far: its value beyond, from the auxiliary functions f and g and the cosine and sine of ``pi x ** 2 / 2``.
      integrand: cosine or sine.
    """

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
