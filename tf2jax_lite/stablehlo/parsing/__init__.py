"""Bytes of a StableHLO module to plain data.

`mlir_reader` reads MLIR, after `isolation` has had a child process (`child_process`) parse it; `module` has the data
classes, `exported` reads containers of `jax.export`, `peepholes` tidies.
"""
