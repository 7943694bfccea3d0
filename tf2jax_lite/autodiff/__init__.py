"""Derivative rules as primitives: custom gradients, errors for missing modes.

`custom_gradient.with_custom_gradient` is the entry: in reverse mode it acts like `jax.custom_vjp`, in forward mode it
takes the transpose. A zero analysis decides whether a gradient function is zero for zero upstream gradients. `one_mode`
has identities that support one mode of differentiation, whose errors name a model's node.

Any JAX program can use this package: it imports `loops`, `jaxprs` and `support` only.
"""
