"""Convolution, pooling, normalization, recurrent cells, activations and losses.

Read `activations` for the form of an op, then `conv` (attributes, padding, layouts). `fused` has ops that Grappler
fuses, `rnn_cells` one fused cell, `cudnn_rnn` a whole network, `ctc` connectionist temporal classification.

Never imports `ops.quantization` or `ops.state`.
"""

from . import activations, conv, ctc, fused, morphology, normalization, pooling, rnn_cells, softmax  # noqa: F401
