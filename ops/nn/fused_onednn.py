"""Ops that Grappler's remapper fuses for oneDNN, TensorFlow's default on Linux.

They are in graphs saved after optimization. The OpDefs are in core/ops/mkl_nn_ops.cc, the kernels in core/kernels/mkl.
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
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .activations import leaky_relu

__all__: list[str] = []


@op("_MklSwish", pattern=Pattern.TRANSCENDENTAL)
def swish(features):
    """Compute x * sigmoid(x). TF: OpDef _MklSwish (core/ops/mkl_nn_ops.cc)."""
    return jax.nn.silu(jnp.asarray(features))


@op("_MklFusedMish", pattern=Pattern.TRANSCENDENTAL)
def mish(features):
    """Compute x * tanh(softplus(x)). TF: OpDef _MklFusedMish (core/ops/mkl_nn_ops.cc)."""
    return in_float32(jax.nn.mish, jnp.asarray(features))


def _normalized(x: Any, scale: Any, offset: Any, axes: Sequence[int], epsilon: float) -> Any:
    def normalized(x: Any, scale: Any, offset: Any) -> Any:
        x = x - jnp.mean(x, axis=tuple(axes), keepdims=True)
        variance = jnp.mean(x * x, axis=tuple(axes), keepdims=True)
        return x * lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype)) * scale + offset

    return in_float32(normalized, *map(jnp.asarray, (x, scale, offset)))


@op("_MklLayerNorm")
def layer_norm(x, scale, offset, *, epsilon=0.001):
    """Normalize along the last axis.

    TF: OpDef _MklLayerNorm (core/ops/mkl_nn_ops.cc).
    """
    size = x.shape[-1] if x.ndim else None
    if np.shape(scale) != (size,) or np.shape(offset) != (size,):
        raise OpError(f"scale {np.shape(scale)} and offset {np.shape(offset)} do not fit {tuple(x.shape)}")
    return _normalized(x, scale, offset, (-1,), epsilon)


@op("_MklFusedInstanceNorm")
def instance_norm(x, gamma, beta, *, reduction_axes, fused_ops=(), epsilon=0.0001, leakyrelu_alpha=0.2):
    """Normalize each channel of each image, channels last or first.

    TF: OpDef _MklFusedInstanceNorm (core/ops/mkl_nn_ops.cc).
    """
    rank = x.ndim
    axes = sorted(axis % rank for axis in reduction_axes)
    channels_first = axes == list(range(2, rank))
    if rank not in (4, 5) or not (channels_first or axes == list(range(1, rank - 1))):
        raise UnsupportedAttributeError(f"reduction_axes {list(reduction_axes)} of {rank} dimensions")
    if list(fused_ops) not in ([], ["Relu"], ["LeakyRelu"]):
        raise UnsupportedAttributeError(f"fused_ops {list(fused_ops)}")
    shape = (x.shape[1], *(1,) * (rank - 2)) if channels_first else (x.shape[-1],)
    gamma, beta = (jnp.reshape(v, shape) for v in (gamma, beta))
    y = _normalized(x, gamma, beta, axes, epsilon)
    if not fused_ops:
        return y
    return jax.nn.relu(y) if fused_ops[0] == "Relu" else leaky_relu(y, alpha=leakyrelu_alpha)


@op("_MklFusedBatchMatMulV2", pattern=Pattern.CONTRACTION)
def fused_batch_mat_mul(
    x, y, args, *, num_args, adj_x=False, adj_y=False, fused_ops=(), epsilon=0.0001, leakyrelu_alpha=0.2
):
    """Multiply batches of matrices, multiply by a scalar and add a mask.

    TF: OpDef _MklFusedBatchMatMulV2 (core/ops/mkl_nn_ops.cc).
    """
    if list(fused_ops) != ["Mul", "Add"] or len(args) != 2:
        raise UnsupportedAttributeError(
            f"fused_ops {list(fused_ops)} with {len(args)} arguments; only Mul and Add are supported"
        )
    return batch_mat_mul_v2(x, y, adj_x=adj_x, adj_y=adj_y) * jnp.asarray(args[0]) + jnp.asarray(args[1])
