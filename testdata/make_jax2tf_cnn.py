"""Make testdata/jax2tf_cnn, a SavedModel as JAX models are served.

Usage: ``python testdata/make_jax2tf_cnn.py``.

A flax CNN with attention over its pixels, through jax2tf with gradients and a polymorphic batch. Weights are random.
"""

import os
import shutil
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import flax.linen as nn
import jax
import jax.numpy as jnp
import tensorflow as tf
from jax.experimental import jax2tf

HERE = Path(__file__).parent


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, image):
        x = nn.relu(nn.Conv(8, (3, 3))(image))
        x = nn.BatchNorm(use_running_average=True)(x)
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        return nn.Dense(3)(nn.gelu(x.mean(1)))


MODEL = Classifier()


def predict(variables, image):
    """Logits and probabilities of images of shape (batch, 8, 8, 1)."""
    logits = MODEL.apply(variables, image)
    return {"logits": logits, "probabilities": jax.nn.softmax(logits)}


def variables():
    return MODEL.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)))


def _name(path):
    return "/".join(entry.key for entry in path[1:])


def save(path):
    weights = variables()
    converted = jax2tf.convert(predict, with_gradient=True, polymorphic_shapes=[None, "b, 8, 8, 1"])
    module = tf.Module()
    # The paths of flax' parameters become the names of variables, and so of params.
    module.weights = jax.tree.map_with_path(lambda path, w: tf.Variable(w, name=_name(path)), weights)
    module.predict = tf.function(
        lambda image: converted(module.weights, image),
        autograph=False,
        input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32, "image")],
    )
    signatures = {"serving_default": module.predict}
    # With gradients: they are found again when the model is differentiated after loading.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(path), signatures=signatures, options=options)


def main():
    target = HERE / "jax2tf_cnn"
    shutil.rmtree(target, ignore_errors=True)
    save(target)
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    print(f"{target.name}: {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
