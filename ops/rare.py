"""Seldom used ops, imported at the first lookup of a name that is not registered.

They are most of the quantized arithmetic, CSR matrices, cuDNN's networks, candidate samplers, and feature crosses.
"""

from .nn import cudnn_rnn, cudnn_rnn_grad  # noqa: F401
from .quantization import (  # noqa: F401
    legacy,
    onednn_conv,
    onednn_matmul,
    tf1_arithmetic,
    tf1_normalization,
    tf1_requantize,
    tf1_requantize_per_channel,
    tf1_resize,
    uniform,
    uniform_dot_conv,
)
from .random import candidate_sampling  # noqa: F401
from .sparse import csr, csr_cholesky, csr_elementwise, csr_matmul, feature_cross  # noqa: F401
