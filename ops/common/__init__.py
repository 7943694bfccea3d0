"""Helpers that op families share; registers no op.

Op modules import single functions. Read the modules in this order:

- `static_shape`: shapes as far as they are static. `broadcasting`: operands of elementwise ops.
- `accumulation`: 16-bit floats accumulated in float32. `rounding`: products and quotients rounded as written.
- `derivatives`: elementwise functions with TensorFlow's derivatives.
- `nonzero`, `row_boundaries`, `row_splits`: indices of true elements, runs of equal rows, rows of ragged values.
- `result_size`: estimates of result sizes. `variant_rows`: base classes of variants made of several arrays.

It imports no op family, and not the registry.
"""
