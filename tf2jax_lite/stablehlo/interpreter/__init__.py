"""Evaluate StableHLO ops as JAX calls: one rule per op.

Entry: `core.Run.call`, which evaluates a function of a module.

Read in this order:
  core: lazy values, the registry of rules, the evaluation of regions.
  elementwise, shapes, indexing, reductions, sort, dot_conv_fft, linalg, prng: rules by kind.
  control_flow, custom_calls: rules for calls, branches, loops, and JAX's custom calls.

Must not import `raising`.
"""
