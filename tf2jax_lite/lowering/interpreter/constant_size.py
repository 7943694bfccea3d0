"""Constants that would grow too large while they are computed: refused before memory is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf2jax_lite.lowering.planning.plan import Step
from tf2jax_lite.ops.common.result_size import broadcast_elements
from tf2jax_lite.support.errors import UnsupportedError
from tf2jax_lite.support.limits import check_bytes

__all__ = ["check_forms", "check_growth", "check_results"]

# Results of inputs this small are not worth a look, unless the op makes much from little.
_SMALL = 1024
_MOST_DIMENSIONS = 64
_INTEGERS = frozenset((int,))


def check_growth(step: Step, inputs: Sequence[Any], args: Sequence[Any], limit: int) -> None:
    """Looks at what a node would make of values that are all known while tracing.

    Args:
      step: the node.
      inputs: its inputs, flat.
      args: its inputs as its op takes them.
      limit: ``config.max_constant_bytes``.

    Raises:
      LimitError: a result would take more.
    """
    if step.op.result_size is not None:
        found = step.op.result_size(*args, **step.kwargs)
    else:
        sizes = [v.size if isinstance(v, np.ndarray) else 1 for v in inputs]
        found = sum(sizes)
        if found * found > _SMALL and len(sizes) <= _SMALL and math.prod(sorted(sizes)[-2:]) > _SMALL:
            found = broadcast_elements([v for v in inputs if isinstance(v, np.ndarray)])
    if found is not None:
        dtype = step.dtypes[0] if step.dtypes else None
        itemsize = 8 if dtype is None else dtype.itemsize
        if not 0 <= found * itemsize <= limit:
            check_bytes((found,), itemsize, "a constant that this node computes", limit=limit)


def check_results(results: Sequence[Any], limit: int) -> bool:
    """Looks at the shapes of what a node gives while tracing: XLA ends the process where sizes overflow.

    Args:
      results: arrays, of known or symbolic shape, and anything else.
      limit: ``config.max_result_bytes``.

    Returns:
      Whether one of them has a symbolic dimension, or holds objects, as vectors of symbolic dimensions do.

    Raises:
      LimitError: a result would take more.
      UnsupportedError: a result has more dimensions than numpy's arrays can have, so that it never becomes one.
    """
    open_ = False
    for value in results:
        shape = getattr(value, "shape", None)
        if not isinstance(shape, tuple):
            continue
        if not _INTEGERS.issuperset(map(type, shape)):
            open_ = True
            continue
        open_ = open_ or (isinstance(value, np.ndarray) and value.dtype.hasobject)
        if math.prod(shape) > limit >> 4:
            check_bytes(
                shape, np.dtype(value.dtype).itemsize, "what this node gives", limit=limit, option="max_result_bytes"
            )
        if len(shape) > _MOST_DIMENSIONS:
            raise UnsupportedError(f"a result of {len(shape)} dimensions; arrays have up to {_MOST_DIMENSIONS}.")
    return open_


def check_forms(forms: Sequence[Any], limit: int) -> None:
    """Looks at the shapes of results before they are computed from constants.

    Raises:
      LimitError: one of them would take more than ``limit`` bytes.
    """
    for form in forms:
        check_bytes(form.shape, np.dtype(form.dtype).itemsize, "a constant that this node computes", limit=limit)
