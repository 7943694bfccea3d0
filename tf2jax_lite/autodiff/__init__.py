"""Derivative rules as primitives: custom gradients and refusals of one mode.

`custom_gradient.own_gradient` is the entry: backwards what `jax.custom_vjp` does, forwards its transpose. `linearity`
decides whether a function is linear, `refuse_forward_mode` and `refuse_reverse_mode` mark values without such
derivatives, `identity_primitive` is what marks are made of. Any JAX program can use it: imports `loops`, `jaxprs` and
`support` only.
"""
