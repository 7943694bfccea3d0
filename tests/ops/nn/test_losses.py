"""Losses against TensorFlow."""

import numpy as np
import pytest

from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 5)) * 3
LABELS = RNG.dirichlet(np.ones(5), 4)

CASES = [
    *(case("SoftmaxCrossEntropyWithLogits", LOGITS.astype(d), LABELS.astype(d)) for d in (np.float32, np.float64)),
    case("SoftmaxCrossEntropyWithLogits", LOGITS, LABELS[:1]).using(name="broadcast", grad=False),
    case("SoftmaxCrossEntropyWithLogits", LOGITS * 100, np.eye(5)[:4]).using(name="large"),
    *(
        case("SparseSoftmaxCrossEntropyWithLogits", LOGITS.astype(d), np.array([0, 4, 2, 2], i))
        for d in (np.float32, np.float64)
        for i in (np.int32, np.int64)
    ),
    case("SparseSoftmaxCrossEntropyWithLogits", LOGITS, np.array([0, 5, 2, 2])).using(error="outside"),
    *(case("L2Loss", LOGITS.astype(d)) for d in (np.float32, np.float64)),
    case("L2Loss", np.zeros((0, 2), np.float32)).using(name="empty"),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)
