"""Functions exported once for all sizes, against TensorFlow at two."""

import jax
import jax.export
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

HEIGHT_AND_WIDTH = slice(1, 3)
BOXES = np.float32([[0.1, 0.0, 0.5, 0.9], [0.5, 0.2, 1.2, 0.3]])
TURN = np.float32([[1.0, 0.1, -2.0, -0.1, 1.0, 3.0, 0.0, 0.0]])
RAW, V1 = tf.raw_ops, tf.compat.v1.image


def real(size, dtype=tf.float32):
    return tf.cast(size, dtype)


def whole(number):
    return tf.cast(number, tf.int32)


def positions(x):
    """Sines and cosines as transformers have them."""
    angles = tf.range(tf.shape(x)[1], dtype=tf.float32)[:, None] / tf.pow(10000.0, tf.range(4.0)[None] / 4)
    return tf.concat([tf.sin(angles), tf.cos(angles)], -1)


def grid(x):
    """Centres of cells, as detectors have them."""
    height, width = tf.shape(x)[1], tf.shape(x)[2]
    across = (tf.range(width, dtype=tf.float32) + 0.5) / real(width)
    down = (tf.range(height, dtype=tf.float32) + 0.5) / real(height)
    return tf.stack(tf.meshgrid(across, down), -1)


def in_blocks(x):
    batch, height, width = tf.shape(x)[0], tf.shape(x)[1], tf.shape(x)[2]
    more = -height % 4
    x = tf.pad(x, [[0, 0], [0, more], [0, 0], [0, 0]])
    return tf.reduce_sum(tf.reshape(x, [batch, (height + more) // 4, 4, width, 3]), 2)


def project(x, mode, interpolation):
    options = {"fill_value": 0.0, "fill_mode": mode, "interpolation": interpolation}
    return RAW.ImageProjectiveTransformV3(
        images=x, transforms=TURN, output_shape=tf.shape(x)[HEIGHT_AND_WIDTH], **options
    )


def counted(x):
    """Count in floating point, from one up to a size."""
    end, first = real(tf.shape(x)[1]), real(tf.shape(x)[2])
    return tf.while_loop(lambda i, _: i < end, lambda i, a: (i + 1, a * 0.5), (0.0, first))[1]


def chosen(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: real(tf.shape(x)[1]) / 3, lambda: 2.0)


CASES = {
    "scaled by a number": lambda x: tf.image.resize(x, whole(real(tf.shape(x)[HEIGHT_AND_WIDTH]) * 0.75)),
    "a third, in 64 bits": lambda x: x[:, : whole(tf.floor(real(tf.shape(x)[1], tf.float64) / 3))],
    "half, rounded up": lambda x: x[:, : whole(tf.math.ceil(tf.shape(x)[1] / 2))],
    "half, rounded": lambda x: x[:, : whole(tf.round(real(tf.shape(x)[1]) * 0.5))],
    "two thirds of the rest": lambda x: x[:, whole((real(tf.shape(x)[1]) - 1) / 3) :],
    "range": lambda x: tf.range(real(tf.shape(x)[1])) * 2,
    "range in steps": lambda x: tf.range(1.0, real(tf.shape(x)[1]) / 2, 0.25),
    "range backwards": lambda x: tf.range(real(tf.shape(x)[1]), 0.0, -2.0),
    "range in 64 bits": lambda x: tf.range(tf.shape(x)[1], dtype=tf.float64),
    "positions": positions,
    "grid": grid,
    "numbers": lambda x: (real(tf.shape(x)), real(tf.shape(x)[1], tf.float64) / 7, tf.math.ceil(real(tf.shape(x)) / 4)),
    "mean of sizes": lambda x: tf.reduce_mean(real(tf.shape(x))),
    "product": lambda x: tf.reduce_mean(x, [1, 2]) * real(tf.shape(x)[1] * tf.shape(x)[2]),
    "powers and roots": lambda x: x * real(tf.shape(x)[1]) ** 2 * tf.math.rsqrt(real(tf.shape(x)[2])),
    "the larger": lambda x: x / tf.maximum(real(tf.shape(x)[1]), real(tf.shape(x)[2])),
    "compared": lambda x: tf.where(real(tf.shape(x)[1]) > 10.5, x, -x),
    "equal": lambda x: tf.where(real(tf.shape(x)[1]) / 2 == 5.0, x, -x),
    "among others": lambda x: tf.stack([real(tf.shape(x)[1]) / 3, 2.0, x[0, 0, 0, 0]]) * tf.constant([1.0, 2.0, 3.0]),
    "in 16 bits": lambda x: x * real(real(tf.shape(x)[1], tf.float16)),
    "counted": counted,
    "chosen": chosen,
    "blocks": in_blocks,
    "dilated": lambda x: tf.nn.atrous_conv2d(x, tf.ones((3, 3, 3, 2)), 2, "VALID"),
    "cut at the centre": lambda x: tf.image.central_crop(x, 0.5),
    "cut or filled": lambda x: tf.image.resize_with_crop_or_pad(x, 8, 9),
    "cubic": lambda x: tf.image.resize(x, (20, 21), "bicubic"),
    "cubic, corners": lambda x: V1.resize_bicubic(x, tf.shape(x)[HEIGHT_AND_WIDTH] * 2, align_corners=True),
    "area": lambda x: tf.image.resize(x, (4, 3), "area"),
    "area, larger": lambda x: V1.resize_area(x, tf.shape(x)[HEIGHT_AND_WIDTH] * 2 + 1),
    "area, corners": lambda x: V1.resize_area(x, (7, 11), align_corners=True),
    "boxes": lambda x: tf.image.crop_and_resize(x, BOXES, [0, 1], (5, 4)),
    "boxes, nearest": lambda x: tf.image.crop_and_resize(x, BOXES, [0, 1], (5, 1), method="nearest"),
    "rotated": lambda x: project(x, "CONSTANT", "BILINEAR"),
    "rotated and mirrored": lambda x: project(x, "REFLECT", "BILINEAR"),
    "rotated and wrapped": lambda x: project(x, "WRAP", "NEAREST"),
    "largest half": lambda x: tf.math.top_k(x[..., 0], tf.shape(x)[2] // 2)[0],
    "sorted": lambda x: tf.sort(x, 1),
}


@pytest.mark.default_cases("positions", "powers and roots", "cubic", "rotated and mirrored")
@pytest.mark.parametrize("name", CASES)
def test_exported_for_all_sizes(name):
    function = tf.function(CASES[name], autograph=False)
    fn, _ = tf2jax.convert(function, tf.TensorSpec([None, None, None, 3], tf.float32))
    sizes = jax.export.symbolic_shape("b, h, w, 3", constraints=["h >= 6", "w >= 6"])
    exported = jax.export.export(jax.jit(lambda x: fn({}, x)[0]))(jax.ShapeDtypeStruct(sizes, np.float32))
    rng = np.random.default_rng(0)
    for shape in ((2, 10, 7, 3), (3, 7, 12, 3), (2, 9, 6, 3)):
        x = rng.uniform(size=shape).astype(np.float32)
        expected = tf.nest.flatten(function(x))
        for ours, theirs in zip(jax.tree.leaves(exported.call(x)), expected, strict=True):
            assert ours.shape == theirs.shape
            assert ours.dtype == jax.dtypes.canonicalize_dtype(theirs.dtype.as_numpy_dtype)
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)
