"""A training for simulation and Flower: softmax regression, running mean.

The running mean is not trained.
"""

import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators.base import MeanFactory
from tf2jax_lite.federated.client_work import build_model_delta_client_work
from tf2jax_lite.learning import data
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.model import TrainOutput
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.sources import create_model_from_fn

ROUNDS = 3
BATCHING = data.ShuffleRepeatBatchHParams(batch_size=8, num_epochs=2, seed=5, fill_remainder=False)


def _init(key):
    del key
    trainable = {"w": jnp.zeros((6, 3)), "b": jnp.zeros(3)}
    return ModelWeights(trainable, {"mean": jnp.zeros(6), "frozen": jnp.ones((), jnp.bfloat16)})


def _train(weights, batch):
    moved = {**weights.non_trainable, "mean": 0.9 * weights.non_trainable["mean"] + 0.1 * batch["x"].mean(0)}
    return TrainOutput(_predict(weights, batch), moved)


def _predict(weights, batch):
    x = (batch["x"] - weights.non_trainable["mean"]) * weights.non_trainable["frozen"].astype(jnp.float32)
    return x @ weights.trainable["w"] + weights.trainable["b"]


LOSS = named_loss("sparse_categorical_crossentropy", from_logits=True)
MODEL = create_model_from_fn(_init, _train, LOSS, apply_eval=_predict)
WORK = build_model_delta_client_work(MODEL, optax.sgd(0.3))


def empty_config():
    from flwr.app import ConfigRecord

    return ConfigRecord()


def aggregator():
    return MeanFactory()


def clients(number=2):
    """Return clients of different sizes and labels, equal for any number."""
    found = []
    for client in range(number):
        rng = np.random.default_rng(client)
        y = rng.integers(0, 3, 20 + 13 * client).astype(np.int32)
        x = (rng.normal(size=(len(y), 6)) + np.eye(3, 6)[y] * 2 + client / 2).astype(np.float32)
        found.append(data.ClientDataset({"x": x, "y": y}))
    return found
