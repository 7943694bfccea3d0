"""Seldom used ops, imported at the first lookup of a name that is not registered.

They are most of the quantized arithmetic, CSR matrices, cuDNN's networks, candidate samplers, and feature crosses.
"""

from .nn import cudnn_rnn  # noqa: F401
from .quantization import onednn, tf1, uniform  # noqa: F401
from .random import candidate_sampling  # noqa: F401
from .sparse import csr, feature_cross  # noqa: F401
