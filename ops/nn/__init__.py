"""Convolution, pooling, normalization, recurrent cells, activations and losses.

Read `activations` for the form of an op, then `_convolution` (attributes, padding, layouts) and the ops on it:

- `conv`, `depthwise_conv`: convolutions and their gradients; `fused_conv`, `fused_onednn`: ops that Grappler fuses.
- `pooling`, `pooling_grad`, `fractional_pooling`, `morphology`: maximum, mean and grayscale dilation of windows.
- `softmax`, `losses`, `normalization`: softmax along any axis, cross entropies, batch and local response norm.
- `rnn_cells`, `cudnn_rnn`, `cudnn_rnn_grad`: LSTM and GRU, one fused cell or a whole cuDNN network.
- `ctc_loss`, `ctc_beam_search`: connectionist temporal classification, loss and decoders.

Convolutions and poolings call `tf2jax_lite.xla_cpu`, which lowers them otherwise on CPU. Never imports
`ops.quantization` or `ops.state`.
"""

from . import (  # noqa: F401
    activations,
    conv,
    ctc_beam_search,
    ctc_loss,
    depthwise_conv,
    fractional_pooling,
    fused_conv,
    fused_onednn,
    losses,
    morphology,
    normalization,
    pooling,
    pooling_grad,
    rnn_cells,
    softmax,
)
