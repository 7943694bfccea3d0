"""What composite tensors are made of: given ones taken apart. Imports neither TensorFlow nor JAX's sparse arrays.

A value of either library can only be given once that library has been imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .ops import values

__all__ = ["components"]


def components(value: Any) -> Sequence[Any] | None:
    """Returns a composite tensor's component tensors in TensorFlow's order, or None for anything else.

    Args:
      value: a ``tf.RaggedTensor`` (flat values, row splits), ``tf.SparseTensor`` (indices, values, dense shape),
        ``tf.IndexedSlices``, ``tf.experimental.ExtensionType``, or a ``jax.experimental.sparse.BCOO`` without batch and
        dense dimensions, which is taken for a sparse tensor.
    """
    sparse = sys.modules.get("jax.experimental.sparse")
    if sparse is not None and isinstance(value, sparse.BCOO):
        if value.n_batch or value.n_dense:
            return None
        return value.indices.astype(values.canonical(np.int64)), value.data, np.asarray(value.shape, np.int64)
    tf = sys.modules.get("tensorflow")
    nest = getattr(tf, "nest", None)
    if nest is None or value is None:
        return None
    parts = nest.flatten(value, expand_composites=True)
    return None if len(parts) == 1 and parts[0] is value else parts
