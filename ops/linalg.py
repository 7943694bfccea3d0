"""Matrix products."""

from typing import Any

import jax.numpy as jnp
from jax import lax

from .registry import op
from .values import canonical


@op("MatMul")
def mat_mul(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    grad_a: bool = False,
    grad_b: bool = False,
) -> Any:
    """Multiplies two matrices. See tf.raw_ops.MatMul; ``grad_a`` and ``grad_b`` are hints."""
    a, b = jnp.asarray(a), jnp.asarray(b)
    contract = (((0 if transpose_a else 1,), (1 if transpose_b else 0,)), ((), ()))
    return lax.dot_general(a, b, contract, preferred_element_type=a.dtype)


def _batch(x: Any, y: Any, adj_x: bool, adj_y: bool, dtype: Any) -> Any:
    x, y = jnp.asarray(x), jnp.asarray(y)
    if adj_x:
        x = jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x
    if adj_y:
        y = jnp.conj(y) if jnp.issubdtype(y.dtype, jnp.complexfloating) else y
    batch = jnp.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = jnp.broadcast_to(x, (*batch, *x.shape[-2:])), jnp.broadcast_to(y, (*batch, *y.shape[-2:]))
    n = len(batch)
    contract = (((n if adj_x else n + 1,), (n + 1 if adj_y else n,)), (tuple(range(n)), tuple(range(n))))
    return lax.dot_general(x, y, contract, preferred_element_type=dtype)


@op("BatchMatMul", "BatchMatMulV2")
def batch_mat_mul_v2(
    x: Any, y: Any, *, adj_x: bool = False, adj_y: bool = False, grad_x: bool = False, grad_y: bool = False
) -> Any:
    """Multiplies matrices in the last two dimensions, broadcasting the others. See tf.raw_ops.BatchMatMulV2."""
    return _batch(x, y, adj_x, adj_y, x.dtype)


@op("BatchMatMulV3")
def batch_mat_mul_v3(
    x: Any, y: Any, *, Tout: Any, adj_x: bool = False, adj_y: bool = False, grad_x: bool = False, grad_y: bool = False
) -> Any:
    """As BatchMatMulV2, with results of another type. See tf.raw_ops.BatchMatMulV3."""
    return _batch(x, y, adj_x, adj_y, canonical(Tout))


@op("Einsum")
def einsum(inputs: list[Any], *, equation: str) -> Any:
    """Sums products over named dimensions. See tf.raw_ops.Einsum."""
    arrays = [jnp.asarray(v) for v in inputs]
    return jnp.einsum(equation, *arrays, preferred_element_type=arrays[0].dtype)
