"""TensorList, TensorArray, TensorMap, Optional, TF1 stacks and lookup tables.

The list itself is `tf2jax_lite.values.tensor_list`; `tensor_list_elements` has the ops on one element,
`tensor_list_stack` those on all. Imports `ops.linalg` and what is below it.
"""

from . import (  # noqa: F401
    lookup_table,
    optional,
    stack,
    tensor_array,
    tensor_list,
    tensor_list_elements,
    tensor_list_stack,
    tensor_map,
)
