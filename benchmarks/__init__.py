"""Measurements: converted models beside TensorFlow, beside JAX written by hand, and beside another converter.

``python -m benchmarks --help`` lists the suites. Machines are shared, so what counts are ratios: everything that is
compared runs in turns, in short repeats, and medians are taken.
"""
