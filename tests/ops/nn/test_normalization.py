"""Batch normalization and local response normalization against TensorFlow."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
SCALE, OFFSET, MEAN = (RNG.normal(size=5).astype(np.float32) for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, 5).astype(np.float32)
EMPTY = np.zeros(0, np.float32)
NORMS = ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]


def first(count):
    """Compare the first results only: reserve spaces depend on the kernel."""

    def compare(expected, actual):
        for e, a in zip(expected[:count], actual[:count], strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5)

    return compare


CASES = [
    *(
        case(op, X, SCALE, OFFSET, EMPTY, EMPTY, is_training=True, epsilon=1e-3).using(
            compare=first(3), rtol=1e-4, atol=1e-5, grad=False
        )
        for op in NORMS
    ),
    *(
        case(op, X, SCALE, OFFSET, MEAN, VARIANCE, is_training=True, exponential_avg_factor=0.3).using(
            compare=first(3), grad=False, name="average"
        )
        for op in NORMS
    ),
    *(
        case(op, X, SCALE, OFFSET, MEAN, VARIANCE, is_training=False).using(
            compare=first(3), grad=False, name="inference"
        )
        for op in NORMS
    ),
    *(
        case(op, X, X * 2, SCALE, MEAN, VARIANCE, *([EMPTY] if op.endswith("V3") else []), is_training=False).using(
            compare=first(3), grad=False
        )
        for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
    ),
    *(
        case(
            op,
            X,
            X**2,
            SCALE,
            (X**2).mean((0, 1, 2)),
            (X**2).var((0, 1, 2)),
            *([EMPTY] if op.endswith("V3") else []),
            is_training=True,
        ).using(compare=first(3), grad=False, name="training")
        for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
    ),
    # Statistics that are not those of x are used as given.
    *(
        case(op, X, X * 2, SCALE, MEAN, VARIANCE, *([EMPTY] if op.endswith("V3") else []), is_training=True).using(
            compare=first(3), grad=False, name="given"
        )
        for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
    ),
    case("FusedBatchNormV3", X, SCALE, OFFSET, MEAN, VARIANCE, is_training=False).using(
        grad=False, compare=first(3), symbolic=("b, 3, 4, 5", "5", "5", "5", "5"), name="symbolic"
    ),
    *(
        case("LRN", X, depth_radius=r, bias=2.0, alpha=0.1, beta=b).using(rtol=1e-4)
        for r, b in ((1, 0.5), (2, 0.75), (5, 1.0))
    ),
    case("LRNGrad", X, X * 2, tf.nn.lrn(X * 2, 2, 1.0, 0.1, 0.5).numpy(), depth_radius=2, alpha=0.1).using(
        grad=False, rtol=1e-4, atol=1e-5
    ),
    # An output that the forward op would not return is used as given.
    case("LRNGrad", X, X * 2, X + 1, depth_radius=1, alpha=0.3, beta=0.75, bias=2.0).using(
        grad=False, rtol=1e-4, atol=1e-5, name="output"
    ),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.full
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", NORMS)
def test_gradients_of_all_results(name, is_training):
    # TensorFlow has no gradients for the statistics, neither results nor inputs.
    def forward(x, scale, offset, mean, variance):
        out = getattr(tf.raw_ops, name)(
            x=x, scale=scale, offset=offset, mean=mean, variance=variance, is_training=is_training
        )
        weights = tf.range(1.0, 6.0)
        return sum(tf.reduce_sum(result * result * weights) for result in out[:3])

    args = X, SCALE, OFFSET, MEAN, VARIANCE
    variables = [tf.constant(v) for v in args]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        out = forward(*variables)
    expected = tape.gradient(out, variables, unconnected_gradients="zero")
    converted = tf2jax.convert_functional(forward, *(tf.TensorSpec(v.shape) for v in args))
    actual = jax.jit(jax.grad(converted, tuple(range(5))))(*args)
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4)


@pytest.mark.default_cases("FusedBatchNormV3-training")
@pytest.mark.parametrize("is_training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", NORMS)
def test_second_order_gradients_in_the_graph(name, is_training):
    # The statistics that the gradient gets depend on x, though they are passed without a gradient.
    def first_order(x, scale, offset):
        with tf.GradientTape() as tape:
            tape.watch([x, scale, offset])
            statistics = (EMPTY, EMPTY) if is_training else (MEAN, VARIANCE)
            y = getattr(tf.raw_ops, name)(
                x=x, scale=scale, offset=offset, mean=statistics[0], variance=statistics[1], is_training=is_training
            )[0]
            loss = tf.reduce_sum(y**3)
        return sum(tf.reduce_sum(tf.sin(g)) for g in tape.gradient(loss, [x, scale, offset]))

    args = X, SCALE, OFFSET
    variables = [tf.constant(v) for v in args]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        out = first_order(*variables)
    expected = tape.gradient(out, variables)
    converted = tf2jax.convert_functional(first_order, *(tf.TensorSpec(v.shape) for v in args))
    actual = jax.jit(jax.grad(converted, (0, 1, 2)))(*args)
    for e, a in zip(expected, actual, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-3 * np.abs(e).max())
