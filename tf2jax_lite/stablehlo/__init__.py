"""StableHLO modules as JAX functions: each op becomes a call of ``jax.lax``.

Entries: `api.from_stablehlo` for users, `api.evaluate` for the converter and for artifacts.

Read in this order:
  parsing: bytes to plain data (`parsing.module`), with untrusted payloads parsed in a child process first.
  raising: replaces ops that JAX's lowering expanded by the original call.
  interpreter: evaluates the ops, one rule each; counted while loops become scans.

Must import neither TensorFlow nor `lowering`, `frontend` or `ops`.
"""
