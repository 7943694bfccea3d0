"""Products of quantized matrices joined with what follows them, as in graphs quantized for oneDNN.

TensorFlow 2.21 takes every input as MIN_FIRST but in QuantizedMatMulWithBiasAndDequantize, and where its range does not
begin at 0 the correction that this needs is too large by far: there results are here what the op's definition says.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.ops.common.rounding import quotient
from tf2jax_lite.ops.registry import op
from tf2jax_lite.support.errors import OpError, UnsupportedAttributeError

from .onednn_conv import check_operands, finished
from .tf1_requantize import scalar
from .tf1_requantize_per_channel import largest

__all__: list[str] = []

_F32 = np.float32
_INT32, _UINT8 = np.dtype(np.int32), np.dtype(np.uint8)


def _product(
    a: Any,
    b: Any,
    bias: Any,
    ends: tuple[Any, Any, Any, Any],
    wanted: Any,
    *,
    mode: str,
    transposed: tuple[bool, bool],
    relu: bool = False,
    frozen: tuple[Any, Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Multiplies, adds the bias, and gives the result its type and range."""
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
        if jnp.asarray(bias).dtype == _F32:  # what the lowest number stands for, times the columns' sums
            each = quotient(right.sum(inner[1]).astype(_F32) * largest(min_b, max_b), _F32(127))
            bias = jnp.asarray(bias) + jnp.asarray(min_a) * each
    return finished(
        total, left.dtype, (min_a, max_a), (min_b, max_b), wanted, bias=bias, relu=relu, frozen=frozen, span=span
    )


def _wide(name: str, *, relu: bool = False) -> None:
    @op(name, heavy=True)
    def call(
        a: Any,
        b: Any,
        bias: Any,
        min_a: Any,
        max_a: Any,
        min_b: Any,
        max_b: Any,
        *,
        Toutput: Any = _INT32,
        transpose_a: bool = False,
        transpose_b: bool = False,
        input_quant_mode: str = "MIN_FIRST",
    ) -> tuple[Any, Any, Any]:
        ends, transposed = (min_a, max_a, min_b, max_b), (transpose_a, transpose_b)
        return _product(a, b, bias, ends, Toutput, mode=input_quant_mode, transposed=transposed, relu=relu)

    call.__doc__ = f"Multiplies matrices and adds a bias. See tf.raw_ops.{name}."


_wide("QuantizedMatMulWithBias")
_wide("QuantizedMatMulWithBiasAndRelu", relu=True)


def _narrow(name: str, *, relu: bool = False) -> None:
    @op(name, heavy=True)
    def call(
        a: Any,
        b: Any,
        bias: Any,
        min_a: Any,
        max_a: Any,
        min_b: Any,
        max_b: Any,
        min_freezed_output: Any,
        max_freezed_output: Any,
        *,
        Toutput: Any = _UINT8,
        transpose_a: bool = False,
        transpose_b: bool = False,
        input_quant_mode: str = "MIN_FIRST",
    ) -> tuple[Any, Any, Any]:
        ends, transposed = (min_a, max_a, min_b, max_b), (transpose_a, transpose_b)
        frozen = (min_freezed_output, max_freezed_output)
        return _product(
            a, b, bias, ends, Toutput, mode=input_quant_mode, transposed=transposed, relu=relu, frozen=frozen
        )

    call.__doc__ = f"Multiplies matrices, adds a bias, and gives the results a range. See tf.raw_ops.{name}."


_narrow("QuantizedMatMulWithBiasAndRequantize")
_narrow("QuantizedMatMulWithBiasAndReluAndRequantize", relu=True)


@op("QuantizedMatMulWithBiasAndDequantize", heavy=True)
def quantized_mat_mul_with_bias_and_dequantize(
    a: Any,
    b: Any,
    bias: Any,
    min_a: Any,
    max_a: Any,
    min_b: Any,
    max_b: Any,
    min_freezed_output: Any,
    max_freezed_output: Any,
    *,
    Toutput: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    input_quant_mode: str = "MIN_FIRST",
) -> Any:
    """Multiplies matrices and adds a bias, as floats. See tf.raw_ops.QuantizedMatMulWithBiasAndDequantize."""
    del min_freezed_output, max_freezed_output
    ends, transposed = (min_a, max_a, min_b, max_b), (transpose_a, transpose_b)
    return _product(a, b, bias, ends, Toutput, mode=input_quant_mode, transposed=transposed)[0]
