"""Mime and Mime Lite: clients step with the server's optimizer state.

Only the server updates that state.

Source: Karimireddy et al. 2020, "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning";
fedjax.algorithms.mime and mime_lite, tff.learning.algorithms.build_mime_lite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from tf2jax_lite.federated.aggregators import MeanFactory, UnweightedMeanFactory
from tf2jax_lite.federated.aggregators.base import as_aggregator, tree_norm
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientResult,
    ClientWeighting,
    ClientWork,
    build_fed_sgd_client_work,
    build_model_delta_client_work,
)
from tf2jax_lite.federated.compose import (
    Finalizer,
    LearningState,
    Survey,
    Surveyed,
    build_apply_optimizer_finalizer,
    check_optimizer,
    compose_learning_process,
)
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import BatchHParams
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, check_model, model_value_and_grad, with_cpu_rules
from tf2jax_lite.learning.process import LearningProcess, MeasuredProcessOutput, ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError


class _ServerState(NamedTuple):
    base: PyTree
    server: PyTree


class _Message(NamedTuple):
    weights: ModelWeights
    optimizer: PyTree
    gradient: PyTree


def _mimicking(base: optax.GradientTransformation, state: PyTree, correction: PyTree) -> optax.GradientTransformation:
    """Return ``base`` with fixed state, for gradients plus ``correction``."""

    def update(grads: PyTree, unused: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        corrected = grads if correction is None else jax.tree.map(jnp.add, grads, correction)
        return base.update(corrected, state, params)[0], unused

    return optax.GradientTransformation(lambda params: (), update)  # type: ignore[arg-type]


def _client_work(
    model: Model,
    base: optax.GradientTransformation,
    weighting: ClientWeighting | str,
    train_metrics: Mapping[str, Any] | None,
    *,
    lite: bool,
) -> ClientWork:
    """Return FedAvg's training pass, with an optimizer made of the message."""
    value_and_grad = model_value_and_grad(with_cpu_rules(model))

    def work(message: _Message, correction: PyTree = None) -> ClientWork:
        optimizer = _mimicking(base, message.optimizer, correction)
        return build_model_delta_client_work(model, optimizer, client_weighting=weighting, train_metrics=train_metrics)

    plain = build_model_delta_client_work(model, base, client_weighting=weighting, train_metrics=train_metrics)

    def client_init(state: Any, message: _Message, key: Any, client_input: Any) -> Any:
        return work(message).client_init(state, message.weights, key, client_input)

    def client_step(state: Any, message: _Message, carry: Any, batch: Mapping[str, Any]) -> Any:
        correction = None
        if not lite:
            key = jax.random.fold_in(carry.key, carry.step)  # the same Dropout in both gradients
            _, at_server = value_and_grad(message.weights, batch, key)
            correction = jax.tree.map(jnp.subtract, message.gradient, at_server)
        return work(message, correction).client_step(state, message.weights, carry, batch)

    def client_final(state: Any, message: _Message, carry: Any) -> ClientResult:
        return plain.client_final(state, message.weights, carry)

    return dataclasses.replace(plain, client_init=client_init, client_step=client_step, client_final=client_final)


def _finalizer(base: optax.GradientTransformation, server: Finalizer) -> Finalizer:
    """Return the update of the base optimizer's state and the server's step."""

    def next_fn(state: _ServerState, weights: ModelWeights, found: Surveyed) -> MeasuredProcessOutput:
        _, base_state = base.update(found.survey, state.base, weights.trainable)
        done = server.next(state.server, weights, found.aggregate)
        measured = {"gradient_norm": tree_norm(found.survey), "update_norm": tree_norm(found.aggregate)}
        return MeasuredProcessOutput(_ServerState(base_state, done.state), done.result, measured)

    return Finalizer(lambda weights: _ServerState(base.init(weights.trainable), server.initialize(weights)), next_fn)


