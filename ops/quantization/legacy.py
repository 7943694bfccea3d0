"""The first version of QuantizeAndDequantize, of old graphs."""

from __future__ import annotations

import numpy as np

from tf2jax_lite.ops.quantization.quantize_dequantize import quantize_and_dequantize_v2
from tf2jax_lite.ops.registry import op


@op("QuantizeAndDequantize")
def quantize_and_dequantize(input, *, signed_input=True, num_bits=8, range_given=False, input_min=0.0, input_max=0.0):
    """Round to quantized values; the gradient is the identity."""
    low, high = (np.asarray(v, np.float32).astype(input.dtype) for v in (input_min, input_max))
    return quantize_and_dequantize_v2(
        input, low, high, signed_input=signed_input, num_bits=num_bits, range_given=range_given
    )
