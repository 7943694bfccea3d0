"""Values that flow between ops: static numpy, handles, int64 pairs, variants.

`static` first: what is static, what is traced, axes and shape vectors. `specs` describes pytrees of values and joins
such descriptions, `int64` and `uint64` are pairs of 32-bit words, `symbolic_float` sizes in float arithmetic,
`tensor_list` the TensorList value, `variant` the protocol of variants. Knows no op; imports neither `ops` nor
`dynamic_shapes`.
"""
