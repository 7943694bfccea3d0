"""Agnostic federated averaging: minimize the worst mixture of domains.

Sources: Mohri et al. 2019, Ro et al. 2021 ("Communication-Efficient Agnostic Federated Averaging");
fedjax.algorithms.agnostic_fed_avg.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import MeanFactory, SumFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork, build_model_delta_client_work
from tf2jax_lite.federated.compose import (
    Finalizer,
    LearningState,
    Survey,
    Surveyed,
    check_optimizer,
    compose_learning_process,
)
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import BatchHParams
from tf2jax_lite.learning.metrics import MASK_KEY, check_metrics
from tf2jax_lite.learning.model import Model, model_per_example_loss, pads_batches
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError


class DomainState(NamedTuple):
    """The finalizer's state.

    Attributes:
      optimizer: the server optimizer's state.
      weights: float32 (domains,), the mixture; sums to 1.
      window: float32 (rounds, domains), examples by domain in the last rounds.
    """

    optimizer: PyTree
    weights: Any
    window: Any


class _Message(NamedTuple):
    weights: ModelWeights
    scale: Any


class _Carry(NamedTuple):
    inner: Any
    weight: Any


def _check_domains(examples: Mapping[str, Any], who: str, domains: int, key_name: str) -> None:
    """Raise for domains that do not exist: an index may address another's weight."""
    found = _domain(examples, key_name)
    for wrong in np.unique(found[(found < 0) | (found >= domains)])[:1]:
        raise InputError(f"{who}: {key_name!r} names domain {wrong}; there are domains 0 to {domains - 1}")


def _domain(batch: Mapping[str, Any], key_name: str) -> Any:
    if key_name not in batch:
        there = sorted(batch.keys() - {MASK_KEY})
        raise InputError(f"build_agnostic_fed_avg: a batch has no {key_name!r} (domain_id_key); it has {there}")
    found = batch[key_name]
    if found.ndim != 1 or not jnp.issubdtype(found.dtype, jnp.integer):
        raise InputError(
            f"build_agnostic_fed_avg: {key_name!r} holds integers (n,), each example's domain; not "
            f"{found.dtype}{found.shape}"
        )
    return found


def _survey_work(model: Model, domains: int, key_name: str) -> ClientWork:
    losses_of = model_per_example_loss(model)
    zeros = {"loss": jnp.zeros(domains), "count": jnp.zeros(domains)}

    def client_init(state: Any, message: ModelWeights, key: Any, client_input: Any) -> Any:
        return {"sums": zeros, "key": key, "step": jnp.int32(0)}

    def client_step(state: Any, message: ModelWeights, carry: Any, batch: Mapping[str, Any]) -> Any:
        losses = losses_of(message, batch, jax.random.fold_in(carry["key"], carry["step"]))
        mask = batch.get(MASK_KEY, jnp.ones(losses.shape, bool))
        hot = jax.nn.one_hot(_domain(batch, key_name), domains) * jnp.asarray(mask)[:, None]
        sums = {"loss": losses @ hot, "count": jnp.sum(hot, axis=0)}
        return {**carry, "sums": jax.tree.map(jnp.add, carry["sums"], sums), "step": carry["step"] + 1}

    def client_final(state: Any, message: ModelWeights, carry: Any) -> ClientResult:
        return ClientResult(carry["sums"], jnp.float32(1), [], {}, carry["sums"]["count"])

    pads = pads_batches(model)
    return ClientWork(lambda: (), client_init, client_step, client_final, pads_batches=pads, drops_fill=True)


def _training_work(model: Model, optimizer: Any, key_name: str, train_metrics: Any) -> ClientWork:
    def work(scale: Any, total: Any) -> ClientWork:
        return build_model_delta_client_work(
            model,
            optimizer,
            train_metrics=train_metrics,
            example_weight=lambda batch: scale[_domain(batch, key_name)],
            total_weight=total,
        )

    outer = work(None, None)

    def client_init(state: Any, message: _Message, key: Any, counts: Any) -> _Carry:
        return _Carry(outer.client_init(state, message.weights, key, None), jnp.sum(message.scale * counts))

    def client_step(state: Any, message: _Message, carry: _Carry, batch: Mapping[str, Any]) -> _Carry:
        inner = work(message.scale, carry.weight).client_step(state, message.weights, carry.inner, batch)
        return carry._replace(inner=inner)

    def client_final(state: Any, message: _Message, carry: _Carry) -> ClientResult:
        return outer.client_final(state, message.weights, carry.inner)._replace(update_weight=carry.weight)

    return dataclasses.replace(
        outer, client_init=client_init, client_step=client_step, client_final=client_final, counts_examples=False
    )


