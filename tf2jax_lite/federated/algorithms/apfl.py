"""Adaptive personalized federated learning (APFL).

Sources: Deng et al. 2020, "Adaptive Personalized Federated Learning"; fedjax.algorithms.apfl.
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
from tf2jax_lite.federated.client_work import ClientResult, ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import (
    LearningState,
    build_apply_optimizer_finalizer,
    check_optimizer,
    compose_learning_process,
)
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, check_model, model_value_and_grad, with_cpu_rules
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree
from tf2jax_lite.learning.states import ByClient


class ApflClientState(NamedTuple):
    """A client's state between rounds.

    Attributes:
      params: the client's own trainable weights.
      interpolation_coefficients: the share of ``params`` in each of the client's weights, in [0, 1]; scalars in the
        structure of the trainable weights.
      seen: bool scalar, whether the client has taken part; before, its own weights are the server's.
    """

    params: PyTree
    interpolation_coefficients: PyTree
    seen: Any


class _Carry(NamedTuple):
    inner: Any
    own: ApflClientState
    own_optimizer: PyTree
    share_optimizer: PyTree


def _mixed(shares: PyTree, own: PyTree, server: PyTree) -> PyTree:
    return jax.tree.map(lambda a, v, w: (a * v + (1 - a) * w).astype(w.dtype), shares, own, server)


def _client_work(
    model: Model, optimizer: optax.GradientTransformation, train_metrics: Mapping[str, Metric] | None
) -> ClientWork:
    training = build_model_delta_client_work(model, optimizer, train_metrics=train_metrics)
    value_and_grad = model_value_and_grad(with_cpu_rules(model))

    def client_init(state: Any, message: ModelWeights, key: Any, given: ApflClientState) -> _Carry:
        params = jax.tree.map(lambda v, w: jnp.where(given.seen, v, w), given.params, message.trainable)
        shares = jax.tree.map(jnp.asarray, given.interpolation_coefficients)
        own = ApflClientState(params, shares, jnp.bool_(True))
        inner = training.client_init(state, message, key, None)
        return _Carry(inner, own, optimizer.init(params), optimizer.init(shares))

    def client_step(state: Any, message: ModelWeights, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        own, server = carry.own, carry.inner.trainable
        coefficients = own.interpolation_coefficients
        key = jax.random.fold_in(jax.random.fold_in(carry.inner.key, carry.inner.step), 1)
        personal = ModelWeights(_mixed(coefficients, own.params, server), message.non_trainable)
        _, grads = value_and_grad(personal, batch, key)
        share_grads = jax.tree.map(
            lambda a, v, w, g: jnp.vdot(v - w, g).astype(a.dtype), coefficients, own.params, server, grads
        )
        own_updates, own_optimizer = optimizer.update(grads, carry.own_optimizer, own.params)
        share_updates, share_optimizer = optimizer.update(share_grads, carry.share_optimizer, coefficients)
        shares = jax.tree.map(lambda a: jnp.clip(a, 0, 1), optax.apply_updates(coefficients, share_updates))
        return _Carry(
            training.client_step(state, message, carry.inner, batch),
            ApflClientState(optax.apply_updates(own.params, own_updates), shares, own.seen),
            own_optimizer,
            share_optimizer,
        )

    def client_final(state: Any, message: ModelWeights, carry: _Carry) -> ClientResult:
        return training.client_final(state, message, carry.inner)._replace(output=carry.own)

    return dataclasses.replace(training, client_init=client_init, client_step=client_step, client_final=client_final)


@takes_tff_keywords
def build_apfl(
    model: Model,
    client_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    client_coefficient: float = 0.5,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build APFL. See fedjax.algorithms.apfl.adaptive_personalized_federated_learning.

    Each client keeps weights v and, for each parameter, a share a. With w the weights that it trains for the server,
    a step on a batch is w <- w - U(g(w)), v <- v - U(g(m)) and a <- clip(a - U(<v - w, g(m)>), 0, 1), where
    m = a v + (1 - a) w is the client's own model. The server takes the weighted mean of w alone.

    Args:
      model: the model.
      client_optimizer: an optax transformation, with states of their own for w, v and a.
      server_optimizer: ``optax.sgd(1.0)`` by default.
      client_coefficient: a at first, in [0, 1].
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: the weighted mean by default.
      **options: see `compose_learning_process`.

    Returns:
      The process. Every client needs an id: ``client_data`` is a list of pairs ``(client id, data)``, or a sampler's
      triples. `apfl_model_weights` returns a client's own model. The gradient at m uses the server's non-trainable
      weights.

    Raises:
      InputError: an option does not fit.
    """
    check_number("build_apfl", "client_coefficient", client_coefficient, least=0, most=1)
    check_optimizer(client_optimizer, "build_apfl: client_optimizer")
    metrics = check_metrics("build_apfl", "train_metrics", train_metrics)
    model = check_model(model)
    shapes = model.shapes.trainable
    first = ApflClientState(
        jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes),
        jax.tree.map(lambda leaf: np.float32(client_coefficient), shapes),
        np.bool_(False),
    )
    return compose_learning_process(
        model,
        client_work=_client_work(model, client_optimizer, metrics),
        client_states=ByClient(first),
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0)),
        **options,
    )


def apfl_model_weights(state: LearningState, client_id: Any) -> ModelWeights:
    """Return a client's own model, a v + (1 - a) w.

    It is the server's model if the client has not taken part.

    Args:
      state: the state of a process of `build_apfl`.
      client_id: the client.
    """
    own = state.clients.of(client_id)
    if not own.seen:
        return state.weights
    mixed = _mixed(own.interpolation_coefficients, own.params, state.weights.trainable)
    return state.weights._replace(trainable=mixed)
