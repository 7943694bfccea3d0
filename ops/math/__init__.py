"""Elementwise arithmetic, reductions, special functions, FFTs and segment sums.

`elementwise` has the unary, binary and logical ops, `reductions` the reductions, cumulative sums and histograms,
`special`, `bessel` and `fresnel` the special functions, `cast` the conversions. Read `elementwise` first. Imports
`ops.random`, `ops.arrays` and `ops.common`, no other family.
"""

from . import audio, bessel, cast, clustering, elementwise, fft, fresnel, isotonic, reductions, segment, special  # noqa: F401
