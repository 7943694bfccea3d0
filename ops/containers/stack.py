"""Stack resources, as TF1's gradients of loops use them.

The contents are a tensor list in the state, beside the values of variables. StackV2 itself, which makes the handle, is
in `tf2jax_lite.lowering.op_lowerings.variable_ops`.
"""

from __future__ import annotations

import numpy as np

from tf2jax_lite import ir
from tf2jax_lite.ops.registry import op
from tf2jax_lite.ops.traits import Read, Update
from tf2jax_lite.values.tensor_list import TensorList
from tf2jax_lite.values.tensors import Tensor
from tf2jax_lite.values.types import Array

from . import tensor_list_elements as lists

_ANY = np.asarray(-1)  # an element shape of unknown rank


@op("StackPushV2")
def stack_push(handle: Update[TensorList], elem: Tensor, *, swap_memory: bool = False) -> tuple[TensorList, Tensor]:
    """Push an element and return it. TF: tf.raw_ops.StackPushV2."""
    return lists.tensor_list_push_back(handle, elem, element_dtype=handle.dtype), elem


@op("StackPopV2")
def stack_pop(handle: Update[TensorList], *, elem_type: ir.DType) -> tuple[TensorList, Tensor]:
    """Pop the element pushed last. TF: tf.raw_ops.StackPopV2."""
    return lists.tensor_list_pop_back(handle, _ANY, element_dtype=elem_type)


@op("StackCloseV2")
def stack_close(handle: Read[Array]) -> tuple[()]:
    """Do nothing: memory is not managed here. TF: tf.raw_ops.StackCloseV2."""
    return ()
