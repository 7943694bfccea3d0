"""Values that flow between ops: static values, handles, int64 pairs, variants.

Entry functions: `static.static_value` (a value as NumPy if it is static) and `static.as_array` (an operand of
`jax.lax`). Read

- `static`: static and traced values, axes, shape vectors, resources; aliases `Array`, `Dim`, `Shape`, `DType`;
- `specs`: specs of pytrees of values, their join, coercion to a spec;
- `variant`: the protocol of variants, and `tensor_list`, the TensorList value;
- `int64`: 64-bit integers as pairs of 32-bit words;
- `symbolic_float`: symbolic dimensions in float arithmetic.

Registers no op. Imports neither `ops` nor `dynamic_shapes`.
"""
