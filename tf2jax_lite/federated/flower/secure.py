"""Secure aggregation by Flower's SecAgg+: the server sees masked sums alone.

Flower offers it for its legacy messages only: a workflow at the server, which calls a strategy of
``flwr.server.strategy``, and ``flwr.client.mod.secaggplus_mod`` at clients. A client's update travels as one vector.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import WARNING
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app import Context as FlowerContext
from flwr.common import FitIns, log, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import Strategy as FormerStrategy
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import Grid, ServerApp
from jax.flatten_util import ravel_pytree

from tf2jax_lite.federated.compose import (
    Finalizer,
    apply_non_trainable,
    build_add_finalizer,
    initial_weights,
    keep_finite,
)
from tf2jax_lite.federated.flower.records import UPDATE, array_names, from_arrays, to_arrays
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.model import Model, changing_values, check_model
from tf2jax_lite.learning.process import ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError

# Names of the records in Flower's legacy messages.
_PARAMETERS, _CONFIG = "fitins.parameters", "fitins.config"


def is_fit(message: Message) -> bool:
    """Return whether a message is one of Flower's legacy ones, to train."""
    return _PARAMETERS in message.content.array_records


def fit_message(message: Message, template: ModelWeights) -> tuple[ModelWeights, ConfigRecord]:
    """Return the weights and options of a legacy message.

    Raises:
      InputError: it is not of a server of `secure_server_app` for this model.
    """
    where = "a message of a server of secure aggregation"
    config = message.content.config_records[_CONFIG]
    if config.get("reply") != UPDATE:
        raise InputError(f"{where} asks for {config.get('reply')!r}, not for {UPDATE!r}; use secure_server_app")
    arrays = message.content.array_records[_PARAMETERS].values()
    return from_arrays(dict(zip(array_names(template), arrays, strict=False)), template, where), config


def fit_reply(message: Message, update: PyTree, weight: Any) -> Message:
    """Return the reply to a legacy message: an update, to be weighted and masked."""
    records = {
        "fitres.parameters": ArrayRecord({"0": Array(np.asarray(ravel_pytree(update)[0], np.float32))}),
        "fitres.num_examples": MetricRecord({"num_examples": float(weight)}),
        "fitres.metrics": ConfigRecord(),
        "fitres.status": ConfigRecord({"code": 0, "message": ""}),
    }
    return Message(RecordDict(records), reply_to=message)  # pyright: ignore[reportArgumentType]


def secure_server_app(
    workflow: Callable[[Grid, Any], None],
    model: Model,
    *,
    finalizer: Finalizer | None = None,
    num_rounds: int = 3,
    clients_per_round: int | None = None,
    min_available_nodes: int = 3,
    key: Any = None,
    params: Any = None,
    evaluate_fn: Callable[[int, ModelWeights], Any] | None = None,
    on_result: Callable[[ModelWeights, Any], None] | None = None,
) -> ServerApp:
    """Make a Flower ``ServerApp`` that sees only the weighted mean of updates.

    Clients are `client_app`s with ``mods=[flwr.client.mod.secaggplus_mod]``. A client that drops out is left out of the
    mean; a round with fewer clients than the workflow's threshold changes nothing.

    Args:
      workflow: ``flwr.server.workflow.SecAggPlusWorkflow``. Its ``clipping_range`` bounds each number of an update, its
        ``max_weight`` a client's number of examples.
      model: the model; server and clients must have the same.
      finalizer: the server's update by the mean; it takes a step of SGD of rate 1 by default.
      num_rounds: rounds of training; the run's ``num-server-rounds`` overrides it.
      clients_per_round: how many nodes train in a round; None for all that are connected.
      min_available_nodes: wait for as many nodes before a round; 3 or more.
      key: the JAX key that new weights are drawn with; ``key(0)`` by default.
      params: the weights to begin with, instead of new ones.
      evaluate_fn: ``(round, weights) -> metrics`` at the server; ``loss`` among them is logged as the loss.
      on_result: called at the end with the weights and Flower's ``History``.

    Returns:
      The app, for ``[tool.flwr.app.components]``.

    Raises:
      InputError: a number is out of range.
    """
    check_number("secure_server_app", "num_rounds", num_rounds, least=0, whole=True)
    check_number("secure_server_app", "min_available_nodes", min_available_nodes, least=3, whole=True)
    if clients_per_round is not None:
        check_number("secure_server_app", "clients_per_round", clients_per_round, least=3, whole=True)
    app = ServerApp()
    check_model(model)

    @app.main()
    def main(grid: Grid, context: FlowerContext) -> None:
        weights = initial_weights(model, jax.random.key(0) if key is None else key, params)
        strategy = _MaskedMean(model, weights, finalizer or build_add_finalizer(), evaluate_fn)
        strategy.clients_per_round, strategy.min_nodes = clients_per_round, min_available_nodes
        config = ServerConfig(num_rounds=int(context.run_config.get("num-server-rounds", num_rounds)))
        legacy = LegacyContext(context, config, strategy)
        DefaultWorkflow(fit_workflow=workflow)(grid, legacy)
        if on_result is not None:
            on_result(strategy.weights, legacy.history)

    return app


class _MaskedMean(FormerStrategy):
    """The strategy that Flower's workflow calls: a finalizer's step by the mean."""

    clients_per_round: int | None = None
    min_nodes = 3

    def __init__(self, model: Model, weights: ModelWeights, finalizer: Finalizer, evaluate_fn: Any):
        self._model, self.weights, self._finalizer, self._evaluate_fn = model, weights, finalizer, evaluate_fn
        self._state = finalizer.initialize(weights)
        zeros = jax.tree.map(jnp.zeros_like, (weights.trainable, changing_values(model, weights.non_trainable)))
        flat, self._unravel = ravel_pytree(zeros)
        self._size = flat.size

    def _sent(self) -> Any:
        return ndarrays_to_parameters([array.numpy() for array in to_arrays(self.weights).values()])

    def initialize_parameters(self, client_manager: Any) -> Any:
        return self._sent()

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        client_manager.wait_for(max(self.min_nodes, self.clients_per_round or 1))
        proxies = client_manager.sample(self.clients_per_round or client_manager.num_available())
        return [
            (proxy, FitIns(self._sent(), {"server-round": server_round, "index": index, "reply": UPDATE}))
            for index, proxy in enumerate(proxies)
        ]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        if not results:
            return None, {}
        (mean,) = parameters_to_ndarrays(results[0][1].parameters)  # the workflow gives each client the same mean
        if mean.shape != (self._size,):
            log(WARNING, "round %s changes nothing: the clients' updates are not of this model", server_round)
            return self._sent(), {}
        update, changes = self._unravel(jnp.asarray(mean, jnp.float32))
        done = self._finalizer.next(self._state, self.weights, update)
        weights = apply_non_trainable(self._model, done.result, changes, jnp.float32(1))
        (self._state, self.weights), _ = keep_finite((self._state, self.weights), (done.state, weights))
        return self._sent(), {}

    def configure_evaluate(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        return []

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        return None, {}

    def evaluate(self, server_round: int, parameters: Any) -> Any:
        if self._evaluate_fn is None:
            return None
        found = {name: float(value) for name, value in self._evaluate_fn(server_round, self.weights).items()}
        return found.get("loss", 0.0), found
