"""Helpers shared by op families; registers nothing.

`accumulation`: float32 accumulators of 16-bit floats. `broadcasting`: operands of elementwise ops. `derivatives`,
`elementwise_derivatives`, `logistic`: derivatives that are TensorFlow's at corners. `nonzero`, `row_boundaries`,
`row_splits`: positions and rows. `rounding`, `result_size`, `variant_rows`. Never imports a family.
"""
