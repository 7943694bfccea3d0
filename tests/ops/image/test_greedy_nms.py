"""Greedy suppression against a direct one; `test_nms` has TensorFlow's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tf2jax_lite.ops.image.nms import intersection_over_union, suppress, suppress_by_class


def ordered(box):
    box = np.asarray(box, np.float64)
    return *np.minimum(box[:2], box[2:]), *np.maximum(box[:2], box[2:])


def overlap(a, b):
    (y0, x0, y1, x1), (v0, u0, v1, u1) = ordered(a), ordered(b)
    intersection = max(min(y1, v1) - max(y0, v0), 0) * max(min(x1, u1) - max(x0, u0), 0)
    areas = (y1 - y0) * (x1 - x0), (v1 - v0) * (u1 - u0)
    return intersection / (sum(areas) - intersection) if min(areas) > 0 else 0.0


def selected(boxes, scores, count, threshold, min_score):
    """Return the selected indices of one class, best first."""
    chosen = []
    for i in np.argsort(-scores, kind="stable"):
        if (
            len(chosen) < count
            and scores[i] > min_score
            and all(overlap(boxes[i], boxes[j]) <= threshold for j in chosen)
        ):
            chosen.append(int(i))
    return chosen


def boxes_and_scores(classes, size, same, seed):
    """Return boxes and scores with many ties."""
    rng = np.random.default_rng(seed)
    corners = np.round(rng.uniform(size=(1 if same else classes, size, 2)), 1)
    boxes = np.concatenate([corners, corners + rng.choice([0.0, 0.3, 0.5], size=corners.shape)], -1)
    return boxes.astype(np.float32), np.round(rng.uniform(size=(classes, size)), 1).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("same", [True, False], ids=["one for all", "for each class"])
@pytest.mark.parametrize(("count", "total"), [(3, 9), (1, 50), (30, 8)])
def test_classes_are_merged_by_score(count, total, same, seed):
    classes, size, threshold, min_score = 5, 12, np.float32(0.25), np.float32(0.3)
    boxes, scores = boxes_and_scores(classes, size, same, seed)
    found = []
    for c in range(classes):
        own = boxes[0 if same else c]
        found += [(-scores[c, i], c, n, i) for n, i in enumerate(selected(own, scores[c], count, threshold, min_score))]
    expected = [(c, i) for _, c, _, i in sorted(found)][:total]
    run = jax.jit(
        functools.partial(
            suppress_by_class, per_class=count, total=total, threshold=threshold, score_threshold=min_score
        )
    )
    which, box, valid = map(np.asarray, run(boxes, scores))
    assert which.shape == box.shape == (total,) and which.dtype == box.dtype == valid.dtype == np.int32
    assert list(zip(which[: len(expected)], box, strict=False)) == expected
    assert int(valid) == len(expected) and not which[len(expected) :].any() and not box[len(expected) :].any()


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 4, 30])
def test_gradients_of_selected_scores(count):
    boxes, scores = boxes_and_scores(1, 12, True, 7)
    expected = selected(boxes[0], scores[0], count, 0.25, 0.3)

    def chosen(scores):
        indices, values, valid = suppress(scores, intersection_over_union(jnp.asarray(boxes[0])), count, 0.25, 0.3)
        return values, (indices, valid)

    values, pull, (indices, valid) = jax.vjp(chosen, jnp.asarray(scores[0]), has_aux=True)
    assert int(valid) == len(expected) and list(indices[: len(expected)]) == expected
    np.testing.assert_array_equal(values, [*scores[0][expected], *[0] * (count - len(expected))])
    upstream = np.arange(1, count + 1, dtype=np.float32)
    gradient = np.zeros(12, np.float32)
    gradient[expected] = upstream[: len(expected)]
    np.testing.assert_array_equal(pull(upstream)[0], gradient)


@pytest.mark.full
def test_no_boxes():
    which, box, valid = suppress_by_class(np.zeros((1, 0, 4), np.float32), np.zeros((3, 0), np.float32), 2, 4, 0.5, 0.0)
    assert which.shape == box.shape == (4,) and int(valid) == 0


@pytest.mark.full
def test_inside_shard_map():
    """The loop's carry must be varying from the start; boxes may be replicated."""
    boxes, scores = boxes_and_scores(4, 6, True, 0)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    run = functools.partial(
        suppress_by_class, per_class=2, total=5, threshold=np.float32(0.2), score_threshold=np.float32(0.1)
    )
    spec = PartitionSpec("x")
    sharded = jax.shard_map(
        lambda b, s: run(b, s[0])[:2], mesh=mesh, in_specs=(PartitionSpec(), spec), out_specs=(spec, spec)
    )
    for actual, expected in zip(sharded(boxes, scores[None]), run(boxes, scores), strict=False):
        np.testing.assert_array_equal(actual, expected)
