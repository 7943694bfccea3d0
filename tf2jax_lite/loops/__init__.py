"""Reverse-mode while loops with checkpointing, and lax loops inside shard_map.

`derivatives` is the entry: a while loop with a data-dependent trip count that has derivatives of both modes.
`while_loop` carries its operands along, `checkpointing` is the reverse pass, `functions` what tangents and `vmap`
make of condition and body, `shard_map` the loops whose carry varies over devices. Imports `jaxprs` and `support`
only.
"""
