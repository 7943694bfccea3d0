"""Jaxpr utilities, and the parts of JAX that change between releases.

`compat` is the only importer of ``jax.extend``, ``jax.interpreters``, ``jax.core`` and ``jaxlib``; read it first.
Then `evaluate` visits equations and nested jaxprs, and runs them with a rule per equation, `tracing_cache` traces
costly functions once, `shard_map` handles varying manual axes. `elementwise` and `interval` have what analyses share;
`independence` proves that the examples of a batch do not mix.

Any JAX program can use this package: it imports `support` only.
"""
