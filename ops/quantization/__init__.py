"""Fake and uniform quantization, and TF1's (tensor, min, max) arithmetic.

Quantized dtypes are integer dtypes here. Read `quantize` first, then by kind: `uniform` (integers with scale and zero
point), `tf1` (ranges), `onednn` (products fused with bias, ReLU and requantization).

Imports `ops.nn`, `ops.image`, `ops.xla.protos`, `ops.math`, `ops.arrays` and `ops.common`; no other family imports
it.
"""

from . import quantize  # noqa: F401
