"""Fractional pooling: with fixed seeds the sequences are the same."""

import itertools

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 9, 7, 2))
INTEGERS = RNG.integers(-3, 4, (2, 9, 7, 2))
ATTRS = [
    {"pooling_ratio": [1.0, 1.44, 1.73, 1.0], "deterministic": True, "seed": 7, "seed2": 11},
    {"pooling_ratio": [1.0, 1.8, 1.3, 1.0], "pseudo_random": True, "deterministic": True, "seed": 3, "seed2": 2**40},
    {"pooling_ratio": [1.0, 1.5, 1.5, 1.0], "overlapping": True, "deterministic": True, "seed": -5, "seed2": 1},
    {
        "pooling_ratio": [1.0, 2.4, 1.0, 1.0],
        "pseudo_random": True,
        "overlapping": True,
        "deterministic": True,
        "seed": 1,
    },
    {"pooling_ratio": [1.0, 3.0, 7.0, 1.0]},  # integer ratios: nothing is drawn
]
ROWS, COLUMNS = np.array([0, 2, 3, 6, 9]), np.array([0, 1, 3, 5, 7])


def forward(op, value, attrs):
    return tf.raw_ops.__dict__[op](value=tf.constant(value), **attrs)


def max_grad(value, attrs, baked=()):
    y, rows, columns = (t.numpy() for t in forward("FractionalMaxPool", value, attrs))
    g = RNG.integers(1, 5, y.shape).astype(value.dtype)
    c = case("FractionalMaxPoolGrad", value, y, g, rows, columns, overlapping=attrs.get("overlapping", False))
    return c.using(baked=baked, name=f"{value.dtype}-{attrs['pooling_ratio']}-{len(baked)}")


def avg_grad(dtype, rows, columns, overlapping, baked=()):
    g = RNG.integers(-9, 9, (2, len(rows) - 1, len(columns) - 1, 2)).astype(dtype)
    c = case("FractionalAvgPoolGrad", np.array(IMAGE.shape), g, rows, columns, overlapping=overlapping)
    return c.using(baked=baked, name=f"{np.dtype(dtype).name}-{overlapping}-{len(baked)}")


SEQUENCES = ("row_pooling_sequence", "col_pooling_sequence")
TESTED_OTHERWISE = {"FractionalMaxPool", "FractionalAvgPool"}
CASES = [
    case("FractionalMaxPool", IMAGE, pooling_ratio=[1.0, 0.5, 1.0, 1.0]).using(error="pooling_ratio"),
    *(max_grad(v, f) for f in ATTRS[:4] for v in (IMAGE, INTEGERS)),
    max_grad(IMAGE.astype(np.float32), ATTRS[2], SEQUENCES),
    max_grad(INTEGERS * 1.0, ATTRS[2], SEQUENCES),
    avg_grad(np.float64, ROWS, COLUMNS, False),
    avg_grad(np.float32, ROWS, COLUMNS, True),
    avg_grad(np.float64, ROWS, COLUMNS, True, SEQUENCES),
    avg_grad(np.int32, ROWS, COLUMNS, True),
    avg_grad(np.int64, ROWS, COLUMNS, False),
]


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


@pytest.mark.default_cases("float643.0-2-FractionalAvgPool")
@pytest.mark.parametrize("op", ["FractionalMaxPool", "FractionalAvgPool"])
@pytest.mark.parametrize(
    ("value", "attrs"),
    [
        *((IMAGE, f) for f in ATTRS),
        (INTEGERS * 1.0, ATTRS[2]),
        *((INTEGERS.astype(t), ATTRS[2]) for t in (np.int32, np.int64)),
    ],
    ids=lambda v: f"{v.dtype}{v[0, 0, 0, 0]:.1f}" if isinstance(v, np.ndarray) else str(ATTRS.index(v)),
)
def test_fixed_seeds(op, value, attrs):
    """It is harness.check with a key, which these ops require if unused."""

    @tf.function
    def fn(x):
        return getattr(tf.raw_ops, op)(value=x, **attrs)

    with jax.enable_x64(True):
        jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec(value.shape, value.dtype))
        x = tf.constant(value)
        with tf.GradientTape() as tape:
            tape.watch(x)
            expected = fn(x)
        grad = RNG.integers(1, 5, expected[0].shape).astype(value.dtype)
        key = jax.random.key(0)
        for run in (jax_fn, jax.jit(jax_fn)):
            for e, a in zip(expected, run(value, rng=key), strict=True):
                assert e.numpy().dtype == np.asarray(a).dtype
                np.testing.assert_allclose(a, e.numpy(), rtol=1e-9)
        if value.dtype == np.float64:
            _, pull = jax.vjp(lambda x: jax_fn(x, rng=key)[0], value)
            np.testing.assert_allclose(
                pull(grad)[0], tape.gradient(expected[0], x, tf.constant(grad)).numpy(), rtol=1e-9
            )


@pytest.mark.default_cases("FractionalMaxPool-True")
@pytest.mark.parametrize("pseudo_random", [False, True])
@pytest.mark.parametrize("op", ["FractionalMaxPool", "FractionalAvgPool"])
def test_sequences_from_a_key(op, pseudo_random):
    """Sequences from the key are valid and determine the result."""

    @tf.function
    def fn(x):
        return getattr(tf.raw_ops, op)(value=x, pooling_ratio=[1.0, 1.44, 1.73, 1.0], pseudo_random=pseudo_random)

    jax_fn = jax.jit(tf2jax.convert_functional(fn, tf.TensorSpec(IMAGE.shape, tf.float32)))
    image, seen = IMAGE.astype(np.float32), set()
    for seed in range(8):
        y, *sequences = jax_fn(image, rng=jax.random.key(seed))
        rows, columns = map(np.asarray, sequences)
        for sequence, size in ((rows, 9), (columns, 7)):
            assert sequence[0] == 0 and sequence[-1] == size
            k = size // (len(sequence) - 1)
            assert set(np.diff(sequence)) <= {k, k + 1}
        seen.add((*rows, *columns))
        reduce = np.max if "Max" in op else np.mean
        expected = [
            [reduce(image[:, a:b, c:d], axis=(1, 2)) for c, d in itertools.pairwise(columns)]
            for a, b in itertools.pairwise(rows)
        ]
        np.testing.assert_allclose(y, np.moveaxis(expected, 2, 0), rtol=1e-5)
    assert len(seen) > 1
