"""Calling convention: argument binding, params, results.

Entry: `interface.Interface`, which binds the arguments of a call to flat inputs and nests flat results. Read:

- `structures`: nested arguments and results, with `TensorArgument` and `OutputRef` as leaves.
- `interface`: signatures and structures of a function.
- `binding`: values, also ragged, sparse and other composite ones, to tensors, with the checks of shapes and dtypes.
- `coercion`: Python values to arrays, and kinds of dtypes.
- `integers`: integers that exceed the dtypes with which JAX computes; 64-bit state is kept as 32-bit words.
- `names`: parameter names for tensor names.
- `params`: the dict of variables, and stacks of those of equal layers.

Must not trace, or import TensorFlow, `ops` or `lowering`.
"""
