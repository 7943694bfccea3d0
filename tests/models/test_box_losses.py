"""Losses of Mask R-CNN: of dynamic anchor counts, or 0 for none."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax

RNG = np.random.default_rng(0)
IMAGES, ANCHORS, REGIONS, CLASSES = 2, 12, 5, 3


def mean_or_zero(losses):
    return tf.cond(tf.size(losses) > 0, lambda: tf.reduce_mean(losses), lambda: tf.constant(0.0))


def smooth_l1(target, found):
    error = tf.abs(target - found)
    near = tf.cast(error < 1.0, tf.float32)
    return near * 0.5 * error**2 + (1.0 - near) * (error - 0.5)


def anchor_classes(match, logits):
    indices = tf.where(tf.not_equal(match[..., 0], 0))
    labels = tf.gather_nd(tf.cast(tf.equal(match[..., 0], 1), tf.int32), indices)
    return mean_or_zero(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.gather_nd(logits, indices)))


def anchor_boxes(match, boxes, targets):
    """Return images' first targets, as many as positive anchors: ones, sums."""
    positive = tf.equal(match[..., 0], 1)
    boxes = tf.gather_nd(boxes, tf.where(positive))
    counts = tf.reduce_sum(tf.cast(positive, tf.int32), 1)
    targets = tf.concat([targets[i, : counts[i]] for i in range(IMAGES)], 0)
    return mean_or_zero(smooth_l1(targets, boxes))


def region_boxes(ids, boxes, targets):
    ids, targets, boxes = tf.reshape(ids, [-1]), tf.reshape(targets, [-1, 4]), tf.reshape(boxes, [-1, CLASSES, 4])
    indices = tf.where(ids > 0)[:, 0]
    chosen = tf.gather_nd(boxes, tf.stack([indices, tf.cast(tf.gather(ids, indices), tf.int64)], 1))
    losses = tf.cond(
        tf.size(indices) > 0, lambda: smooth_l1(tf.gather(targets, indices), chosen), lambda: tf.constant(0.0)
    )
    return tf.reduce_mean(losses)


def region_masks(ids, masks, targets):
    ids, targets = tf.reshape(ids, [-1]), tf.reshape(targets, [-1, 4, 4])
    masks = tf.transpose(tf.reshape(masks, [-1, 4, 4, CLASSES]), [0, 3, 1, 2])
    indices = tf.where(ids > 0)[:, 0]
    chosen = tf.gather_nd(masks, tf.stack([indices, tf.cast(tf.gather(ids, indices), tf.int64)], 1))
    targets = tf.gather(targets, indices)
    losses = tf.cond(
        tf.size(targets) > 0,
        lambda: tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=chosen),
        lambda: tf.constant(0.0),
    )
    return tf.reduce_mean(losses)


def floats(*shape):
    return RNG.random(shape).astype(np.float32)


MATCH = RNG.integers(-1, 2, (IMAGES, ANCHORS, 1)).astype(np.int32)
IDS = RNG.integers(0, CLASSES, (IMAGES, REGIONS)).astype(np.int32)
CASES = {
    "anchor_classes": (anchor_classes, MATCH, (floats(IMAGES, ANCHORS, 2),)),
    "anchor_boxes": (anchor_boxes, MATCH, (3 * floats(IMAGES, ANCHORS, 4), floats(IMAGES, 2 * ANCHORS, 4))),
    "region_boxes": (region_boxes, IDS, (3 * floats(IMAGES, REGIONS, CLASSES, 4), floats(IMAGES, REGIONS, 4))),
    "region_masks": (region_masks, IDS, (floats(IMAGES, REGIONS, 4, 4, CLASSES), floats(IMAGES, REGIONS, 4, 4))),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients(name):
    function, which, given = CASES[name]
    graph = tf.function(function, autograph=False)
    specs = [tf.TensorSpec(which.shape, tf.int32), *(tf.TensorSpec(x.shape) for x in given)]
    own = jax.jit(jax.value_and_grad(tf2jax.convert_functional(graph, *specs), 1))
    for chosen in (which, np.roll(which, 1), np.zeros_like(which)):
        with tf.GradientTape() as tape:
            variable = tf.constant(given[0])
            tape.watch(variable)
            expected = graph(chosen, variable, *given[1:])
        gradient = tape.gradient(expected, variable, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        value, found = own(chosen, *given)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(found, tf.convert_to_tensor(gradient).numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.full
def test_images_with_fewer_targets_than_anchors():
    """The only loss with sizes assumed equal that may differ: NaN then."""
    function, which, (boxes, targets) = CASES["anchor_boxes"]
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in (which, boxes, targets[:, :1])]
    own = jax.jit(tf2jax.convert_functional(tf.function(function, autograph=False), *specs))
    assert np.isnan(own(which, boxes, targets[:, :1]))
