"""Elementwise math, reductions, special functions, FFTs, segment reductions.

The op functions are the entry: `registry.lookup` finds them by op name. Read the modules in this order:

- `unary`, `binary`, `logical`: elementwise ops. `bitwise`: shifts and bit logic. `cast`: dtype conversion.
- `reductions`, `cumulative`, `histogram`: along axes, and by bins. `segment`, `sparse_segment`: by ids.
- `special`, `bessel` (with `_bessel_coefficients`), `fresnel`: special functions.
- `fft`, `audio`: Fourier transforms, spectrograms. `clustering`: initial centers for k-means, nearest neighbors.
- `isotonic`: isotonic regression.

Of `ops` it imports `ops.random`, `ops.arrays`, `ops.common` and `ops.registry`, never another family.
"""

from . import (  # noqa: F401
    audio,
    bessel,
    binary,
    bitwise,
    cast,
    clustering,
    cumulative,
    fft,
    fresnel,
    histogram,
    isotonic,
    logical,
    reductions,
    segment,
    sparse_segment,
    special,
    unary,
)
