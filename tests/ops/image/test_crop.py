"""Cropping and resizing of boxes against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(size=(2, 5, 6, 3)).astype(np.float32)
BOXES = np.array(
    [[0.1, 0.2, 0.8, 0.7], [0, 0, 1, 1], [0.9, 0.8, 0.1, -0.3], [-0.2, 0.3, 1.3, 0.31], [0.5, 0.5, 0.5, 0.5]],
    np.float32,
)
INDEX = np.array([0, 1, 1, 0, 1], np.int32)
CROPS = [(3, 4), (1, 1), (7, 1)]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
CROPS_GRAD = np.random.default_rng(1).normal(size=(5, 3, 4, 3)).astype(np.float32)
NOT_FINITE = CROPS_GRAD.copy()
NOT_FINITE[1, 1, 2], NOT_FINITE[0, 2, 1, 0] = np.nan, np.inf  # box 1 has its rows on pixels
OUTSIDE_NOT_FINITE = CROPS_GRAD.copy()
OUTSIDE_NOT_FINITE[3, 0] = np.nan


def size(*values):
    return np.array(values, np.int32)


CASES = [
    *(
        case("CropAndResize", IMAGES, BOXES, INDEX, size(*s), method=m, extrapolation_value=v).using(
            **CLOSE, name=f"{s}-{m}"
        )
        for s in CROPS
        for m, v in (("bilinear", 0.0), ("nearest", -1.5))
    ),
    *(
        case("CropAndResize", (IMAGES * 100).astype(d), BOXES[:2], INDEX[:2], size(3, 3)).using(
            rtol=1e-4, atol=1e-3, name=np.dtype(d).name, grad_rtol=1e-2, grad_atol=1e-2
        )
        for d in (np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64, np.float16, np.float64)
    ),
    case("CropAndResize", IMAGES, BOXES[:0], INDEX[:0], size(3, 3)).using(name="no-boxes", grad=False),
    case("CropAndResize", IMAGES, BOXES, INDEX, size(3, 4)).using(
        symbolic=("b, 5, 6, 3", "n, 4", "n"), name="symbolic", **CLOSE
    ),
    case("CropAndResize", IMAGES, BOXES, INDEX, size(0, 4)).using(error="positive", name="zero"),
    *(
        case(
            "CropAndResizeGradImage",
            RNG.normal(size=(5, *s, 3)).astype(np.float32),
            BOXES,
            INDEX,
            size(2, 5, 6, 3),
            method=m,
            T=t,
        ).using(**(CLOSE if t != tf.float16 else {}), name=f"{s}-{m}-{t.name}")
        for s in CROPS[:2]
        for m in ("bilinear", "nearest")
        for t in (tf.float32, tf.float64, tf.float16)
    ),
    *(
        case("CropAndResizeGradImage", g, BOXES, INDEX, size(*s), T=tf.float32).using(**CLOSE, name=name, grad=False)
        for name, g, s in (
            ("not-finite", NOT_FINITE, (2, 5, 6, 3)),
            ("one-row", CROPS_GRAD, (2, 1, 6, 3)),
            ("one-column", CROPS_GRAD, (2, 5, 1, 3)),
        )
    ),
    *(
        case(
            "CropAndResizeGradBoxes",
            RNG.normal(size=(5, *s, 3)).astype(np.float32),
            (IMAGES * 9).astype(d),
            BOXES,
            INDEX,
        ).using(rtol=1e-4, atol=1e-4, name=f"{s}-{np.dtype(d).name}")
        for s in CROPS
        for d in (np.float32, np.float64, np.uint8)
    ),
    # Of box 3, the first row is above the image.
    case("CropAndResizeGradBoxes", OUTSIDE_NOT_FINITE, IMAGES, BOXES, INDEX).using(
        **CLOSE, name="not-finite-outside", grad=False
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("crop, method", [((3, 5), "bilinear"), ((6, 4), "nearest")])
def test_crop_and_resize_at_pixel_centers(crop, method):
    """The nearest pixel depends on the last bit of a coordinate."""
    rng = np.random.default_rng(0)
    image, weights = f32(rng.normal(size=(1, 8, 6, 2))), f32(rng.normal(size=(60, *crop, 2)))
    boxes = f32(rng.integers(-1, 10, (60, 4)) / np.array([7, 5, 7, 5]))
    index = np.zeros(60, np.int32)

    def crops(image, boxes):
        return tf.image.crop_and_resize(image, boxes, index, crop, method, extrapolation_value=-2.0)

    def boxes_gradient(image, boxes, grads):
        return tf.raw_ops.CropAndResizeGradBoxes(grads=grads, image=image, boxes=boxes, box_ind=index)

    with tf.GradientTape() as tape:
        variables = [tf.constant(image), tf.constant(boxes)]
        tape.watch(variables)
        result = crops(*variables)
    expected = tape.gradient(result, variables, output_gradients=tf.constant(weights))
    own = tf2jax.convert_functional(tf.function(crops), *[tf.TensorSpec(v.shape) for v in variables])
    value, pull = jax.jit(lambda *a: jax.vjp(own, *a))(image, boxes)
    np.testing.assert_allclose(value, result, rtol=1e-4, atol=1e-5)
    for actual, reference in zip(pull(weights), expected, strict=True):
        np.testing.assert_allclose(actual, reference, rtol=1e-3, atol=1e-4)
    specs = [tf.TensorSpec(v.shape) for v in (image, boxes, weights)]
    gradient = jax.jit(tf2jax.convert_functional(tf.function(boxes_gradient), *specs))(image, boxes, weights)
    np.testing.assert_allclose(gradient, boxes_gradient(image, boxes, weights), rtol=1e-3, atol=1e-4)
