"""Nodes that make a variable's handle."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.values import VariableHandle
from tf2jax_lite.passes.effects import handle_name

from .trace import Context

__all__: list[str] = []


@op("VarHandleOp", "_XlaAotOnlyVarHandleOp", needs_context=True)
def var_handle(
    ctx: Context,
    *,
    dtype: Any = None,
    shape: Any = None,
    allowed_devices: Any = (),
    initial_value: Any = None,
) -> VariableHandle:
    """Returns the handle of the variable that the node is named after. See tf.raw_ops.VarHandleOp."""
    del allowed_devices, initial_value  # placement; a variable's value comes from params
    return VariableHandle(handle_name(ctx.step.node), dtype if isinstance(dtype, np.dtype) else None, shape)
