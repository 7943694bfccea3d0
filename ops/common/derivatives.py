"""Elementwise functions with TensorFlow's derivatives where JAX's differ.

TensorFlow's kernels SqrtGrad, RsqrtGrad and InvGrad return 0 where the incoming gradient is 0. So
``tf.where(x > 0, tf.sqrt(x), 0.0)`` has finite gradients in TensorFlow, where the product of 0 and the infinite
derivative at 0 would be NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, register
from tf2jax_lite.jaxprs.shard_map import lower_fun, same_axes
from tf2jax_lite.jaxprs.tracing_cache import inlined

from .precision import in_float32


def _product_or_zero(x: Any, y: Any) -> Any:
    """Return ``x * y``, 0 where ``x`` is 0, of arrays of one shape and dtype."""
    return lax.select(x == 0, lax.full_like(x, 0), lax.mul(x, y))


def _batched(args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
    return _product.bind(*moved), 0


# A primitive, which JAX takes to be linear in each argument: a comparison could not be transposed.
_product = Primitive("mul_no_nan")
register(
    _product,
    impl=_product_or_zero,
    abstract=lambda x, y: x,
    bilinear=(lambda ct, x, y: _product.bind(ct, y), lambda ct, x, y: _product.bind(x, ct)),
    batch=_batched,
    lowering=lower_fun(_product_or_zero, multiple_results=False),
)


@jax.custom_jvp
def _with_derivatives(x: Any, y: Any) -> Any:
    return _product_or_zero(x, y)


@_with_derivatives.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x, y), (x_dot, y_dot) = primals, tangents
    return _with_derivatives(x, y), _product.bind(x_dot, y) + _product.bind(x, y_dot)


_inlined = inlined(_with_derivatives)


def zero_safe_product(x: Any, y: Any) -> Any:
    """Return ``x * y``, 0 where ``x`` is 0 even if ``y`` is infinite or NaN.

    It is tf.raw_ops.MulNoNan with the operands exchanged. As in TensorFlow, the derivative with respect to ``x`` is
    ``y`` also where ``x`` is 0.

    Args:
      y: an array of the same dtype; the shapes broadcast.
    """
    shape = jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y))
    return _inlined(*same_axes(jnp.broadcast_to(x, shape), jnp.broadcast_to(y, shape)))


def with_zero_safe_jvp(fn: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Return ``fn`` with a JVP that is 0 for a zero tangent.

    It is 0 even where the derivative is infinite or NaN.

    Args:
      fn: an elementwise function of one array.
      derivative: its derivative from the argument and the result; elementwise and differentiable.
    """
    wrapped = jax.custom_jvp(fn)

    @wrapped.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        value = wrapped(x)
        return value, _product.bind(t, jnp.broadcast_to(derivative(x, value), value.shape))

    return inlined(wrapped)


@jax.custom_jvp
def _half_logistic(x: Any) -> Any:
    return in_float32(lax.logistic, x)


# The residual of the gradient is the float16 result.
_half_logistic.defjvps(lambda t, y, x: t * (y * (1 - y)))


def logistic(x: Any) -> Any:
    """Return ``1 / (1 + exp(-x))``."""
    # float16 is computed in float32, as ``exp(-x)`` is infinite in float16 below -11.
    return _half_logistic(x) if x.dtype == jnp.float16 else lax.logistic(x)


@jax.custom_jvp
def random_gamma_grad(alpha: Any, sample: Any) -> Any:
    """Return the derivative of gamma samples with respect to ``alpha``.

    The quantile is fixed. `jax.lax.random_gamma_grad` consists of loops, which have no reverse mode; this has one.

    Args:
      alpha: concentrations, float32 or float64.
      sample: samples of those distributions, of the same shape and dtype.
    """
    grad: Any = lax.random_gamma_grad  # its type stub asks for a keyword that it does not take
    return grad(alpha, sample)


@random_gamma_grad.defjvp
def _random_gamma_grad_jvp(primals: Any, tangents: Any) -> Any:
    alpha, sample = primals
    one, zero = jnp.ones_like(alpha), jnp.zeros_like(alpha)
    d_alpha = jax.jvp(lax.random_gamma_grad, primals, (one, zero))[1]
    d_sample = jax.jvp(lax.random_gamma_grad, primals, (zero, one))[1]
    return random_gamma_grad(alpha, sample), d_alpha * tangents[0] + d_sample * tangents[1]
