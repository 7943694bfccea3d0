"""SCAFFOLD: control variates take the clients' drift out of their steps.

Source: Karimireddy et al. 2019.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import UnweightedMeanFactory
from tf2jax_lite.federated.aggregators.privacy import aggregation_key
from tf2jax_lite.federated.client_work import ClientResult, ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import (
    apply_non_trainable,
    check_state,
    checked_ids,
    finite_outputs,
    first_predictions,
    initial_weights,
    keep_finite,
    replaced_weights,
    results_of,
    round_keys,
    split_diagnostics,
    update_route,
    with_diagnostics,
)
from tf2jax_lite.federated.execution import CohortRunner, Execution
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, as_entries, cohort_of
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.metrics import check_metrics
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights, PyTree, round_metrics
from tf2jax_lite.learning.states import ByClient


class ScaffoldState(NamedTuple):
    """The server's state.

    Attributes:
      round: int32 scalar, rounds done.
      key: the training's JAX key.
      weights: the model's weights, x.
      control: the server's control variate c, in the form of the trainable weights; float32 or wider, as the means of
        gradients that control variates are round away in half precision.
      client_controls: client id to its control variate, on the host; a client that never took part has zeros.
      aggregator: the aggregator's state.
    """

    round: Any
    key: Any
    weights: ModelWeights
    control: PyTree
    client_controls: ByClient
    aggregator: PyTree


class _Message(NamedTuple):
    weights: ModelWeights
    control: PyTree


class _Carry(NamedTuple):
    inner: Any
    control: PyTree


def _client_work(model: Model, learning_rate: float, train_metrics: Mapping[str, Any] | None) -> ClientWork:
    def work(correction: PyTree) -> ClientWork:
        shift = optax.stateless(lambda grads, _: jax.tree.map(jnp.add, grads, correction))
        sgd = optax.chain(shift, optax.sgd(learning_rate))
        return build_model_delta_client_work(model, sgd, client_weighting="uniform", train_metrics=train_metrics)

    def client_init(state: Any, message: _Message, key: Any, control: PyTree) -> _Carry:
        control = jax.tree.map(jnp.asarray, control)
        return _Carry(work(message.control).client_init(state, message.weights, key, None), control)

    def client_step(state: Any, message: _Message, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        correction = optax.tree.sub(message.control, carry.control)
        inner = work(correction).client_step(state, message.weights, carry.inner, batch)
        return carry._replace(inner=inner)

    def client_final(state: Any, message: _Message, carry: _Carry) -> ClientResult:
        found = work(message.control).client_final(state, message.weights, carry.inner)
        steps = jnp.maximum(carry.inner.step, 1).astype(jnp.float32)
        # Option II of the paper: c_i <- c_i - c + (x - y_i) / (K * lr).
        control = jax.tree.map(
            lambda own, server, update: own - server + update / (steps * learning_rate),
            carry.control,
            message.control,
            found.update,
        )
        update = {"weights": found.update, "control": optax.tree.sub(carry.control, control)}
        return found._replace(update=update, output=control)

    outer = work(None)
    return ClientWork(outer.initialize, client_init, client_step, client_final, outer.advance, outer.pads_batches)


def build_scaffold(
    model: Model,
    num_clients: int,
    client_learning_rate: float,
    *,
    server_learning_rate: float = 1.0,
    train_metrics: Mapping[str, Any] | None = None,
    aggregator: Any = None,
    client_diagnostics: bool = False,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> LearningProcess[ScaffoldState]:
    """Build SCAFFOLD, with the paper's option II for control variates.

    Clients step y <- y - lr * (g(y) - c_i + c); the server x <- x + server_lr * mean(y_i - x) and
    c <- c + |S|/N * mean(change of c_i). Every client counts the same.

    Args:
      model: the model.
      num_clients: N, how many clients there are in all.
      client_learning_rate: lr of the clients' SGD.
      server_learning_rate: of the server.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: of ``{"weights": ..., "control": ...}``, both initial minus final; the unweighted mean by default.
      client_diagnostics: see `compose_learning_process`.
      client_batching: see `compose_learning_process`.
      client_execution: see `compose_learning_process`.
      clients_per_chunk: see `compose_learning_process`.
      mesh: see `compose_learning_process`.

    Returns:
      The process. ``client_data`` is a list of pairs ``(client id, data)`` or a sampler's triples: a client's control
      variate is kept under its id in the state, on the host. A client whose update is not finite keeps the one it had.

    Raises:
      InputError: an option out of range; clients without ids, or one twice.
    """
    check_number("build_scaffold", "num_clients", num_clients, least=1, whole=True)
    check_number("build_scaffold", "client_learning_rate", client_learning_rate, above=0)
    check_number("build_scaffold", "server_learning_rate", server_learning_rate, above=0)
    # Numbers of NumPy's would widen bfloat16.
    client_rate, server_rate = float(client_learning_rate), float(server_learning_rate)
    model = check_model(model)
    template = model.shapes.trainable
    work = _client_work(model, client_rate, check_metrics("build_scaffold", "train_metrics", train_metrics))
    controls = jax.tree.map(lambda t: jax.ShapeDtypeStruct(t.shape, jnp.promote_types(t.dtype, jnp.float32)), template)
    form = {"weights": template, "control": controls}
    route = update_route("build_scaffold", aggregator or UnweightedMeanFactory(), form, model)
    aggregation = route.aggregation
    private = "differential privacy" in aggregation.guarantees
    training = with_diagnostics(work, lambda update: update["weights"]) if client_diagnostics else work
    runner = CohortRunner(route.packed(training), aggregation, client_execution, clients_per_chunk, mesh)
    none = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), controls)
    controls_of_none = ByClient(none)

    def initialize(key: Any = None, *, params: Any = None) -> ScaffoldState:
        key = jax.random.key(0) if key is None else key
        weights = initial_weights(model, key, params)
        zeros = jax.tree.map(jnp.asarray, none)
        return ScaffoldState(jnp.int32(0), key, weights, zeros, controls_of_none, aggregation.initialize())

    @jax.jit
    def end(state: ScaffoldState, total: Any, aggregator_key: Any, cohort_size: Any) -> Any:
        found = aggregation.report(state.aggregator, total.aggregate, aggregator_key)
        # How many took part is not private; how many were asked is no secret.
        share = (cohort_size if private else total.participated).astype(jnp.float32) / num_clients
        update, sums, weight = route.unpack(found.result, total)
        weights = apply_non_trainable(model, state.weights, sums, weight)
        step = jax.tree.map(lambda w, u: w - server_rate * u, weights.trainable, update["weights"])
        control = jax.tree.map(lambda c, d: c - share * d, state.control, update["control"])
        moved, refused = keep_finite(
            (state.weights, state.control, state.aggregator),
            (weights._replace(trainable=step), control, found.state),
        )
        return *moved, found.measurements, results_of(total.measurements), refused

    def next_fn(state: ScaffoldState, client_data: Sequence[Any]) -> LearningProcessOutput:
        check_state(state, ScaffoldState)
        entries = as_entries(client_data)
        ids = checked_ids("build_scaffold", entries)
        keys = round_keys(state.key, state.round)
        inputs = [state.client_controls.of(i) for i in ids]
        message = _Message(state.weights, state.control)
        key = aggregation_key(aggregation, keys.aggregator)
        context = Context(state.round, state.aggregator, message, keys.clients, key)
        cohort = cohort_of(entries, client_batching, state.key, int(state.round), inputs)
        cohort = dataclasses.replace(cohort, check=first_predictions(model, state.weights, client_batching))
        result = runner.run(context, cohort)
        diagnostics = {}
        if client_diagnostics:
            diagnostics["client_diagnostics"], result = split_diagnostics(cohort, result)
        bare = state._replace(client_controls=controls_of_none)
        weights, control, aggregator_state, measured, train, refused = end(
            bare, result.total, key, jnp.int32(len(cohort))
        )
        controls = state.client_controls.updated(finite_outputs(ids, result))
        new = ScaffoldState(state.round + 1, state.key, weights, control, controls, aggregator_state)
        metrics = {
            "client_work": {"train": train},
            "aggregator": measured,
            "clients": dict(result.counts) | {"round_refused": refused},
            **diagnostics,
        }
        return LearningProcessOutput(new, round_metrics(aggregation, metrics, result.refused))

    return LearningProcess(
        initialize,
        next_fn,
        lambda state: state.weights,
        lambda state, weights: state._replace(weights=replaced_weights(model, state.key, weights)),
        takes_client_ids=True,
        guarantees=aggregation.guarantees,
    )
