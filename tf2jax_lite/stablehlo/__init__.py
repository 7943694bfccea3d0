"""StableHLO modules as JAX functions: each op becomes a call of ``jax.lax``.

`api.from_stablehlo` and `api.evaluate` are the entries. `parsing` reads bytes, `raising` finds calls that JAX's
lowering expanded, `interpreter` has one rule per op. Imports neither TensorFlow nor `lowering`.
"""
