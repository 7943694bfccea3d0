"""Analyses: facts about a graph that passes and the lowering use.

Entries, one class or function per module:

- `effects.Summaries`: variables that each function reads and writes, other effects, random numbers.
- `static_values.runtime_dependent`: nodes with inputs that are not known at conversion time.
- `static_values.may_have_dynamic_sizes`, `may_compare_sizes`: whether a call may have to trace again because of sizes.
- `static_values.loop_invariants`: variables that a loop's body returns unchanged.
- `integer_ranges.IntegerRanges`: bounds of integer tensors.

Must not import TensorFlow, JAX or `lowering`.
"""
