"""Jaxpr utilities and what differs between JAX releases.

`walk` visits equations, `equations` binds and reads one, `tracing_cache` traces what is costly once, `shard_map`
handles varying manual axes, `versions` has names that moved. Imports `support` only.
"""
