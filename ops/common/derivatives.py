"""Derivatives that are nothing where nothing comes in, though the slope is infinite or no number.

TensorFlow's kernels SqrtGrad, RsqrtGrad and InvGrad give 0 where the incoming gradient is 0. ``tf.where(x > 0,
tf.sqrt(x), 0.0)`` therefore has gradients in TensorFlow; 0 times the slope of the square root at 0 is no number.
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

__all__ = ["linear_product", "with_slope"]


def _product_or_zero(x: Any, y: Any) -> Any:
    """Returns ``x * y``, and 0 where x is 0, whatever y is; arrays of one shape and dtype. See tf.raw_ops.MulNoNan."""
    return lax.select(x == 0, lax.full_like(x, 0), lax.mul(x, y))


def _batched(args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, int]:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    moved = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
    return _product.bind(*moved), 0


# A product that is linear in each of its arguments as JAX sees it: a comparison could not be transposed.
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


def linear_product(x: Any, y: Any) -> Any:
    """Returns ``x * y``, and 0 where x is 0, whatever y is. See tf.raw_ops.MulNoNan, whose first argument is y.

    As in TensorFlow the derivative by x is y also where x is 0.

    Args:
      x: what decides whether there is a product at all.
      y: of x's dtype; their shapes broadcast.
    """
    shape = jnp.broadcast_shapes(jnp.shape(x), jnp.shape(y))
    return _inlined(*same_axes(jnp.broadcast_to(x, shape), jnp.broadcast_to(y, shape)))


def with_slope(fn: Callable[[Any], Any], slope: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Returns a function of one array with the derivative ``slope(x, fn(x))``, which counts only where it is asked for.

    Args:
      fn: elementwise.
      slope: elementwise, too, and differentiable itself.
    """
    wrapped = jax.custom_jvp(fn)

    @wrapped.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        value = wrapped(x)
        return value, _product.bind(t, jnp.broadcast_to(slope(x, value), value.shape))

    return inlined(wrapped)
