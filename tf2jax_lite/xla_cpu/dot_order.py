"""Batched products whose operands are in another order on CPU than elsewhere.

An attention's weights times its values give (batch, heads, queries, size), but (batch, queries, heads, size) is wanted.
The swapped order gives (batch, heads, size, queries), which is one rotation of dimensions away, and of one example the
next product reads it in its present layout: on GPU XLA needs no copy then, as for the result of `jnp.einsum`. On CPU
XLA can make one kernel of the softmax and the product after it, in the given order only. That takes 0.4 to 0.8 of the
other's time, for an attention of 12 heads of size 64 and 128 to 256 tokens of one example or eight (two cores with
AVX-512, JAX 0.10).

So `swapped_dot` is the product with swapped operands. On CPU it is lowered in the given order, its result transposed;
XLA fuses the transpose with the next operation. Derivatives and batches are those of the given order everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, Zero, is_undefined_primal, register
from tf2jax_lite.jaxprs.shard_map import lower_fun, same_axes

from .selection import Rule, is_enabled

Numbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def is_better_swapped(given: Sequence[Hashable], swapped: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Return whether a product needs a copy, but none with swapped operands.

    Args:
      given: labels of the result's dimensions in the given order.
      swapped: those with swapped operands.
      wanted: those of the caller's result.
    """
    default = jax.config.jax_default_matmul_precision is None  # `swapped_dot` has no other
    return default and _is_rotated(swapped, wanted) and not _is_rotated(given, wanted)


def _is_rotated(labels: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Return whether dimensions are as wanted, except for one later block."""
    same = next((i for i, (a, b) in enumerate(zip(labels, wanted, strict=True)) if a != b), len(labels))
    rest, other = list(labels[same:]), list(wanted[same:])
    return not rest or any(rest[i:] + rest[:i] == other for i in range(1, len(rest)))


def swapped_dot(x: Any, y: Any, numbers: Numbers, dtype: Any) -> Any:
    """Return ``lax.dot_general(y, x)``, for a product of x and y in the given order.

    Args:
      x: the left operand.
      y: the right one.
      numbers: the dimensions that are summed and the batches, x's before y's, as ``lax.dot_general`` takes them.
      dtype: the result's.

    Returns:
      The batches, then the remaining dimensions of y, then of x.
    """
    (x_summed, y_summed), (x_batch, y_batch) = numbers
    swapped = ((y_summed, x_summed), (y_batch, x_batch))
    y, x = same_axes(y, x)
    params = {"precision": None, "preferred_element_type": dtype, "out_sharding": None}
    primitive = _swapped_dot_p if is_enabled("dot_order") else lax.dot_general_p
    return primitive.bind(y, x, dimension_numbers=swapped, **params)


def _given(y: Any, x: Any, *, dimension_numbers: Numbers, **params: Any) -> Any:
    """Return the product in the given order, with the dimensions of `swapped_dot`."""
    (y_summed, x_summed), (y_batch, x_batch) = dimension_numbers
    numbers = ((x_summed, y_summed), (x_batch, y_batch))
    result = lax.dot_general_p.bind(x, y, dimension_numbers=numbers, **params)
    batch, left = len(x_batch), len(x.shape) - len(x_batch) - len(x_summed)
    order = [*range(batch), *range(batch + left, result.ndim), *range(batch, batch + left)]
    return lax.transpose(result, order)


RULES = (
    Rule(
        "dot_order",
        applies=lambda y, x, **params: True,
        lower=_given,
        reason="XLA fuses a softmax into the product after it in the given order only.",
    ),
)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    (y, x), (y_dot, x_dot) = primals, tangents
    result = _swapped_dot_p.bind(y, x, **params)
    terms = [] if isinstance(y_dot, Zero) else [_given(y_dot, x, **params)]
    terms += [] if isinstance(x_dot, Zero) else [_given(y, x_dot, **params)]
    return result, lax.add(*terms) if len(terms) == 2 else terms[0]


def _transpose(cotangent: Any, *args: Any, **params: Any) -> list[Any]:
    (unknown,) = (i for i, a in enumerate(args) if is_undefined_primal(a))
    if isinstance(cotangent, Zero):
        return [None, None]

    def fn(value: Any) -> Any:
        return _given(*(value if i == unknown else a for i, a in enumerate(args)), **params)

    aval = args[unknown].aval
    (found,) = jax.linear_transpose(fn, jax.ShapeDtypeStruct(aval.shape, aval.dtype))(cotangent)
    return [found if i == unknown else None for i in range(2)]


def _batch(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, int]:
    return jax.vmap(lambda y, x: _given(y, x, **params), in_axes=tuple(dims))(*args), 0


_swapped_dot_p = Primitive("dot_general")  # on all platforms but CPU it is lowered as that one
register(
    _swapped_dot_p,
    impl=lambda y, x, **params: lax.dot_general_p.bind(y, x, **params),
    abstract=lax.dot_general_p,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    lowering=lower_fun(lax.dot_general_p.bind, multiple_results=False),
    cpu_lowering=lower_fun(_given, multiple_results=False),
)
