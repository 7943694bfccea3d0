"""Xla* ops of linear algebra: convolutions, dot products, einsum, eigh and SVD.

TF: compiler/tf2xla/kernels/xla_dot_op.cc.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.integer_convolution import integer_convolution
from tf2jax_lite.ops.linalg.decompositions import finite_eigh, finite_svd
from tf2jax_lite.ops.registry import REQUIRED, op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.values.static import canonical, dims

from .protos import conv_numbers, dot_numbers, precision

# ---- products ----


_OPERANDS = (
    "lhs rhs window_strides:Static padding:Static lhs_dilation:Static rhs_dilation:Static feature_group_count:Static"
)
_NUMBERS = {"dimension_numbers": REQUIRED, "precision_config": REQUIRED}
_RESULT = {"preferred_element_type": REQUIRED, "batch_group_count": 1}


@op("XlaConv", inputs=_OPERANDS, attributes=_NUMBERS, pattern=Pattern.CONTRACTION)
@op("XlaConvV2", inputs=_OPERANDS, attributes=_NUMBERS | _RESULT, pattern=Pattern.CONTRACTION)
def xla_conv(
    *,
    lhs,
    rhs,
    window_strides,
    padding,
    lhs_dilation,
    rhs_dilation,
    feature_group_count,
    dimension_numbers,
    precision_config,
    preferred_element_type=None,
    batch_group_count=1,
):
    """Convolve; padding, [spatial rank, 2], may be negative.

    TF: compiler/tf2xla/kernels/xla_conv_op.cc.
    """
    options: dict[str, Any] = {"precision": precision(precision_config), "batch_group_count": batch_group_count}
    if preferred_element_type is not None:
        lhs, rhs = _promote(lhs, rhs, preferred_element_type)
        options["preferred_element_type"] = canonical(preferred_element_type)
    lhs, spec, lhs_dilation = jnp.asarray(lhs), conv_numbers(dimension_numbers), dims(lhs_dilation)
    pads = [(int(a), int(b)) for a, b in np.asarray(padding).reshape(-1, 2)]
    if any(p < 0 for pair in pads for p in pair):
        # XLA's CPU backend reads out of bounds for negative padding; so truncate first.
        config = [(0, 0, 0)] * lhs.ndim
        for axis, (low, high), b in zip(spec.lhs_spec[2:], pads, lhs_dilation, strict=True):
            config[axis] = (min(low, 0), min(high, 0), b - 1)
        lhs = lax.pad(lhs, jnp.zeros((), lhs.dtype), config)
        pads = [(max(low, 0), max(high, 0)) for low, high in pads]
        lhs_dilation = (1,) * len(lhs_dilation)
    convolve = lax.conv_general_dilated
    if jnp.issubdtype(lhs.dtype, jnp.integer):
        convolve, options = integer_convolution, {k: v for k, v in options.items() if k != "precision"}
    return convolve(
        lhs,
        jnp.asarray(rhs),
        window_strides=dims(window_strides),
        padding=pads,
        lhs_dilation=lhs_dilation,
        rhs_dilation=dims(rhs_dilation),
        dimension_numbers=spec,
        feature_group_count=int(np.asarray(feature_group_count).reshape(())),
        **options,
    )


def _promote(lhs: Any, rhs: Any, dtype: Any) -> tuple[Any, Any]:
    """Convert operands of different dtypes to the dtype of the result."""
    if lhs.dtype == rhs.dtype:
        return lhs, rhs
    return lhs.astype(canonical(dtype)), rhs.astype(canonical(dtype))


@op("XlaDot", pattern=Pattern.CONTRACTION)
def xla_dot(lhs, rhs, *, dimension_numbers, precision_config):
    """Multiply and sum over chosen dimensions."""
    return lax.dot_general(
        jnp.asarray(lhs), jnp.asarray(rhs), dot_numbers(dimension_numbers), precision=precision(precision_config)
    )


@op("XlaDotV2", pattern=Pattern.CONTRACTION)
def xla_dot_v2(lhs, rhs, *, dimension_numbers, precision_config, preferred_element_type):
    """Multiply and sum over chosen dimensions, with a result dtype."""
    lhs, rhs = _promote(lhs, rhs, preferred_element_type)
    return lax.dot_general(
        jnp.asarray(lhs),
        jnp.asarray(rhs),
        dot_numbers(dimension_numbers),
        precision=precision(precision_config),
        preferred_element_type=canonical(preferred_element_type),
    )


@op("XlaEinsum", pattern=Pattern.CONTRACTION)
def xla_einsum(a, b, *, equation):
    """Einstein sum of two tensors.

    TF: compiler/tf2xla/kernels/einsum_op.cc.
    """
    return jnp.einsum(equation, a, b)


# ---- decompositions ----


@op("XlaSelfAdjointEig")
def xla_self_adjoint_eig(a, *, lower, max_iter, epsilon):
    """Return eigenvalues, increasing, and eigenvectors.

    JAX determines the number of iterations and the accuracy.
    """
    del max_iter, epsilon
    a = jnp.asarray(a)
    triangle = jnp.tril(a) if lower else jnp.triu(a)
    strict = jnp.tril(a, -1) if lower else jnp.triu(a, 1)
    full = triangle + jnp.conj(jnp.swapaxes(strict, -1, -2))
    values, vectors = finite_eigh(full)
    return values.astype(a.dtype), vectors


@op("XlaSvd")
def xla_svd(a, *, max_iter, epsilon, precision_config):
    """Return singular values, and square matrices u and v.

    JAX determines the number of iterations and the accuracy.
    """
    del max_iter, epsilon, precision_config
    a = jnp.asarray(a)
    s, u, v = finite_svd(a, True)
    return s.astype(a.dtype), u, v
