"""Elementwise math, reductions, special functions, FFTs, segment reductions.

Read `unary`, `binary` and `logical` first, then `cast`, `reductions` (along axes), `histogram` (by bins) and `segment`
(by ids). `special` is on `_bessel_coefficients`.

Of `ops` it imports `ops.random`, `ops.arrays`, `ops.common` and `ops.registry`, never another family.
"""

from . import audio, binary, cast, clustering, fft, histogram, isotonic, logical, reductions, segment, special, unary  # noqa: F401
