"""Benchmarks: converted models compared with TensorFlow, native JAX, and tf2jax.

    python -m benchmarks run --suite run,train --json out.jsonl    # measures, and appends records to a file
    python -m benchmarks report                                    # writes the pages of stored records
    python -m benchmarks compare before.jsonl after.jsonl          # ratios of the values of two files

Machines are shared, so ratios count: everything that is compared runs in turns, in short repeats, and medians are
taken. `records` has the schema of a record, `report` the pages; other modules are suites, and what these share.
"""
