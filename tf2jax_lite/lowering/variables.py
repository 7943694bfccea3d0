"""Nodes that make a variable's handle."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.values import VariableHandle
from tf2jax_lite.passes.effects import handle_name

from .trace import Context

__all__: list[str] = []


@op("VarHandleOp", needs_context=True)
def var_handle(ctx: Context, *, dtype: Any = None, shape: Any = None, allowed_devices: Any = ()) -> VariableHandle:
    """Returns the handle of the variable that the node is named after. See tf.raw_ops.VarHandleOp."""
    return _handle(ctx, dtype, shape)


@op("_XlaAotOnlyVarHandleOp", needs_context=True)
def xla_var_handle(ctx: Context, *, dtype: Any = None, shape: Any = None) -> VariableHandle:
    """Returns the handle of the variable that the node is named after, as VarHandleOp does."""
    return _handle(ctx, dtype, shape)


def _handle(ctx: Context, dtype: Any, shape: Any) -> VariableHandle:
    return VariableHandle(handle_name(ctx.step.node), dtype if isinstance(dtype, np.dtype) else None, shape)
