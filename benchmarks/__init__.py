"""Benchmarks: converted models compared with TensorFlow, native JAX, and tf2jax.

``python -m benchmarks --help`` lists the suites. Machines are shared, so what counts are ratios: everything that is
compared runs in turns, in short repeats, and medians are taken.
"""
