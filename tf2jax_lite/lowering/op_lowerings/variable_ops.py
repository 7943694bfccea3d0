"""Nodes that create the handle of a variable or of a stack."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf2jax_lite.lowering.interpreter.frame import Context
from tf2jax_lite.ops.registry import op
from tf2jax_lite.passes.analysis.effects import handle_name
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import LOCAL, VariableHandle, static_value
from tf2jax_lite.values.tensor_list import TensorList


@op("VarHandleOp")
def var_handle(ctx: Context, *, dtype: Any = None, shape: Any = None, allowed_devices: Any = ()) -> VariableHandle:
    """Return the handle of the node's variable. See tf.raw_ops.VarHandleOp."""
    return _handle(ctx, dtype, shape)


@op("_XlaAotOnlyVarHandleOp")
def xla_var_handle(ctx: Context, *, dtype: Any = None, shape: Any = None) -> VariableHandle:
    """Return the handle of the node's variable, as VarHandleOp does."""
    return _handle(ctx, dtype, shape)


def _handle(ctx: Context, dtype: Any, shape: Any) -> VariableHandle:
    return VariableHandle(handle_name(ctx.step.node), dtype if isinstance(dtype, np.dtype) else None, shape)


@op("StackV2")
def stack(ctx: Context, max_size: Any, *, elem_type: Any, stack_name: str = "") -> VariableHandle:
    """Create an empty stack in the variables' state. See tf.raw_ops.StackV2."""
    found = static_value(max_size)
    if found is None:
        raise OpError("the size of a stack must be known while tracing")
    dtype = elem_type if isinstance(elem_type, np.dtype) else None
    name = LOCAL + "/".join((*ctx.frame.path, ctx.step.node.name))
    ctx.trace.state[name] = TensorList(None, 0, dtype, None, int(found), items=())
    return VariableHandle(name, dtype)