@takes_tff_keywords
def build_mime(
    model: Model,
    base_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    server_learning_rate: float = 1.0,
    client_weighting: ClientWeighting | str = ClientWeighting.NUM_EXAMPLES,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    full_gradient_aggregator: Any = None,
    client_batching: Batching | None = None,
    lite: bool = False,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Mime.

    Clients: y <- y - U(g(y) - g(x) + c, s). Server: s <- V(c, s) and x <- x + lr * mean(y - x). x are the server's
    weights, c is the mean gradient there of all the round's examples (a first pass over the clients), s the state of
    the base optimizer, U its step and V its update of the state.

    Args:
      model: the model.
      base_optimizer: an optax transformation with its learning rate, such as ``optax.sgd(0.1, momentum=0.9)``.
      server_optimizer: takes the mean of x - y for a gradient; SGD of rate lr by default.
      server_learning_rate: lr, without a server optimizer.
      client_weighting: how clients' changes are weighted.
      train_metrics: see `build_weighted_fed_avg`.
      aggregator: of the changes; see `compose_learning_process`.
      full_gradient_aggregator: of the first pass's gradients; their mean, weighted by examples, by default. If
        ``aggregator`` is private, robust or secure, it must be as well; with differential privacy in both, a round
        counts as two for the accountant.
      client_batching: of the training pass; the first pass takes each example once, in batches of the same size.
      lite: leave out the correction -g(x) + c: see `build_mime_lite`.
      **options: see `compose_learning_process`.

    Raises:
      InputError: an option does not fit; a function of the round's number as optimizer, for one.
    """
    check_number("build_mime", "server_learning_rate", server_learning_rate, above=0)
    check_optimizer(base_optimizer, "build_mime: base_optimizer")
    server = optax.sgd(float(server_learning_rate)) if server_optimizer is None else server_optimizer
    metrics = check_metrics("build_mime", "train_metrics", train_metrics)
    model = check_model(model)
    template = model.shapes.trainable
    gradients = as_aggregator(MeanFactory() if full_gradient_aggregator is None else full_gradient_aggregator, template)
    survey = Survey(
        build_fed_sgd_client_work(model, client_weighting="uniform" if gradients.refuses_weights else "num_examples"),
        gradients,
        lambda weights, state, gradient: _Message(weights, state.base, gradient),
        None if client_batching is None else BatchHParams(client_batching.batch_size),
    )
    return compose_learning_process(
        model,
        client_work=_client_work(model, base_optimizer, client_weighting, metrics, lite=lite),
        aggregator=MeanFactory() if aggregator is None else aggregator,
        finalizer=_finalizer(base_optimizer, build_apply_optimizer_finalizer(server)),
        survey=survey,
        client_batching=client_batching,
        **options,
    )


@takes_tff_keywords
def build_weighted_mime_lite(
    model: Model,
    base_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Mime Lite: y <- y - U(g(y), s) at clients; see `build_mime`.

    See tff.learning.algorithms.build_weighted_mime_lite.

    Args:
      model: the model.
      base_optimizer: whose state the clients use; the server updates it.
      server_optimizer: applies the clients' mean change.
      **options: as for `build_mime`.
    """
    return build_mime(model, base_optimizer, server_optimizer, lite=True, **options)


build_mime_lite = build_weighted_mime_lite


@takes_tff_keywords
def build_unweighted_mime_lite(
    model: Model,
    base_optimizer: optax.GradientTransformation,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    aggregator: Any = None,
    full_gradient_aggregator: Any = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Mime Lite in which every client counts the same, in both passes.

    See tff.learning.algorithms.build_unweighted_mime_lite.

    Args:
      model: the model.
      base_optimizer: whose state the clients use; the server updates it.
      server_optimizer: applies the clients' mean change.
      aggregator: of changes; the unweighted mean by default.
      full_gradient_aggregator: of gradients; the unweighted mean by default.
      **options: as for `build_mime`.
    """
    return build_weighted_mime_lite(
        model,
        base_optimizer,
        server_optimizer,
        client_weighting=ClientWeighting.UNIFORM,
        aggregator=UnweightedMeanFactory() if aggregator is None else aggregator,
        full_gradient_aggregator=full_gradient_aggregator or UnweightedMeanFactory(),
        **options,
    )


@takes_tff_keywords
def build_mime_lite_with_optimizer_schedule(
    model: Model,
    learning_rate_fn: Callable[[Any], Any],
    base_optimizer: Callable[[Any], optax.GradientTransformation],
    server_optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> LearningProcess[LearningState]:
    """Build Mime Lite whose clients' learning rate depends on the round.

    See tff.learning.algorithms.build_mime_lite_with_optimizer_schedule.

    Args:
      model: the model.
      learning_rate_fn: ``(round) -> learning rate``; the round counts from 0. It is an optax schedule: the base
        optimizer's state, which counts its steps, takes one a round.
      base_optimizer: ``(schedule) -> optax transformation``, such as ``optax.sgd``.
      server_optimizer: as for `build_mime`.
      **options: as for `build_mime`.

    Raises:
      InputError: ``learning_rate_fn`` or ``base_optimizer`` is no function.
    """
    for name, value in (("learning_rate_fn", learning_rate_fn), ("base_optimizer", base_optimizer)):
        if not callable(value) or isinstance(value, tuple):
            raise InputError(f"build_mime_lite_with_optimizer_schedule: {name} is a function, not {value!r}")
    return build_weighted_mime_lite(model, base_optimizer(learning_rate_fn), server_optimizer, **options)
