"""Counted loops as scans, reverse-mode while loops, loops in ``shard_map``.

`counted.scan_counted` runs a while loop that counts as ``lax.scan``, and `counted.counted_scan` rewrites its equation.
`induction` finds its counters, `counted` the consecutive reads and writes of buffers; `body` is the loop as equations,
`batch_steps` evaluates these for all iterations.

`derivatives.while_loop` is the entry: a while loop with a data-dependent trip count that has derivatives of both modes
and of any order. Read `while_loop` first, which attaches the loop's operands to its results as residuals, then
`functions` (condition and body under JVP and vmap), `checkpointing` (the reverse pass) and `derivatives` (the rules).
`shard_map` has loops whose carry varies over devices.

Any JAX program can use this package: it imports `jaxprs` and `support` only.
"""
