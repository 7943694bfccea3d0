"""Facts about a graph: effects, static values, integer ranges.

`effects.Summaries` says what each function reads and writes, `static_values` what is known at conversion,
`integer_ranges` bounds integers.
"""
