"""Random crops around boxes: TensorFlow's bits, or its distribution."""

import functools

import jax
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

SIZE = np.int32([40, 50, 3])
BOXES = np.float32([[[0.2, 0.1, 0.8, 0.9], [0.5, 0.5, 0.5, 0.6]], [[0.9, 0.9, 0.1, 0.2], [0, 0, 1, 1]]])
NONE = np.zeros((1, 0, 4), np.float32)
TENTH, SEED = np.float32(0.1), np.int32([1, 2])
NAME = "StatelessSampleDistortedBoundingBox"

CASES = [
    case(NAME, SIZE, BOXES, TENTH, SEED),
    case(NAME, SIZE, BOXES, TENTH, np.array([-5, 2**40 + 3])).using(name="long-seed", vmap=False),
    case(NAME, SIZE, BOXES, TENTH, SEED).using(name="constants", baked=("image_size", "bounding_boxes"), vmap=False),
    case(NAME, SIZE, NONE, TENTH, SEED, use_image_if_no_bounding_boxes=True).using(name="whole-image", vmap=False),
    *(case(NAME, SIZE.astype(t), BOXES, TENTH, SEED).using(vmap=False) for t in ("int8", "uint8", "int16", "int64")),
    case(NAME, np.int32([3000, 4000, 1]), BOXES, np.float32(0.7), SEED, aspect_ratio_range=[0.2, 5.0]),
    # Nothing fits: the whole image.
    case(NAME, SIZE, BOXES[:1], np.float32(1), SEED, area_range=[0.01, 0.02], max_attempts=3),
    case(NAME, SIZE, BOXES, TENTH, SEED, area_range=[0.9, 0.2]),
    case(NAME, np.int32([0, 50, 3]), BOXES, TENTH, SEED, max_attempts=2).using(name="no-rows"),
    case(NAME, np.int32([1, 1, 3]), BOXES, TENTH, SEED).using(name="one-pixel"),
    case(NAME, SIZE, NONE, TENTH, SEED).using(error="use_image_if_no_bounding_boxes", name="no-boxes"),
    case(NAME, SIZE, BOXES + 1, TENTH, SEED).using(error="[0, 1]", baked=("bounding_boxes",), name="outside"),
    case(NAME, SIZE, BOXES, -TENTH, SEED).using(error="negative", baked=("min_object_covered",), name="covered"),
    case(NAME, -SIZE, BOXES, TENTH, SEED).using(error="cannot be -40", baked=("image_size",), name="size"),
    case(NAME, SIZE, BOXES, TENTH, SEED, area_range=[0.5, 1.5]).using(error="must not exceed 1"),
    case(NAME, SIZE, BOXES, TENTH, SEED, area_range=[0.0, 1.0]).using(error="positive"),
    case(NAME, SIZE, BOXES, TENTH, SEED, aspect_ratio_range=[1.0]).using(error="two positive numbers"),
    case(NAME, SIZE, BOXES, TENTH, SEED, max_attempts=0).using(error="max_attempts"),
]
TESTED_OTHERWISE = {"SampleDistortedBoundingBox", "SampleDistortedBoundingBoxV2"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
def test_bits_equal_tensorflow(x64):
    """Images and boxes of many sizes, with crops that just fit the width."""
    rng = np.random.default_rng(x64)
    n = 400
    sizes = np.concatenate([rng.integers(1, 4000 if x64 else 300, (n, 2)), np.ones((n, 1))], 1).astype(np.int32)
    boxes = np.sort(rng.uniform(size=(n, 3, 2, 2)), axis=2).reshape(n, 1, 3, 4).astype(np.float32)
    covered, seeds = rng.choice([0, 0.1, 0.9], n).astype(np.float32), rng.integers(-(2**31), 2**31, (n, 2), np.int32)

    def crop(size, boxes, covered, seed):
        return tuple(
            tf.image.stateless_sample_distorted_bounding_box(
                size, boxes, seed, covered, aspect_ratio_range=[0.3, 4.0], area_range=[0.1, 1.0], max_attempts=20
            )
        )

    args = sizes, boxes, covered, seeds
    types = (tf.int32, tf.int32, tf.float32)
    expected = tf.function(lambda *a: tf.map_fn(lambda row: crop(*row), a, fn_output_signature=types))(*args)
    specs = [tf.TensorSpec(v.shape[1:], v.dtype) for v in args]
    with jax.enable_x64(x64):
        actual = jax.jit(jax.vmap(tf2jax.convert_functional(tf.function(crop), *specs)))(*args)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype and np.asarray(ours).tobytes() == theirs.numpy().tobytes()


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(TESTED_OTHERWISE))
def test_distribution(name):
    covered = {"min_object_covered": 0.3}
    op = functools.partial(getattr(tf.raw_ops, name), image_size=SIZE, bounding_boxes=BOXES[:1], **covered)
    jax_fn = tf2jax.convert_functional(tf.function(lambda: tuple(op())))
    drawn = jax.jit(jax.vmap(lambda key: jax_fn(rng=key)))(jax.random.split(jax.random.key(0), 1000))
    expected = tf.function(
        lambda: tf.map_fn(lambda _: tuple(op()), tf.range(1000), fn_output_signature=(tf.int32, tf.int32, tf.float32))
    )()
    for ours, theirs in zip(drawn, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        for mine, other in zip(np.asarray(ours).reshape(1000, -1).T, theirs.numpy().reshape(1000, -1).T, strict=True):
            assert scipy.stats.ks_2samp(mine, other).pvalue > 1e-4
