"""Helpers that op families share; registers no op.

Read `broadcasting` first (operands of elementwise ops), then `precision` (16-bit floats, rounding), `derivatives`,
`rows`, `result_size` and `variant_rows`.

It imports no op family, and not the registry.
"""
