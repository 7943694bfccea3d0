"""Quantized matrix products fused with bias, ReLU and (de)quantization.

They are in graphs quantized for oneDNN. TensorFlow 2.21 treats every input as MIN_FIRST except in
QuantizedMatMulWithBiasAndDequantize. Where the range does not begin at 0, its correction for this is too large by far;
results here follow the op's definition.

TF: core/kernels/mkl/mkl_qmatmul_op.cc.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Pattern
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .onednn_conv import check_operands, output_and_range
from .tf1_requantize import scalar
from .tf1_requantize_per_channel import max_abs

__all__: list[str] = []

_F32 = np.float32
_INT32, _UINT8 = np.dtype(np.int32), np.dtype(np.uint8)


def _product(
    a: Any,
    b: Any,
    bias: Any,
    ends: Sequence[Any],
    out_type: Any,
    *,
    mode: str,
    transposed: tuple[bool, bool],
    relu: bool = False,
    frozen: tuple[Any, Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Multiply, add the bias, and convert to the output dtype.

    Returns the result and its range.
    """
    if mode not in ("MIN_FIRST", "SCALED"):
        raise UnsupportedAttributeError(f"input_quant_mode {mode!r} is neither MIN_FIRST nor SCALED")
    left, right = jnp.asarray(a), jnp.asarray(b)
    check_operands(left, right)
    inner = (0 if transposed[0] else 1), (1 if transposed[1] else 0)
    if left.ndim != 2 or right.ndim != 2 or left.shape[inner[0]] != right.shape[inner[1]]:
        raise OpError(f"shapes {left.shape} and {right.shape} are not those of two matrices to multiply")
    names = ("min_a", "max_a", "min_b", "max_b")
    min_a, max_a, min_b, max_b = (scalar(name, end) for name, end in zip(names, ends, strict=True))
    dimensions = (((inner[0],), (inner[1],)), ((), ()))
    right = right.astype(_INT32)
    total = lax.dot_general(left.astype(_INT32), right, dimensions, preferred_element_type=_INT32)
    span = None
    if mode == "MIN_FIRST":
        span = jnp.asarray(max_a - min_a)
        if jnp.asarray(bias).dtype == _F32:  # the lower end of the range times the columns' sums
            correction = quotient(right.sum(inner[1]).astype(_F32) * max_abs(min_b, max_b), _F32(127))
            bias = jnp.asarray(bias) + jnp.asarray(min_a) * correction
    return output_and_range(
        total, left.dtype, (min_a, max_a), (min_b, max_b), out_type, bias=bias, relu=relu, frozen=frozen, span=span
    )


def _register(name: str, *, relu: bool = False, default: np.dtype = _INT32) -> None:
    """Register a product with a bias; 8-bit results have a range, the last two inputs."""
    inputs = ("a", "b", "bias", "min_a", "max_a", "min_b", "max_b")
    inputs += () if default == _INT32 else ("min_freezed_output", "max_freezed_output")

    def call(*args, Toutput=default, transpose_a=False, transpose_b=False, input_quant_mode="MIN_FIRST"):
        """Multiply quantized matrices and add a bias."""
        a, b, bias, *ends = args
        frozen, transposed = tuple(ends[4:]) or None, (transpose_a, transpose_b)
        options: dict[str, Any] = {"mode": input_quant_mode, "transposed": transposed, "relu": relu, "frozen": frozen}
        return _product(a, b, bias, ends[:4], Toutput, **options)

    signature = inspect.signature(call)
    attributes = list(signature.parameters.values())[1:]
    parameters = [inspect.Parameter(i, inspect.Parameter.POSITIONAL_OR_KEYWORD) for i in inputs]
    call.__signature__ = signature.replace(parameters=[*parameters, *attributes])  # type: ignore[attr-defined]
    op(name, pattern=Pattern.CONTRACTION)(call)


_register("QuantizedMatMulWithBias")
_register("QuantizedMatMulWithBiasAndRelu", relu=True)
_register("QuantizedMatMulWithBiasAndRequantize", default=_UINT8)
_register("QuantizedMatMulWithBiasAndReluAndRequantize", relu=True, default=_UINT8)


@op("QuantizedMatMulWithBiasAndDequantize", pattern=Pattern.CONTRACTION)
def quantized_mat_mul_with_bias_and_dequantize(
    a,
    b,
    bias,
    min_a,
    max_a,
    min_b,
    max_b,
    min_freezed_output,
    max_freezed_output,
    *,
    Toutput,
    transpose_a=False,
    transpose_b=False,
    input_quant_mode="MIN_FIRST",
):
    """Multiply quantized matrices, add a bias, and return floats."""
    del min_freezed_output, max_freezed_output
    ends, transposed = (min_a, max_a, min_b, max_b), (transpose_a, transpose_b)
    return _product(a, b, bias, ends, Toutput, mode=input_quant_mode, transposed=transposed)[0]
