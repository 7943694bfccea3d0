"""Gradients that other converters lose: swish, CTC, reparameterization."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax


def check_gradients(fn, variables, *arrays, rtol=2e-4, atol=2e-5):
    """Compare a scalar function and all its gradients with TensorFlow's."""
    function = tf.function(fn)
    specs = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
    jax_fn, params = tf2jax.convert(function, *specs)
    tensors = [tf.constant(a) for a in arrays]
    moving = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        loss = function(*tensors)
    expected = tape.gradient(loss, [[tensors[i] for i in moving], list(variables)], unconnected_gradients="zero")
    trainable, other = tf2jax.split_params(params)

    def value(trainable, chosen):
        given = list(arrays)
        for i, v in zip(moving, chosen, strict=True):
            given[i] = v
        return jax_fn(tf2jax.merge_params(trainable, other), *given)[0]

    actual, (by_params, by_inputs) = jax.jit(jax.value_and_grad(value, (0, 1)))(trainable, [arrays[i] for i in moving])
    np.testing.assert_allclose(actual, loss, rtol=rtol)
    for a, e in zip(by_inputs, expected[0], strict=True):
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)
    by_name = {
        getattr(v, "path", v.name.split(":")[0]): tf.convert_to_tensor(g)
        for v, g in zip(variables, expected[1], strict=True)
    }
    assert set(by_params) == set(by_name)
    for name, gradient in by_params.items():
        np.testing.assert_allclose(gradient, by_name[name], rtol=rtol, atol=atol, err_msg=name)


def inverted_bottleneck(x, filters, *, fused):
    """Return an EfficientNet block (B0's or V2's) with squeeze and excitation."""
    layers, width = keras.layers, 4 * x.shape[-1]
    if fused:
        h = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    else:
        h = layers.Conv2D(width, 1, padding="same", use_bias=False)(x)
        h = layers.BatchNormalization()(h)
        h = layers.Activation("swish")(h)
        h = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(h)
    h = layers.BatchNormalization()(h)
    h = layers.Activation("swish")(h)
    squeezed = layers.Reshape((1, 1, width))(layers.GlobalAveragePooling2D()(h))
    squeezed = layers.Conv2D(2, 1, activation="swish")(squeezed)
    h = layers.Multiply()([h, layers.Conv2D(width, 1, activation="sigmoid")(squeezed)])
    h = layers.BatchNormalization()(layers.Conv2D(filters, 1, padding="same", use_bias=False)(h))
    return layers.Add()([h, x]) if filters == x.shape[-1] else h


@pytest.mark.full
@pytest.mark.parametrize("training", [False, True])
def test_efficient_net_blocks(training):
    keras.utils.set_random_seed(1)
    inputs = keras.Input([6, 6, 3])
    h = inverted_bottleneck(inputs, 4, fused=True)
    h = inverted_bottleneck(h, 4, fused=False)
    model = keras.Model(inputs, h)
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 3)).astype(np.float32)
    check_gradients(
        lambda x: tf.reduce_mean(model(x, training=training) ** 3), model.trainable_variables, x, rtol=2e-3, atol=2e-4
    )


class Decoder(tf.Module):
    """A tiny Llama-like decoder: RMS norm, rotary, grouped queries, gated MLP.

    Args:
      window: how far back attention sees (Mistral's kind), or None.
    """

    def __init__(self, experts=1, window=None, parallel=False):
        super().__init__()
        random = np.random.default_rng(0)

        def weight(*shape):
            return tf.Variable(random.normal(size=shape, scale=0.3).astype(np.float32), name=f"w{len(self.weights)}")

        self.weights = []
        for shape in [(8, 8), (8, 4), (8, 4), (8, 8), (8, experts), *[(8, 16), (8, 16), (16, 8)] * experts]:
            self.weights.append(weight(*shape))
        self.scales = [tf.Variable(tf.ones([8]), name=f"scale{i}") for i in range(2)]
        self.experts, self.window, self.parallel = experts, window, parallel

    def norm(self, x, i):
        return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-6) * self.scales[i]

    def rotate(self, x):
        angles = tf.range(tf.shape(x)[1], dtype=tf.float32)[:, None] / tf.constant([1.0, 100.0])
        sin, cos = tf.sin(angles)[:, None], tf.cos(angles)[:, None]
        a, b = tf.split(x, 2, -1)
        return tf.concat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, x):
        batch, length = x.shape[:2]
        q, k, v = (x @ self.weights[i] for i in range(3))
        q = self.rotate(tf.reshape(q, [batch, length, 2, 4]))
        k = self.rotate(tf.reshape(k, [batch, length, 1, 4]))
        v = tf.reshape(v, [batch, length, 1, 4])
        scores = tf.einsum("bqhd,bkhd->bhqk", q, tf.repeat(k, 2, 2)) / 2.0
        ahead = tf.range(length)[:, None] - tf.range(length)
        seen = ahead >= 0 if self.window is None else (ahead >= 0) & (ahead < self.window)
        shares = tf.nn.softmax(tf.where(seen, scores, -1e9))
        out = tf.einsum("bhqk,bkhd->bqhd", shares, tf.repeat(v, 2, 2))
        return tf.reshape(out, [batch, length, 8]) @ self.weights[3]

    def mlp(self, x):
        outs = []
        for i in range(self.experts):
            gate, up, down = self.weights[5 + 3 * i : 8 + 3 * i]
            outs.append((tf.nn.silu(x @ gate) * (x @ up)) @ down)
        if self.experts == 1:
            return outs[0] + tf.reduce_sum(x @ self.weights[4], -1, keepdims=True)
        top, chosen = tf.math.top_k(tf.nn.softmax(x @ self.weights[4]), 2)
        shares = tf.reduce_sum(
            tf.one_hot(chosen, self.experts) * (top / tf.reduce_sum(top, -1, keepdims=True))[..., None], -2
        )
        return tf.reduce_sum(tf.stack(outs, -2) * shares[..., None], -2)

    def __call__(self, x):
        if self.parallel:
            h = self.norm(x, 0)
            return self.norm(x + self.attend(h) + self.mlp(h), 1)
        x = x + self.attend(self.norm(x, 0))
        return x + self.mlp(self.norm(x, 1))


