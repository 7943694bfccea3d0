"""Image resizing against TensorFlow."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import UnsupportedAttributeError

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype
IMAGES = RNG.normal(size=(2, 5, 7, 3)).astype(np.float32)
BYTES = RNG.integers(0, 255, size=(2, 4, 3, 2))
SIZES = [(10, 14), (3, 4), (5, 7), (1, 1), (8, 3)]
MODES = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
METHODS = ["ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64]
HALVES = [np.float16, BF16, np.float64]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
KERNELS = ["lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"]


def size(*values):
    return np.array(values, np.int32)


def f32(*values):
    return np.array(values, np.float32)


LONG = np.sin(np.arange(2 * 3000, dtype=np.float32)).reshape(1, 3000, 1, 2)  # a signal, as audio models resize them

CASES = [
    # A dense matrix of weights would have millions of elements, and for a minute of audio exceed memory.
    *(
        case(op, LONG, size(to, 1), **m).using(**CLOSE, name=f"long-{to}-{m}")
        for op in ("ResizeBilinear", "ResizeBicubic", "ResizeArea")
        for to in (1500, 3000, 7000)
        for m in (MODES if op != "ResizeArea" else MODES[:2])
    ),
    # With traced scales, XLA rounds the coordinates of thousands of pixels otherwise.
    *(
        case(
            "ScaleAndTranslate", LONG, size(5000, 1), f32(factor, 1), f32(3, 0), kernel_type=kernel, antialias=antialias
        ).using(**CLOSE, baked=("scale", "translation"), name=f"long-{factor}-{kernel}-{antialias}")
        for kernel in ("lanczos3", "box", "mitchellcubic")
        for factor, antialias in ((1.7, True), (0.3, True), (0.3, False))
    ),
    *(
        case(op, LONG[:, :2100], np.zeros((1, 3000, 1, 2), np.float32)).using(**CLOSE, name="long")
        for op in ("ResizeBilinearGrad", "ResizeBicubicGrad")
    ),
    *(
        case(op, IMAGES, size(*s), **m).using(**CLOSE, name=f"{s}-{m}")
        for op in METHODS
        for s, m in itertools.product(SIZES, MODES)
    ),
    *(
        case("ResizeArea", IMAGES, size(*s), **m).using(**CLOSE, name=f"{s}-{m}")
        for s, m in itertools.product([*SIZES, (2, 5), (13, 6)], MODES[:2])
    ),
    *(
        case(op, (BYTES % 100).astype(d), size(6, 5)).using(
            # TensorFlow accumulates gradients in the 16-bit type, in another order.
            **({"grad_rtol": 3e-2, "grad_atol": 3e-2} if d in HALVES[:2] else {}),
            rtol=1e-4,
            atol=1e-3,
            name=np.dtype(d).name,
        )
        for op in (*METHODS, "ResizeArea")
        for d in (*INTEGERS, *HALVES)
    ),
    *(
        case(op, IMAGES, size(8, 9)).using(symbolic=("b, 5, 7, 3",), name="symbolic", **CLOSE)
        for op in (*METHODS, "ResizeArea")
    ),
    *(
        case(op, IMAGES, size(10, 14), **m).using(symbolic=("b, h, w, 3",), name=f"symbolic-sides-{m}", **CLOSE)
        for op in METHODS[:2]
        for m in MODES
    ),
    case("ResizeBilinear", IMAGES[:0], size(8, 9)).using(name="empty"),
    *(
        case(op, RNG.normal(size=(2, *s, 3)).astype(np.float32), IMAGES[:, :4].astype(d), **m).using(
            **(CLOSE if d in (np.float32, np.float64) else {}), name=f"{s}-{np.dtype(d).name}-{m}"
        )
        for op in ("ResizeBilinearGrad", "ResizeBicubicGrad")
        for s, m in itertools.product([(8, 14), (3, 5)], MODES)
        for d in ((np.float32, *HALVES) if op == "ResizeBilinearGrad" else (np.float32, np.float64))
    ),
    *(
        case("ResizeNearestNeighborGrad", (IMAGES * 9).astype(d), size(*s), **m).using(
            name=f"{s}-{np.dtype(d).name}-{m}"
        )
        for s, m in itertools.product([(2, 3), (8, 9)], MODES)
        for d in (np.float32, np.int32, np.float64)
    ),
    *(
        case("ResizeNearestNeighborGrad", (IMAGES * 9).astype(d), size(3, 3)).using(
            name=np.dtype(d).name, **({"rtol": 5e-2, "atol": 5e-2} if d in HALVES[:2] else {})
        )
        for d in (np.int8, np.uint8, np.float16, BF16)
    ),
    *(case(op, IMAGES, size(0, 3)).using(error="positive", name="zero") for op in METHODS),
    *(
        case(op, IMAGES, size(2, 3), align_corners=True, half_pixel_centers=True).using(error="both", name="both")
        for op in METHODS
    ),
    *(
        case("ScaleAndTranslate", IMAGES, size(6, 4), f32(*s), f32(*t), kernel_type=k, antialias=a).using(
            rtol=1e-4, atol=1e-4, name=f"{k}-{a}-{s}"
        )
        for k in KERNELS
        for a in (True, False)
        for s, t in [((1.2, 0.63), (0.3, -0.7))]
    ),
    *(
        case("ScaleAndTranslate", IMAGES, size(6, 4), f32(1.2, 0.6), f32(0.3, -0.7), kernel_type=k).using(
            rtol=1e-4, atol=1e-4, baked=("scale", "translation"), name=f"{k}-static"
        )
        for k in KERNELS[2:5]
    ),
    case("ScaleAndTranslate", BYTES.astype(np.uint8), size(9, 9), f32(2, 3), f32(-2.5, 1)).using(**CLOSE),
    *(
        case(
            "ScaleAndTranslateGrad", IMAGES, RNG.normal(size=(2, 3, 9, 3)).astype(np.float32), *st, kernel_type=k
        ).using(rtol=1e-4, atol=1e-4, name=f"{k}-{st[0][0]}")
        for k in ("lanczos3", "triangle")
        for st in [(f32(1.5, 0.8), f32(0.2, 0.1)), (f32(0.5, 1), f32(0, 0))]
    ),
    case("ScaleAndTranslate", IMAGES, size(6, 4), f32(1, 1), f32(0, 0), kernel_type="none").using(
        error="kernel_type", name="unknown"
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.parametrize("method", METHODS)
def test_conflicting_attributes_raise(method):
    def resized(images):
        return getattr(tf.raw_ops, method)(images=images, size=[2, 3], align_corners=True, half_pixel_centers=True)

    with pytest.raises(UnsupportedAttributeError, match="align_corners=True and half_pixel_centers=True"):
        tf2jax_lite.convert_functional(resized, IMAGES)
