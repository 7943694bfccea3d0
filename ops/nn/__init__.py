"""Convolution, pooling, normalization, recurrent cells and losses.

`conv` and `pooling` hand their work to `tf2jax_lite.xla_cpu`, which picks another lowering on CPU. `fused_conv` and
`fused_onednn` have the ops that Grappler writes, `rnn_cells` and `cudnn_rnn` the fused cells. Read `activations`,
then `conv`. Never imports `ops.quantization` or `ops.state`.
"""

from . import (  # noqa: F401
    activations,
    conv,
    ctc_beam_search,
    ctc_loss,
    cudnn_rnn,
    cudnn_rnn_grad,
    fractional_pooling,
    fused_conv,
    fused_onednn,
    legacy,
    losses,
    morphology,
    normalization,
    pooling,
    rnn_cells,
)
