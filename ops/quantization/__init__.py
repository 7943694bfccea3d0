"""Fake and uniform quantization, and TF1's (tensor, min, max) arithmetic.

Quantized dtypes are integer dtypes here. Read `min_max` first, then by kind:

- `fake_quant`, `quantize_dequantize`: floats rounded to quantized levels, with straight-through gradients.
- `uniform`, `uniform_dot_conv`: integers with scale and zero point, with int32 accumulators; on `_fixed_point`.
- `tf1_requantize`, `tf1_requantize_per_channel`: ranges of TF1's tensors, which the other modules use.
- `tf1_arithmetic`, `tf1_normalization`, `tf1_resize`: TF1's ops on them.
- `onednn_conv`, `onednn_matmul`: products that oneDNN fuses with bias, ReLU and requantization.

Imports `ops.nn`, `ops.image`, `ops.xla.protos`, `ops.math`, `ops.arrays` and `ops.common`; no other family imports
it.
"""

from . import (  # noqa: F401
    fake_quant,
    min_max,
    quantize_dequantize,
)