KINDS = {"llama": {}, "mistral": {"window": 2}, "mixtral": {"experts": 3}, "phi": {"parallel": True}}


@pytest.mark.full
@pytest.mark.parametrize("name", KINDS)
def test_decoders(name):
    model = Decoder(**KINDS[name])
    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)
    block = tf.recompute_grad(model) if name == "llama" else model
    check_gradients(lambda x: tf.reduce_mean(block(x) ** 3), model.trainable_variables, x)


CTC_LOGITS = np.random.default_rng(0).normal(size=(9, 4, 5)).astype(np.float32)
# Padded with zeros; two equal labels in a row; sequences and labels of different lengths.
CTC_LABELS = np.array([[1, 2, 3, 0], [2, 2, 0, 0], [3, 0, 0, 0], [1, 1, 2, 3]], np.int32)
CTC_LENGTHS, CTC_TIMES = np.array([3, 2, 1, 4], np.int32), np.array([9, 7, 5, 9], np.int32)


def _dense(blank, **options):
    return lambda x, labels, lengths, times: tf.nn.ctc_loss(labels, x, lengths, times, blank_index=blank, **options)


def _sparse(blank):
    def fn(x, labels, lengths, times):
        return tf.nn.ctc_loss(tf.sparse.from_dense(labels), x, None, times, blank_index=blank)

    return fn


def _keras_2(x, labels, lengths, times):
    """Return Keras 2's loss: masked label indices are padded with 0, not -1."""
    backend = pytest.importorskip("tf_keras").backend
    shares = tf.transpose(tf.nn.softmax(x), [1, 0, 2])
    return tf.squeeze(backend.ctc_batch_cost(labels, shares, times[:, None], lengths[:, None]), 1)


CTC = {
    "dense": _dense(0),
    "dense, last class": _dense(-1),
    "dense, a class between": _dense(4),
    "batch first": lambda x, *a: _dense(0, logits_time_major=False)(tf.transpose(x, [1, 0, 2]), *a),
    "sparse, last class": _sparse(-1),
    "sparse, first class": _sparse(0),
    "Keras 2": _keras_2,
    "TF1": lambda x, labels, lengths, times: tf.compat.v1.nn.ctc_loss(
        tf.sparse.from_dense(labels), x, times, preprocess_collapse_repeated=True
    ),
}


def _slow_but(names, *quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.full
@pytest.mark.parametrize("name", _slow_but(CTC, "dense"))
def test_ctc_loss(name):
    """The dense form's captured loop has log(0): zeros through it give NaN."""
    scales = tf.constant([1.0, 2.0, 3.0, 4.0])
    function = tf.function(lambda *args: tf.reduce_sum(CTC[name](*args) * scales))
    arrays = CTC_LOGITS, CTC_LABELS, CTC_LENGTHS, CTC_TIMES
    x = tf.constant(CTC_LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        expected = function(x, *arrays[1:])
    gradient = tape.gradient(expected, x)
    with tf2jax.override_config("dynamic_shape_bound", 12):  # more than there are: sparse labels are padded
        jax_fn = tf2jax.convert_functional(function, *(tf.TensorSpec(a.shape, a.dtype) for a in arrays))
    both = [np.stack([a, a]) for a in arrays]
    loss, actual = jax.jit(jax.vmap(jax.value_and_grad(jax_fn)))(*both)
    np.testing.assert_allclose(loss, [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(actual, [gradient] * 2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.grad(jax_fn)(*arrays), gradient, rtol=1e-4, atol=1e-5)


def _tfp():
    return pytest.importorskip("tensorflow_probability")


@pytest.mark.full
def test_gaussian_process():
    tfp = _tfp()
    points = np.linspace(-1, 1, 8).astype(np.float32)[:, None]
    observed = np.sin(3 * points[:, 0])

    def fn(amplitude, scale):
        kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(amplitude, scale)
        process = tfp.distributions.GaussianProcess(kernel, points, observation_noise_variance=0.1)
        return process.log_prob(observed)

    check_gradients(fn, [], np.float32(1.3), np.float32(0.6), rtol=2e-3)


@pytest.mark.full
@pytest.mark.parametrize("name", _slow_but(["gamma", "beta", "dirichlet", "student"], "gamma"))
def test_reparameterized_sampling(name):
    """The graph calls accelerators' sampler; TensorFlow runs that for CPU."""
    made = _tfp().distributions
    sample = {
        "gamma": lambda a, b: made.Gamma(a, b),
        "beta": lambda a, b: made.Beta(a, b),
        "dirichlet": lambda a, b: made.Dirichlet(a * b),
        "student": lambda a, b: made.StudentT(2 + a, b, b),
    }[name]
    weights = tf.constant([[1.0, 2.0, -1.0]] * 5, tf.float64)
    with jax.enable_x64(True):
        check_gradients(
            lambda a, b: tf.reduce_sum(sample(a, b).sample(5, seed=[1, 2]) * weights),
            [],
            np.array([0.5, 2.0, 7.0]),
            np.array([1.0, 2.0, 3.0]),
            rtol=1e-8,
        )
