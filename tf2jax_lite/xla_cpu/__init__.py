"""Lowering rules that replace slow XLA:CPU code, chosen by shape; other platforms keep the primitive.

`rules` is the entry: primitives with a CPU lowering rule and derivatives of the base primitive. `materialize` and
`outline` keep XLA from computing a value again, `reductions`, `cumulative`, `pooling`, `top_k`, `dot_order`,
`constant_dot` and `inverse_trig` are rules of one primitive each, `conv` has those of convolutions. Any JAX program
can use it: imports neither `ops` nor anything above.
"""
