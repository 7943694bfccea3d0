"""Ditto: federated averaging, and a model of each client's own near the server's.

Source: Li et al. 2021, "Ditto: Fair and Robust Federated Learning Through Personalization".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import MeanFactory
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientOptimizer,
    ClientResult,
    ClientWeighting,
    ClientWork,
    build_model_delta_client_work,
    optimizer_of,
)
from tf2jax_lite.federated.compose import LearningState, build_apply_optimizer_finalizer, compose_learning_process
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree
from tf2jax_lite.learning.states import ByClient


class DittoClientState(NamedTuple):
    """A client's state between rounds.

    Attributes:
      params: the client's own trainable weights.
      seen: bool scalar, whether the client has taken part; before, its own weights are the server's.
    """

    params: PyTree
    seen: Any


class _Carry(NamedTuple):
    shared: Any
    own: Any


def _client_work(shared: ClientWork, own: ClientWork, own_optimizer: ClientOptimizer) -> ClientWork:
    """Return work that trains the server's weights and the client's own."""

    def client_init(state: Any, message: ModelWeights, key: Any, given: DittoClientState) -> _Carry:
        params = jax.tree.map(lambda v, w: jnp.where(given.seen, v, w), given.params, message.trainable)
        begun = own.client_init(state, message, jax.random.fold_in(key, 1), None)
        begun = begun._replace(trainable=params, optimizer=optimizer_of(own_optimizer, state).init(params))
        return _Carry(shared.client_init(state, message, key, None), begun)

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        return _Carry(
            *(work.client_step(state, message, c, batch) for work, c in zip((shared, own), carry, strict=True))
        )

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        found = shared.client_final(state, message, carry.shared)
        return found._replace(output=DittoClientState(carry.own.trainable, jnp.bool_(True)))

    return dataclasses.replace(shared, client_init=client_init, client_step=client_step, client_final=client_final)


@takes_tff_keywords
def build_ditto(
    model: Model,
    proximal_strength: float,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    personal_optimizer: ClientOptimizer | None = None,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Ditto.

    A client trains the server's weights w as in FedAvg, and on the same batches its own weights v, by the gradient of
    its loss plus lambda/2 times the squared distance of v from w. Only w's change leaves it.

    Args:
      model: the model.
      proximal_strength: lambda, 0 or more.
      client_optimizer: see `build_weighted_fed_avg`.
      server_optimizer: see `build_weighted_fed_avg`.
      personal_optimizer: of v; ``client_optimizer`` by default.
      client_weighting: ``"num_examples"`` or ``"uniform"``.
      train_metrics: see `build_weighted_fed_avg`; of w.
      aggregator: the weighted mean by default.
      **options: see `compose_learning_process`.

    Returns:
      The process. Every client needs an id; `ditto_model_weights` returns a client's own model.

    Raises:
      InputError: an option does not fit.
    """
    check_number("build_ditto", "proximal_strength", proximal_strength, least=0)
    own_optimizer = client_optimizer if personal_optimizer is None else personal_optimizer
    model = check_model(model)
    metrics = check_metrics("build_ditto", "train_metrics", train_metrics)
    shared = build_model_delta_client_work(
        model, client_optimizer, client_weighting=client_weighting, train_metrics=metrics
    )
    own = build_model_delta_client_work(model, own_optimizer, proximal_strength=float(proximal_strength))
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), model.shapes.trainable)
    return compose_learning_process(
        model,
        client_work=_client_work(shared, own, own_optimizer),
        client_states=ByClient(DittoClientState(zeros, np.bool_(False))),
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0)),
        **options,
    )


def ditto_model_weights(state: LearningState, client_id: Any) -> ModelWeights:
    """Return a client's own model; the server's if the client has not taken part.

    Args:
      state: the state of a process of `build_ditto`.
      client_id: the client.
    """
    own = state.clients.of(client_id)
    return state.weights._replace(trainable=own.params) if own.seen else state.weights
