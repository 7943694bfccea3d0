"""Calling convention: argument binding, params, results.

Entry: `interface.Interface`, which binds the arguments of a call to flat inputs and nests flat results. Read:

- `structures`: nested arguments and results, with `TensorArgument` and `OutputRef` as leaves.
- `interface`: signatures and structures of a function.
- `binding`: values to tensors, with the checks of shapes and dtypes.
- `coercion`: Python values to arrays, and kinds of dtypes.
- `integers`: integers that exceed the dtypes with which JAX computes.
- `composite_values`: components of ragged, sparse and other composite tensors.
- `names`: parameter names for tensor names.
- `params`: the dict of variables; `x64_params` keeps 64-bit state as 32-bit words, and `layer_stacks` stacks those of
  equal layers.

Must not trace, or import TensorFlow, `ops` or `lowering`.
"""
