"""What TensorFlow's graph optimizer makes of several ops where oneDNN has one kernel for them (its default on Linux).

They are in graphs that were saved after optimization. OpDefs: tensorflow/core/ops/mkl_nn_ops.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.accumulation import in_float32
from tf2jax_lite.ops.linalg.matmul import batch_mat_mul_v2
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .activations import leaky_relu

__all__: list[str] = []


@op("_MklSwish", dear=True)
def swish(features: Any) -> Any:
    """``x * sigmoid(x)``. See the OpDef _MklSwish."""
    return jax.nn.silu(jnp.asarray(features))


@op("_MklFusedMish", dear=True)
def mish(features: Any) -> Any:
    """``x * tanh(softplus(x))``. See the OpDef _MklFusedMish."""
    return in_float32(jax.nn.mish, jnp.asarray(features))


def _normalized(x: Any, scale: Any, offset: Any, axes: Sequence[int], epsilon: float) -> Any:
    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        x = x - jnp.mean(x, axis=tuple(axes), keepdims=True)
        variance = jnp.mean(x * x, axis=tuple(axes), keepdims=True)
        return x * lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype)) * scale + offset

    return in_float32(normalized, *map(jnp.asarray, (x, scale, offset)))


@op("_MklLayerNorm")
def layer_norm(x: Any, scale: Any, offset: Any, *, epsilon: float = 0.001) -> Any:
    """Normalizes along the last axis. See the OpDef _MklLayerNorm."""
    size = x.shape[-1] if x.ndim else None
    if np.shape(scale) != (size,) or np.shape(offset) != (size,):
        raise OpError(f"scale {np.shape(scale)} and offset {np.shape(offset)} do not fit {tuple(x.shape)}")
    return _normalized(x, scale, offset, (-1,), epsilon)


@op("_MklFusedInstanceNorm")
def instance_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    reduction_axes: Sequence[int],
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Normalizes each channel of each image, channels last or first. See the OpDef _MklFusedInstanceNorm."""
    rank = x.ndim
    axes = sorted(axis % rank for axis in reduction_axes)
    first = axes == list(range(2, rank))
    if rank not in (4, 5) or not (first or axes == list(range(1, rank - 1))):
        raise UnsupportedAttributeError(f"reduction_axes {list(reduction_axes)} of {rank} dimensions")
    if list(fused_ops) not in ([], ["Relu"], ["LeakyRelu"]):
        raise UnsupportedAttributeError(f"fused_ops {list(fused_ops)}")
    shape = (x.shape[1], *(1,) * (rank - 2)) if first else (x.shape[-1],)
    gamma, beta = (jnp.reshape(v, shape) for v in (gamma, beta))
    y = _normalized(x, gamma, beta, axes, epsilon)
    if not fused_ops:
        return y
    return jax.nn.relu(y) if fused_ops[0] == "Relu" else leaky_relu(y, alpha=leakyrelu_alpha)


@op("_MklFusedBatchMatMulV2", heavy=True)
def fused_batch_mat_mul(
    x: Any,
    y: Any,
    args: list[Any],
    *,
    num_args: int,
    adj_x: bool = False,
    adj_y: bool = False,
    fused_ops: Sequence[str] = (),
    epsilon: float = 0.0001,
    leakyrelu_alpha: float = 0.2,
) -> Any:
    """Multiplies matrices, then by a number, and adds a mask. See the OpDef _MklFusedBatchMatMulV2."""
    if list(fused_ops) != ["Mul", "Add"] or len(args) != 2:
        raise UnsupportedAttributeError(
            f"fused_ops {list(fused_ops)} with {len(args)} arguments; there is Mul with Add"
        )
    return batch_mat_mul_v2(x, y, adj_x=adj_x, adj_y=adj_y) * jnp.asarray(args[0]) + jnp.asarray(args[1])
