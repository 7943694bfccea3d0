"""Text generation with a key-value cache: tokens as TensorFlow's."""

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke

WORDS, WIDTH, HEADS, DEPTH, LENGTH = 40, 8, 2, 2, 10
STOP = 7


class Decoder(keras.Model):
    """One step of a causal transformer, with its cache as argument and result."""

    def __init__(self):
        super().__init__()
        layers = keras.layers
        self.words, self.positions = layers.Embedding(WORDS, HEADS * WIDTH), layers.Embedding(LENGTH, HEADS * WIDTH)
        self.blocks = [
            [layers.LayerNormalization(), layers.Dense(3 * HEADS * WIDTH), layers.Dense(HEADS * WIDTH)]
            for _ in range(DEPTH)
        ]
        self.logits = layers.Dense(WORDS)

    def call(self, token, position, cache):
        x = self.words(token) + self.positions(position)
        for i, (norm, project, out) in enumerate(self.blocks):
            q, k, v = tf.unstack(tf.reshape(project(norm(x)), [-1, 3, HEADS, WIDTH]), axis=1)
            new = tf.stack([k, v])[None, :, :, None]
            cache = keras.ops.slice_update(cache, [i, 0, 0, position, 0, 0], new)
            scores = tf.einsum("bhd,bthd->bht", q, cache[i, 0]) / WIDTH**0.5
            weights = tf.nn.softmax(tf.where(tf.range(LENGTH) <= position, scores, -1e9))
            x += out(tf.reshape(tf.einsum("bht,bthd->bhd", weights, cache[i, 1]), [-1, HEADS * WIDTH]))
        return self.logits(x), cache


class Generator:
    """Greedy and sampled generation, which ends when every row has the stop token."""

    def __init__(self):
        keras.utils.set_random_seed(0)
        self.decoder = Decoder()

    def _generate(self, prompt, choose):
        size = tf.shape(prompt)[1]
        tokens = tf.pad(prompt, [[0, 0], [0, LENGTH - size]])
        cache = tf.zeros([DEPTH, 2, tf.shape(prompt)[0], LENGTH, HEADS, WIDTH])
        for i in tf.range(LENGTH - 1):
            logits, cache = self.decoder(tokens[:, i], i, cache)
            if i + 1 >= size:
                tokens = keras.ops.slice_update(tokens, [0, i + 1], choose(logits, i)[:, None])
            if tf.reduce_all(tf.reduce_any(tokens == STOP, 1)):
                break
        return {"tokens": tokens}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32, "prompt")])
    def greedy(self, prompt):
        return self._generate(prompt, lambda logits, i: tf.argmax(logits, 1, tf.int32))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int32, "prompt"), tf.TensorSpec([2], tf.int32, "seed")])
    def sampled(self, prompt, seed):
        def choose(logits, i):
            logits = tf.where(logits < tf.math.top_k(logits, 8)[0][:, -1:], -1e9, logits)
            return tf.random.stateless_categorical(logits, 1, seed + i, tf.int32)[:, 0]

        return self._generate(prompt, choose)


@pytest.mark.full
def test_tokens_through_the_command_line(tmp_path):
    generator = Generator()
    prompt, seed = np.array([[1, 2, 3], [9, 8, 5]], np.int32), np.array([3, 4], np.int32)
    archive = keras.export.ExportArchive()
    signatures = {"greedy": generator.greedy, "sampled": generator.sampled}
    for name, function in signatures.items():
        archive.add_endpoint(name, function)
    archive.write_out(tmp_path / "model", verbose=False)
    result = invoke("convert", tmp_path / "model", tmp_path / "out", "--platforms", "cpu")
    assert result.exit_code == 0, result.output
    for name, inputs in {"greedy": {"prompt": prompt}, "sampled": {"prompt": prompt, "seed": seed}}.items():
        np.savez(tmp_path / "x.npz", **inputs)
        options = ["--signature", name, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"]
        result = invoke("run", tmp_path / "out", *options)
        assert result.exit_code == 0, result.output
        with np.load(tmp_path / "y.npz") as found:
            np.testing.assert_array_equal(found["tokens"], signatures[name](**inputs)["tokens"])


@pytest.mark.full
@pytest.mark.parametrize("sampler", ["greedy", "random", "top_p"])
@pytest.mark.parametrize("stop", [None, [STOP]], ids=["", "stop"])
def test_keras_hub_generates_the_same_tokens(sampler, stop):
    hub = pytest.importorskip("keras_hub")
    keras.utils.set_random_seed(0)
    backbone = hub.models.GPT2Backbone(
        vocabulary_size=WORDS, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32, max_sequence_length=12
    )
    samplers = {"random": hub.samplers.RandomSampler(seed=1), "top_p": hub.samplers.TopPSampler(p=0.7, seed=1)}
    model = hub.models.GPT2CausalLM(backbone, preprocessor=None)
    model.compile(sampler=samplers.get(sampler, sampler))
    ids = np.zeros((2, 12), np.int32)
    ids[:, :3] = [[1, 2, 3], [9, 8, 5]]
    inputs = {"token_ids": ids, "padding_mask": np.arange(12) < np.array([[3], [2]])}
    generate = tf.function(lambda inputs: model.generate_step(inputs, stop_token_ids=stop)["token_ids"])
    fn, params = tf2jax.convert(generate, {name: tf.constant(value) for name, value in inputs.items()})
    for _ in range(2):  # the state of the sampler's seed goes on
        found, params = jax.jit(fn)(params, inputs)
        np.testing.assert_array_equal(found, generate(inputs))
