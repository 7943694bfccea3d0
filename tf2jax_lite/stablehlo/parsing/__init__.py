"""Parse bytes of a StableHLO module to plain data.

Entry: `mlir_reader.read`.

Read in this order:
  module: the data classes, effects and liveness.
  mlir_reader: MLIR's Python bindings to plain data.
  isolation, child_process: parse untrusted payloads in a child process first, since MLIR may crash.
  custom_calls: the list of targets that they may call, each with its form.
  peepholes: local rewrites of the result.
  exported: containers of ``jax.export``.

Must not import `interpreter` or `raising`.
"""
