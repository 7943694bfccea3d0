"""Diagonals and bands of matrices against TensorFlow."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

BF16 = ml_dtypes.bfloat16
X = 1 + np.arange(24.0).reshape(2, 3, 4)
M = 1 + np.arange(9.0, dtype=np.float32).reshape(3, 3)
I32, I64 = np.int32, np.int64
DTYPES = [
    "float32",
    "float64",
    "float16",
    BF16,
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
DTYPES += ["bool", "complex64", "complex128"]
ALIGN = ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"]
KS = [0, 1, -1, 3, -2, [0, 0], [1, 1], [-1, 1], [-2, 3], [0, 2], [-2, 0], [1, 3], [-2, -1]]
# (shape of the diagonals, k, rows, columns)
SHAPES = [
    ((2, 3), 0, -1, -1),
    ((3,), 1, -1, -1),
    ((3,), -2, -1, -1),
    ((3,), 0, 3, 5),
    ((3,), 0, 5, -1),
    ((3,), 1, 3, -1),
    ((3,), 1, -1, 6),
    ((3,), -1, 4, 3),
    ((2, 3, 3), [-1, 1], -1, -1),
    ((3, 3), [-1, 1], 3, 4),
    ((3, 3), [-1, 1], 4, 3),
    ((6, 3), [-2, 3], 3, 4),
    ((2, 2), [1, 2], 2, 4),
    ((2, 2), [-2, -1], -1, 2),
    ((2, 3), [0, 1], -1, -1),
    # Diagonals outside of the matrix are padding.
    ((2, 4, 3), [0, 3], 3, -1),
    ((4, 3), [-3, 0], -1, 3),
]


def _ramp(shape, dtype=np.float64):
    return (1 + np.arange(int(np.prod(shape)))).reshape(shape).astype(dtype)


def _diag_shape(shape, k):
    low, high = (k, k) if isinstance(k, int) else k
    longest = min(shape[-2] + min(high, 0), shape[-1] - max(low, 0))
    return (*shape[:-2], longest) if low == high else (*shape[:-2], high - low + 1, longest)


def _left(case, k):
    # TensorFlow's gradients of the V2 ops align diagonals as V3 does, which is wrong for several lengths.
    return case.using(grad=isinstance(k, int) or k[0] == k[1])


CASES = [
    *(
        case("MatrixDiagV3", np.zeros(shape), k, np.int32(-1), np.int32(-1), np.float64(7)).using(name=f"empty-{i}")
        for i, (shape, k) in enumerate(
            [((0,), np.int32(-2)), ((2, 0), np.int32(1)), ((2, 0), np.array([-2, -1], np.int32))]
        )
    ),
    *(case("Diag", _ramp(s)) for s in ((3,), (2, 3), (2, 1, 2), (0,))),
    *(case("Diag", _ramp(3, t)) for t in ("float32", "float16", "int32", "int64", "complex64", "complex128")),
    case("Diag", np.float32([np.nan, np.inf, 1])).using(name="nan"),
    case("Diag", np.float32([1, 2])).using(symbolic=("b",), name="sym"),
    case("Diag", np.float32(1)).using(error="rank", name="scalar"),
    *(case("DiagPart", _ramp(s)) for s in ((3, 3), (2, 3, 2, 3), (0, 0))),
    *(case("DiagPart", _ramp((3, 3), t)) for t in ("float32", "float16", "int32", "int64", "complex64", "complex128")),
    case("DiagPart", M).using(symbolic=("b, b",), name="sym"),
    case("DiagPart", X).using(error="halves", name="rank"),
    *(
        case("MatrixBandPart", X, np.array(a, t), np.array(b, t)).using(
            baked=baked, name=f"{a}-{b}-{np.dtype(t)}{baked}"
        )
        for t in (I32, I64)
        for a, b in ((0, 0), (-1, 0), (0, -1), (1, 2), (-1, -1), (3, 4), (2, 0))
        for baked in ((), ("num_lower", "num_upper"))
    ),
    *(case("MatrixBandPart", _ramp((3, 3), t), I64(0), I64(1)) for t in DTYPES),
    case("MatrixBandPart", np.float32([[np.nan, 1], [np.inf, np.nan]]), I64(0), I64(0)).using(name="nan"),
    case("MatrixBandPart", M, I64(-1), I64(0)).using(symbolic=("n, n",), baked=("num_lower", "num_upper"), name="sym"),
    case("MatrixBandPart", np.zeros((0, 3)), I64(0), I64(1)).using(name="empty"),
    case("MatrixBandPart", M, I64(4), I64(0)).using(baked=("num_lower",), error="num_lower", name="wide"),
    # MatrixDiag.
    *(case("MatrixDiag", _ramp(s)) for s in ((3,), (2, 3), (2, 0), (0, 2))),
    *(case("MatrixDiag", _ramp((2, 2), t)) for t in DTYPES),
    case("MatrixDiag", M).using(symbolic=("b, n",), name="sym"),
    case("MatrixDiag", np.float32([np.nan, np.inf])).using(name="nan"),
    *(
        _left(case("MatrixDiagV2", _ramp(s), np.array(k, I32), I32(r), I32(c), np.float64(-1)), k).using(
            name=f"{s}-{k}-{r}-{c}"
        )
        for s, k, r, c in SHAPES
    ),
    *(
        case("MatrixDiagV3", _ramp(s), np.array(k, I32), I32(r), I32(c), np.float64(-1), align=a).using(
            name=f"{s}-{k}-{r}-{c}-{a}"
        )
        for s, k, r, c in SHAPES
        for a in (ALIGN if isinstance(k, list) else ALIGN[:1])
    ),
    *(case("MatrixDiagV3", _ramp((3, 3), t), I32([-1, 1]), I32(3), I32(4), np.array(1, t)) for t in DTYPES),
    case("MatrixDiagV3", M, I32(0), I32(-1), I32(-1), np.float32(0)).using(symbolic=("b, n", ""), name="sym"),
    case("MatrixDiagV3", M, I32([-1, 1]), I32(-1), I32(-1), np.float32(0)).using(
        symbolic=("3, n", ""), name="sym-band"
    ),
    case("MatrixDiagV3", M[0], I32(0), I32(4), I32(5), np.float32(0)).using(error="does not fit", name="fit"),
    case("MatrixDiagV3", M[0], I32(0), I32(2), I32(2), np.float32(0)).using(error="too small", name="small"),
    case("MatrixDiagV3", M, I32([0, 1]), I32(-1), I32(-1), np.float32(0)).using(error="holds 3", name="count"),
    case("MatrixDiagV3", M, I32([1, 0]), I32(-1), I32(-1), np.float32(0)).using(error="lower_diag_index", name="k"),
    # MatrixDiagPart.
    *(case("MatrixDiagPart", _ramp(s)) for s in ((3, 3), (2, 3, 4), (4, 2), (2, 0, 3))),
    *(case("MatrixDiagPart", _ramp((2, 3), t)) for t in DTYPES),
    case("MatrixDiagPart", M).using(symbolic=("n, n",), name="sym"),
    case("MatrixDiagPart", X).using(symbolic=("b, 3, 4",), name="sym-batch"),
    *(_left(case("MatrixDiagPartV2", X, np.array(k, I32), np.float64(-1)), k).using(name=str(k)) for k in KS),
    *(
        case("MatrixDiagPartV3", X, np.array(k, I32), np.float64(-1), align=a).using(name=f"{k}-{a}")
        for k in KS
        for a in (ALIGN if isinstance(k, list) else ALIGN[:1])
    ),
    *(case("MatrixDiagPartV3", _ramp((4, 3), t), I32([-2, 1]), np.array(1, t)) for t in DTYPES),
    case("MatrixDiagPartV3", M, I32([-1, 1]), np.float32(9)).using(symbolic=("b, 3", ""), name="sym"),
    case("MatrixDiagPartV3", X, I32(4), np.float64(0)).using(error="out of range", name="k"),
    # MatrixSetDiag.
    *(case("MatrixSetDiag", _ramp(s), -_ramp(_diag_shape(s, 0))) for s in ((3, 3), (2, 3, 4), (4, 2))),
    *(case("MatrixSetDiag", _ramp((2, 3), t), _ramp(2, t)) for t in DTYPES),
    case("MatrixSetDiag", M, -M[0]).using(symbolic=("n, n", "n"), name="sym"),
    case("MatrixSetDiag", X, -X[:, :, 0]).using(symbolic=("b, 3, 4", "b, 3"), name="sym-batch"),
    case("MatrixSetDiag", M, M[0, :2]).using(error="diagonal must have shape", name="shape"),
    *(
        _left(case("MatrixSetDiagV2", X, -_ramp(_diag_shape(X.shape, k)), np.array(k, I32)), k).using(name=str(k))
        for k in KS
    ),
    *(
        case("MatrixSetDiagV3", X, -_ramp(_diag_shape(X.shape, k)), np.array(k, I32), align=a).using(name=f"{k}-{a}")
        for k in KS
        for a in (ALIGN if isinstance(k, list) else ALIGN[:1])
    ),
    *(
        case("MatrixSetDiagV3", _ramp((4, 3), t), _ramp((2, 3), t) + np.array(1, t), I32([-1, 0]))
        for t in DTYPES
        if t != "bool"
    ),
    case("MatrixSetDiagV3", M, np.float32([[1, 2], [3, 4]]), I32([1, 2])).using(name="float32"),
    case("MatrixSetDiagV3", X, X, I32(5)).using(error="out of range", name="k"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
