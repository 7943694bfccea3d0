"""Fake quantization, uniform quantization and TF1's (tensor, min, max) arithmetic.

`fake_quant` and `quantize_dequantize` are for training, `uniform` and `uniform_dot_conv` compute with int8 and int32
accumulators, the `tf1_*` modules are the ops of TF1, the `onednn_*` modules those that oneDNN fuses. `_fixed_point`
rescales int32 without 64-bit integers.
"""

from . import (  # noqa: F401
    fake_quant,
    legacy,
    min_max,
    onednn_conv,
    onednn_matmul,
    quantize_dequantize,
    tf1_arithmetic,
    tf1_normalization,
    tf1_requantize,
    tf1_requantize_per_channel,
    tf1_resize,
    uniform,
    uniform_dot_conv,
)
