"""Non-maximum suppression against TensorFlow."""

import itertools

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import f32
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import Tf2JaxError

RNG = np.random.default_rng(0)
BF16 = tf.bfloat16.as_numpy_dtype
CORNERS = RNG.uniform(size=(12, 2)).astype(np.float32)
BOXES = np.concatenate([CORNERS, CORNERS + RNG.uniform(0.2, 0.6, size=(12, 2)).astype(np.float32)], 1)
SCORES = RNG.permutation(12).astype(np.float32) / 12 - 0.1
# Equal boxes, exchanged corners, two empty boxes, equal scores, and scores that are never selected.
HARD = np.array(
    [
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [1, 1, 0, 0.1],
        [0.5, 0.5, 0.5, 0.9],
        [0.5, 0.5, 0.5, 0.9],
        [2, 2, 3, 3],
        [2, 2, 3, 4],
    ],
    np.float32,
)
TIES = np.array([0.5, 0.5, 0.9, 0.4, 0.4, np.nan, -np.inf], np.float32)
OVERLAPS = np.triu(RNG.uniform(size=(12, 12)), 1).astype(np.float32)
OVERLAPS = OVERLAPS + OVERLAPS.T + np.eye(12, dtype=np.float32)
BATCH = np.stack([BOXES[:, None], BOXES[::-1, None]])
CLASSES = RNG.permutation(2 * 12 * 3).reshape(2, 12, 3).astype(np.float32) / 72


def i32(value):
    return np.array(value, np.int32)


def nms(version, boxes, scores, size, *thresholds, dtype=np.float32, **attrs):
    thresholds = [np.array(t, dtype) for t in thresholds]
    return case(
        f"NonMaxSuppression{version}", boxes.astype(dtype), scores.astype(dtype), i32(size), *thresholds, **attrs
    )


PADDED = {"pad_to_max_output_size": True}
CASES = [
    *(
        nms("", b, s, n, iou_threshold=t).using(jit=False, name=f"{len(b)}-{n}-{t}")
        for (b, s), n, t in itertools.product([(BOXES, SCORES), (HARD, TIES)], (3, 20, 0), (0.5, 0.1))
    ),
    *(
        nms("V2", b, s, n, t, dtype=d).using(jit=False, name=f"{len(b)}-{n}-{t}-{np.dtype(d).name}")
        for (b, s), (n, t), d in itertools.product(
            [(BOXES, SCORES), (HARD, TIES)], [(4, 0.3), (20, 0.6)], [np.float32, np.float16]
        )
    ),
    *(
        nms("V3", b, s, n, t, min_score).using(jit=False, name=f"{len(b)}-{n}-{min_score}")
        for (b, s), n, t, min_score in [
            ((BOXES, SCORES), 6, 0.4, 0.2), ((BOXES, SCORES), 20, 0.0, -np.inf), ((HARD, TIES), 20, 1.0, 0.4)]
    ),
    *(
        nms("V4", b, s, n, t, min_score, dtype=d, **PADDED).using(name=f"{len(b)}-{n}-{min_score}-{np.dtype(d).name}")
        for (b, s), n, t, min_score in [
            ((BOXES, SCORES), 6, 0.4, 0.2), ((BOXES, SCORES), 20, 0.5, -np.inf), ((HARD, TIES), 9, 0.5, 0.1)]
        for d in (np.float32, np.float16)
    ),
    nms("V4", BOXES, SCORES, 6, 0.4, 0.2).using(jit=False, name="unpadded"),
    nms("V4", BOXES, SCORES, 5, 0.4, 0.2, **PADDED).using(symbolic=("n, 4", "n", "", ""), name="symbolic"),
    nms("V4", BOXES[:0], SCORES[:0], 5, 0.4, 0.2, **PADDED).using(name="no-boxes", vmap=False),
    *(
        nms("V5", b, s, n, 0.4, min_score, sigma, dtype=d, **PADDED).using(
            name=f"{len(b)}-{n}-{min_score}-{sigma}-{np.dtype(d).name}", rtol=1e-5 if d == np.float32 else 2e-2
        )
        for (b, s), n, min_score in [((BOXES, SCORES + f32(0.2)), 8, 0.1), ((HARD, TIES), 9, 0.0)]
        for sigma in (0.0, 0.5)
        for d in (np.float32, np.float16)
    ),
    nms("V5", BOXES, SCORES, 8, 0.4, 0.1, 0.3).using(jit=False, name="unpadded"),
    *(nms(v, BOXES, SCORES, -1, 0.5, *rest).using(error="non-negative", name="negative", jit=False)
      for v, rest in (("V2", ()), ("V3", (0,)))),
    nms("V2", BOXES, SCORES, 4, 1.5).using(error="iou_threshold", name="threshold", baked=("iou_threshold",)),
    *(
        case("NonMaxSuppressionWithOverlaps", OVERLAPS, SCORES, i32(n), f32(t), f32(min_score)).using(
            jit=False, name=f"{n}-{t}")
        for n, t, min_score in [(4, 0.5, 0.1), (20, 0.8, -np.inf), (20, 0.2, 0.3)]
    ),
    *(
        case("CombinedNonMaxSuppression", b, CLASSES, i32(n), i32(total), f32(t), f32(0.2), pad_per_class=p,
             clip_boxes=c).using(name=f"{b.shape[2]}-{n}-{total}-{p}-{c}")
        for b in (BATCH, np.tile(BATCH, (1, 1, 3, 1)) * f32([[[0.5]], [[1.0]], [[1.3]]])[:, :, 0][None, None])
        for n, total, t in [(2, 9, 0.5), (20, 40, 0.3), (5, 4, 0.4)]
        for p, c in [(False, True), (True, False)]
    ),
    *(
        case("CombinedNonMaxSuppression", BATCH[:, :n], CLASSES[:, :n, :c], i32(3), i32(5), f32(0.5), f32(0.2),
             pad_per_class=p).using(name=f"{n} boxes, {c} classes, {p}", vmap=False)
        for n, c in [(0, 3), (12, 0)] for p in (False, True)
    ),
    case("CombinedNonMaxSuppression", BATCH, CLASSES, i32(3), i32(5), f32(0.5), f32(0.2)).using(
        symbolic=("b, 12, 1, 4", "b, 12, 3", "", ""), name="symbolic"),
]  # fmt: skip


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("bound", [2, 12])
def test_padded_to_the_bound(bound):
    @tf.function(autograph=False)
    def function(boxes, scores):
        return tf.image.non_max_suppression(boxes, scores, 5, 0.4)

    expected = function(BOXES, SCORES).numpy()
    with tf2jax.override_config("dynamic_shape_bound", bound):
        converted = tf2jax.convert_functional(function, BOXES, SCORES)
    actual = np.asarray(jax.jit(converted)(BOXES, SCORES))
    count = min(len(expected), bound)
    np.testing.assert_array_equal(actual[:count], expected[:count])
    assert len(actual) == min(5, bound) and (actual[count:] == -1).all()


def test_traced_without_a_bound_names_the_option():
    function = tf.function(lambda b, s: tf.image.non_max_suppression(b, s, 5), autograph=False)
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(tf2jax.convert_functional(function, BOXES, SCORES))(BOXES, SCORES)
