"""Derivative rules as primitives: custom gradients, errors for missing modes.

`custom_gradient.with_custom_gradient` is the entry: in reverse mode it acts like `jax.custom_vjp`, in forward mode it
takes the transpose. `linearity` decides whether a function is linear; `identity_primitive` has what the other two
modules build on: `refuse_forward_mode` and `refuse_reverse_mode` raise errors that name a model's node where JAX's own
do not.

Any JAX program can use this package: it imports `loops`, `jaxprs` and `support` only.
"""
