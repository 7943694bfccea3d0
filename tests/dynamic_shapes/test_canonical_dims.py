"""Equal sizes in different forms, and images of any size that meet again."""

import itertools

import hypothesis
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies

import tf2jax_lite as tf2jax
from tf2jax_lite.dynamic_shapes.dim_expr import canonical_dim, value

RNG = np.random.default_rng(0)
H, W = jax.export.symbolic_shape("h, w")


@pytest.mark.parametrize(
    "sizes",
    [
        [(H + 1) // 2, -(-H // 2), (H - 1) // 2 + 1, (H + 3) // 2 - 1],
        [-((-H // 2) // 2), (H + 3) // 4, ((H + 1) // 2 - 1) // 2 + 1],
        [(H - 3) // 2 + 1, (H + 1) // 2 - 1, 1 - (4 - H) // 2],
        [(3 * H) // 2, H + H // 2],
        [(2 * H * W + W) // 2, H * W + W // 2],
        [H // 2 // 3 // 5, H // 30],
        [(H * W) // 4 - 1, (H * W - 4) // 4],
        [H % 3 // 2 + H, (H % 3 + 2) // 2 + H - 1],
    ],
)
def test_equal_dims_have_one_canonical_form(sizes):
    assert len({str(canonical_dim(size)) for size in sizes}) == 1


@pytest.mark.full
def test_what_has_no_quotient_stays():
    for size in (3, H, 2 * H - W + 1, H**2 * W):
        assert canonical_dim(size) is size


SIZES = strategies.recursive(
    strategies.sampled_from([H, W, H * W]),
    lambda inner: strategies.one_of(
        strategies.builds(lambda a, n: a // n, inner, strategies.integers(1, 5)),
        strategies.builds(lambda a, n: -(-a // n), inner, strategies.integers(1, 5)),
        strategies.builds(lambda a, n: a * n, inner, strategies.integers(-3, 3)),
        strategies.builds(lambda a, n: a % n, inner, strategies.integers(2, 5)),
        strategies.builds(lambda a, n: a + n, inner, strategies.integers(-9, 9)),
        strategies.builds(lambda a, b: a + b, inner, inner),
        strategies.builds(lambda a, b: a - b, inner, inner),
    ),
    max_leaves=4,
)


@pytest.mark.full
@hypothesis.given(SIZES)
@hypothesis.settings(max_examples=150, deadline=None, derandomize=True)
def test_values_stay(size):
    found = canonical_dim(size)
    assert canonical_dim(found) == found
    for given in ({"h": h, "w": w} for h, w in itertools.product(range(1, 40, 3), range(1, 9, 2))):
        assert _at(found, given) == _at(size, given)


def _at(size, given):
    return int(value(size, given))


def _kernel(window, channels=2):
    return tf.constant(RNG.normal(size=(window, window, channels, 2)).astype(np.float32))


POINT, SQUARE = _kernel(1), _kernel(3)

# Ways from an image to about half of its height and width.
HALVES = {
    "point": lambda x: tf.nn.conv2d(x, POINT, 2, "SAME"),
    "square": lambda x: tf.nn.conv2d(x, SQUARE, 2, "SAME"),
    "padded": lambda x: tf.nn.conv2d(tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]]), SQUARE, 2, "VALID"),
    "explicit": lambda x: tf.nn.conv2d(x, SQUARE, 2, [[0, 0], [1, 1], [1, 1], [0, 0]]),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, SQUARE[..., :1], [1, 2, 2, 1], "SAME"),
    "max": lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "max of pairs": lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"),
    "mean": lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "positions": lambda x: tf.nn.max_pool_with_argmax(x, 3, 2, "SAME")[0],
    "maxima of volumes": lambda x: tf.nn.max_pool3d(x[:, None], [1, 3, 3], [1, 2, 2], "SAME")[:, 0],
    "means of volumes": lambda x: tf.nn.avg_pool3d(x[:, None], [1, 3, 3], [1, 2, 2], "SAME")[:, 0],
    "slices": lambda x: x[:, ::2, ::2],
    "resized": lambda x: tf.image.resize(x, (tf.shape(x)[1:3] + 1) // 2, "nearest"),
    "patches": lambda x: tf.image.extract_patches(x, [1, 1, 1, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"),
    "dilation": lambda x: tf.nn.dilation2d(x, SQUARE[..., 0], (1, 2, 2, 1), "SAME", "NHWC", (1, 1, 1, 1)),
    "sizes": lambda x: x[:, : -(-tf.shape(x)[1] // 2), : -(-tf.shape(x)[2] // 2)],
}


@pytest.mark.full
@pytest.mark.parametrize("name", HALVES)
def test_images_of_any_size_meet_again(name):
    """Applied twice, and added to a convolution: values and both gradients."""
    in_graph = name != "patches"  # TensorFlow's gradient computes with sizes in floating point
    way = HALVES[name]

    def forward(x):
        for _ in range(2):
            x = way(x) + tf.nn.conv2d(x, POINT, 2, "SAME")
        return x

    @tf.function
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
            loss = tf.reduce_sum(tf.sin(y))
        return y, tape.gradient(loss, x)

    spec = tf.TensorSpec([None, None, None, 2], tf.float32)
    fn, _ = tf2jax.convert(both, spec)
    plain, _ = tf2jax.convert(tf.function(forward), spec)

    def all_of(x):
        first = fn({}, x)[0] if in_graph else plain({}, x)[:1]
        return *first[:2], jax.grad(lambda x: jnp.sum(jnp.sin(plain({}, x)[0])))(x)

    symbols = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, h, w, 2"), np.float32)
    exported = jax.export.export(jax.jit(all_of))(symbols)
    assert str(exported.out_avals[0].shape) == "(b, floordiv(h + 3, 4), floordiv(w + 3, 4), 2)"
    for height, width in ((9, 8), (7, 10)):
        x = RNG.normal(size=(2, height, width, 2)).astype(np.float32)
        y, gradient = both(x)
        found, *gradients = exported.call(x)
        for ours, theirs in ((found, y), *((g, gradient) for g in gradients)):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
