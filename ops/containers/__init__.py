"""TensorList, TensorArray, TensorMap, Optional, TF1 stacks and lookup tables.

The list value is `tf2jax_lite.values.tensor_list`. Read `tensor_list` first: TF1's stacks and
`tensor_array` are on top of lists. Each of `tensor_map`, `optional` and `lookup_table` has its value and its ops.

Imports `ops.linalg` and what is below it.
"""

from . import lookup_table, optional, tensor_array, tensor_list, tensor_map  # noqa: F401
