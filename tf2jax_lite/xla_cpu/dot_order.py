"""Products of batches whose operands are taken in another order on CPU than elsewhere.

An attention's weights times its values give (batch, heads, queries, size), but (batch, queries, heads, size) is
wanted. The other order gives (batch, heads, size, queries), which is one turn away, and of one example the next product
takes it as it lies: on GPU XLA needs no copy then, as for what `jnp.einsum` makes. On CPU XLA can make one kernel of
the softmax and the product after it, in the given order only. That takes 0.4 to 0.8 of the other's time, for an
attention of 12 heads of size 64 and 128 to 256 tokens of one example or eight (two cores with AVX-512, JAX 0.10).

So `crossed` is the product in the other order. On CPU it is lowered as the given one, its result turned; XLA turns it
back with what follows. Derivatives and batches are those of the given order everywhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
from jax import lax

from tf2jax_lite.jaxprs.compat import Primitive, Zero, is_undefined_primal, register
from tf2jax_lite.jaxprs.shard_map import lower_fun, same_axes

__all__ = ["crossed", "is_crossed"]

Numbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def is_crossed(given: Sequence[Hashable], other: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Returns whether a product is better made in the other order.

    Args:
      given: how the result's dimensions lie in the given order.
      other: how they lie in the other one.
      wanted: how they have to.
    """
    plain = jax.config.jax_default_matmul_precision is None  # `crossed` knows no other
    return plain and _is_turned(other, wanted) and not _is_turned(given, wanted)


def _is_turned(labels: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Returns whether dimensions lie as wanted, but for one block that has to go past what follows it."""
    same = next((i for i, (a, b) in enumerate(zip(labels, wanted, strict=True)) if a != b), len(labels))
    rest, other = list(labels[same:]), list(wanted[same:])
    return not rest or any(rest[i:] + rest[:i] == other for i in range(1, len(rest)))


def crossed(x: Any, y: Any, numbers: Numbers, dtype: Any) -> Any:
    """Returns ``lax.dot_general(y, x)``, for what is given as a product of x and y.

    Args:
      x: the left operand.
      y: the right one.
      numbers: which of their dimensions are summed and which are batches, x's before y's, as ``lax.dot_general`` takes
        them.
      dtype: the result's.

    Returns:
      The batches, then what is left of y's dimensions, then of x's.
    """
    (x_summed, y_summed), (x_batch, y_batch) = numbers
    turned = ((y_summed, x_summed), (y_batch, x_batch))
    y, x = same_axes(y, x)
    return _crossed.bind(
        y, x, dimension_numbers=turned, precision=None, preferred_element_type=dtype, out_sharding=None
    )


def _given(y: Any, x: Any, *, dimension_numbers: Numbers, **params: Any) -> Any:
    """The product in the given order, its result as `crossed` lays it out."""
    (y_summed, x_summed), (y_batch, x_batch) = dimension_numbers
    numbers = ((x_summed, y_summed), (x_batch, y_batch))
    result = lax.dot_general_p.bind(x, y, dimension_numbers=numbers, **params)
    batch, left = len(x_batch), len(x.shape) - len(x_batch) - len(x_summed)
    order = [*range(batch), *range(batch + left, result.ndim), *range(batch, batch + left)]
    return lax.transpose(result, order)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    (y, x), (y_dot, x_dot) = primals, tangents
    result = _crossed.bind(y, x, **params)
    terms = [] if isinstance(y_dot, Zero) else [_given(y_dot, x, **params)]
    terms += [] if isinstance(x_dot, Zero) else [_given(y, x_dot, **params)]
    return result, lax.add(*terms) if len(terms) == 2 else terms[0]


def _transposed(cotangent: Any, *args: Any, **params: Any) -> list[Any]:
    (unknown,) = (i for i, a in enumerate(args) if is_undefined_primal(a))
    if isinstance(cotangent, Zero):
        return [None, None]

    def fn(value: Any) -> Any:
        return _given(*(value if i == unknown else a for i, a in enumerate(args)), **params)

    aval = args[unknown].aval
    (found,) = jax.linear_transpose(fn, jax.ShapeDtypeStruct(aval.shape, aval.dtype))(cotangent)
    return [found if i == unknown else None for i in range(2)]


def _batched(args: Sequence[Any], dims: Sequence[Any], **params: Any) -> tuple[Any, int]:
    return jax.vmap(lambda y, x: _given(y, x, **params), in_axes=tuple(dims))(*args), 0


_crossed = Primitive("dot_general")  # its name and parameters are those of what it is on all platforms but one
register(
    _crossed,
    impl=lambda y, x, **params: lax.dot_general_p.bind(y, x, **params),
    abstract=lax.dot_general_p,
    jvp=_jvp,
    transpose=_transposed,
    batch=_batched,
    lowering=lower_fun(lax.dot_general_p.bind, multiple_results=False),
    cpu_lowering=lower_fun(_given, multiple_results=False),
)
