"""Stack resources, as TF1's gradients of loops use them.

The contents are a tensor list in the state, beside the values of variables. StackV2 itself, which makes the handle, is
in `tf2jax_lite.lowering.op_lowerings.variable_ops`.
"""

from __future__ import annotations

import numpy as np

from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Read, Update

from . import tensor_list as lists

_ANY = np.asarray(-1)  # an element shape of unknown rank


@op("StackPushV2")
def stack_push(handle: Update, elem, *, swap_memory=False):
    """Push an element and return it."""
    return lists.tensor_list_push_back(handle, elem, element_dtype=handle.dtype), elem


@op("StackPopV2")
def stack_pop(handle: Update, *, elem_type):
    """Pop the element pushed last."""
    return lists.tensor_list_pop_back(handle, _ANY, element_dtype=elem_type)


@op("StackCloseV2")
def stack_close(handle: Read):
    """Do nothing: memory is not managed here."""
    return ()
