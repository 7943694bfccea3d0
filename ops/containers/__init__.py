"""TensorList, TensorArray, TensorMap, Optional, TF1 stacks and lookup tables.

The list value is `tf2jax_lite.values.tensor_list`. Read in this order:

- `tensor_list`: making and resizing lists, length and shape;
- `tensor_list_elements`: push, pop, set, get;
- `tensor_list_stack`: stack, gather, scatter, split, concatenate;
- `tensor_array`, `stack`: TF1's TensorArray and stacks, on top of lists;
- `tensor_map`, `optional`, `lookup_table`: each has its value and its ops.

Imports `ops.linalg` and what is below it.
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