def build_agnostic_fed_avg(
    model: Model,
    client_optimizer: Any,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    init_domain_weights: Sequence[float],
    init_domain_window: Sequence[Sequence[float]],
    domain_learning_rate: float = 0.1,
    domain_id_key: str = "domain_id",
    train_metrics: Mapping[str, Any] | None = None,
    aggregator: Any = None,
    client_batching: Batching | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build agnostic federated averaging.

    With domain weights w and a window of examples by domain in the last rounds, an example of domain d weighs
    a[d] = w[d] / mean of the window[d], and a client the sum of the weights of all its examples, each once. A client
    steps along the gradient of the sum of its batch's losses times their weights, divided by the *client's* weight: a
    batch is a part of the client's loss, and with k batches an epoch a step is about 1/k of one by the batch's mean.
    Where the window has no example of a domain, the round's number of them takes its place.
    After the round w[d] <- w[d] * exp(lr * mean loss of domain d at the round's first weights), scaled to sum 1
    (exponentiated gradient), and the window moves on.

    Args:
      model: the model.
      client_optimizer: see `build_weighted_fed_avg`.
      server_optimizer: ``optax.sgd(1.0)`` by default.
      init_domain_weights: (domains,), positive; scaled to sum 1.
      init_domain_window: (rounds, domains), positive: examples by domain to start with.
      domain_learning_rate: lr; 0 keeps the weights of domains.
      domain_id_key: the batch's key of the domain's number, integers (n,).
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: the weighted mean by default.
      client_batching: see `compose_learning_process`.
      **options: see `compose_learning_process`.

    Raises:
      InputError: weights or window of the wrong shape, or not positive; when a round runs, a domain out of range.
    """
    check_number("build_agnostic_fed_avg", "domain_learning_rate", domain_learning_rate, least=0)
    metrics = check_metrics("build_agnostic_fed_avg", "train_metrics", train_metrics)
    try:
        start = np.asarray(init_domain_weights, np.float32)
        window = np.asarray(init_domain_window, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"build_agnostic_fed_avg: weights and window of domains are numbers: {error}") from error
    if start.ndim != 1 or window.ndim != 2 or window.shape[1] != len(start) or not len(window):
        raise InputError(
            f"build_agnostic_fed_avg: init_domain_weights is (domains,) and init_domain_window (rounds, domains); got "
            f"{start.shape} and {window.shape}"
        )
    if not (np.all((start > 0) & np.isfinite(start)) and np.all((window > 0) & np.isfinite(window))):
        raise InputError("build_agnostic_fed_avg: init_domain_weights and init_domain_window are positive")
    domains = len(start)
    optimizer = optax.sgd(1.0) if server_optimizer is None else check_optimizer(server_optimizer, "a server optimizer")

    def message(weights: ModelWeights, state: DomainState, found: Any) -> _Message:
        usual = jnp.mean(state.window, axis=0)
        usual = jnp.where(usual > 0, usual, found["count"])
        return _Message(weights, jnp.where(usual > 0, state.weights / jnp.where(usual > 0, usual, 1), 0))

    def finalize(state: DomainState, weights: ModelWeights, found: Surveyed) -> MeasuredProcessOutput:
        updates, opt_state = optimizer.update(found.aggregate, state.optimizer, weights.trainable)
        count = found.survey["count"]
        loss = found.survey["loss"] / jnp.maximum(count, 1)
        # w * exp(lr * loss), scaled to sum 1; as a softmax, large losses do not overflow.
        mixture = jax.nn.softmax(jnp.log(state.weights) + domain_learning_rate * loss)
        moved = jnp.concatenate([state.window[1:], count[None]])
        new = weights._replace(trainable=optax.apply_updates(weights.trainable, updates))
        measured = {"domain_weights": mixture, "domain_loss": loss, "domain_num_examples": count}
        return MeasuredProcessOutput(DomainState(opt_state, mixture, moved), new, measured)

    def initialize(weights: ModelWeights) -> DomainState:
        return DomainState(optimizer.init(weights.trainable), jnp.asarray(start / start.sum()), jnp.asarray(window))

    sums = {name: jax.ShapeDtypeStruct((domains,), jnp.float32) for name in ("loss", "count")}
    survey = Survey(
        _survey_work(model, domains, domain_id_key),
        SumFactory().create(sums),
        message,
        None if client_batching is None else BatchHParams(client_batching.batch_size),
        lambda examples, who: _check_domains(examples, who, domains, domain_id_key),
    )
    return compose_learning_process(
        model,
        client_work=_training_work(model, client_optimizer, domain_id_key, metrics),
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=Finalizer(initialize, finalize),
        survey=survey,
        client_batching=client_batching,
        **options,
    )
