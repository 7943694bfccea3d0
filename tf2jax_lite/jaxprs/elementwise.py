"""Names of primitives whose result at an index depends on operands at that index."""

from __future__ import annotations

_NAMES = """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
    convert_element_type copy copy_p cos cosh device_put digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor
    forward_only ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt
    lt_to materialize max min mul mul_no_nan mulhi name ne neg nextafter not optimization_barrier or polygamma
    population_count pow pvary real reduce_precision regularized_incomplete_beta rem reverse_only reverse_only_tangent
    round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient
    sub tan tanh threefry2x32 xor zeta
"""

ELEMENTWISE = frozenset(_NAMES.split())
"""Operands are scalars or have the shape of the results, of which there may be several."""
