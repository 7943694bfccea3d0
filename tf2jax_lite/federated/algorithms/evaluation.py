"""Federated evaluation, and evaluation of personalization.

See tff.learning.algorithms.build_fed_eval.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import SumFactory
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.compose import (
    apply_non_trainable,
    check_state,
    first_predictions,
    initial_weights,
    replaced_weights,
    results_of,
    reusable,
    round_keys,
)
from tf2jax_lite.federated.execution import Cohort, CohortRunner, Execution
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, as_entries, cohort_of
from tf2jax_lite.federated.execution.for_each_client import for_each_client
from tf2jax_lite.learning.checks import check_key, check_number, immutable
from tf2jax_lite.learning.data import ShuffleRepeatBatchHParams
from tf2jax_lite.learning.metrics import MASK_KEY, MeanStat, Stat
from tf2jax_lite.learning.model import (
    Model,
    check_model,
    check_weights,
    evaluate_model,
    evaluate_stats,
    pads_batches,
    whole_weights,
)
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, ModelWeights
from tf2jax_lite.support.errors import InputError


class EvalState(NamedTuple):
    """The state of an evaluation.

    Attributes:
      round: int32 scalar, rounds done.
      weights: the weights that are evaluated.
      totals: the statistics of all rounds; None before the first.
    """

    round: Any
    weights: ModelWeights
    totals: dict[str, Stat] | None


def _zero(model: Model) -> dict[str, Any]:
    zeros = {name: metric.zero() for name, metric in model.eval_metrics.items()}
    return zeros if "loss" in zeros else zeros | {"loss": MeanStat(jnp.float32(0), jnp.int32(0))}


def evaluation_work(model: Model) -> ClientWork:
    """Return the work of evaluating a message's weights on a client's examples."""

    def add(total: Any, stat: Any) -> Any:
        return jax.tree.map(lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), total.merge(stat), total)

    def client_step(state: Any, message: ModelWeights, carry: Any, batch: Mapping[str, Any]) -> Any:
        stats = evaluate_stats(model, message, batch)
        return {name: add(carry[name], stat) for name, stat in stats.items()}

    return ClientWork(
        lambda: (),
        lambda state, message, key, client_input: _zero(model),
        client_step,
        lambda state, message, carry: ClientResult((), jnp.float32(1), [], carry),
        drops_fill=True,
        pads_batches=pads_batches(model, training=False),
    )


def build_fed_eval(
    model: Model,
    *,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
) -> LearningProcess[EvalState]:
    """Build federated evaluation.

    The model's metrics over all examples of a round's clients.

    Args:
      model: the model; its ``eval_metrics`` and its mean ``loss`` are evaluated.
      client_batching: how ClientDatasets are cut into batches; usually each example once (``BatchHParams``).
      client_execution: see `CohortRunner`.
      clients_per_chunk: see `CohortRunner`.

    Returns:
      The process. ``set_model_weights(state, weights)`` sets the evaluated weights. Metrics: ``client_work`` /
      ``eval`` / ``current_round_metrics`` and ``total_rounds_metrics``, as TFF has them, and ``clients``.

    Raises:
      InputError: an option does not fit.
    """
    work = evaluation_work(check_model(model))
    runner = CohortRunner(work, SumFactory().create(()), client_execution, clients_per_chunk)
    return evaluation_process(model, runner, client_batching)


def build_fed_multi_model_eval(
    models: Sequence[Model] | Mapping[str, Model], **options: Any
) -> LearningProcess[dict[str, EvalState]]:
    """Build federated evaluation of several models on the same clients.

    See tff.learning.algorithms.build_fed_multi_model_eval.

    Args:
      models: the models by name; in a list their names are ``"a"``, ``"b"``, ...
      **options: as for `build_fed_eval`.

    Returns:
      The process. States, weights and ``params`` are dicts with those of `build_fed_eval` by the models' names, as are
      the metrics' ``client_work``.

    Raises:
      InputError: there is no model, or an option does not fit.
    """
    named = models if isinstance(models, Mapping) else dict(zip(string.ascii_lowercase, models, strict=False))
    if not models or len(named) < len(models):
        raise InputError(f"build_fed_multi_model_eval: give 1 to 26 models, or a dict of models, not {len(models)}")
    processes = {name: build_fed_eval(model, **options) for name, model in named.items()}

    def initialize(key: Any = None, *, params: Mapping[str, Any] | None = None) -> dict[str, EvalState]:
        given = dict.fromkeys(processes) if params is None else params
        return {name: process.initialize(key, params=given[name]) for name, process in processes.items()}

    def next_fn(state: dict[str, EvalState], client_data: Sequence[Any]) -> LearningProcessOutput:
        clients = reusable(as_entries(client_data))
        found = {name: process.next(state[name], clients) for name, process in processes.items()}
        metrics = {name: output.metrics["client_work"] for name, output in found.items()}
        counts = next(iter(found.values())).metrics["clients"]
        states = {name: output.state for name, output in found.items()}
        return LearningProcessOutput(states, {"client_work": metrics, "clients": counts})

    def get_weights(state: dict[str, EvalState]) -> Any:
        return {name: own.weights for name, own in state.items()}

    def set_weights(state: dict[str, EvalState], weights: Any) -> dict[str, EvalState]:
        return {name: processes[name].set_model_weights(own, weights[name]) for name, own in state.items()}

    return LearningProcess(initialize, next_fn, get_weights, set_weights)


def evaluation_process(
    model: Model,
    runner: CohortRunner,
    client_batching: Batching | None,
    first_pass: CohortRunner | None = None,
    first_batching: Batching | None = None,
    splits: bool = False,
) -> LearningProcess[EvalState]:
    """Return the process of an evaluation's runner.

    Args:
      model: whose weights are evaluated.
      runner: runs the evaluation; its work's measurements are metrics' statistics.
      client_batching: how ClientDatasets are cut into batches.
      first_pass: runs over the clients before; a client's output is its ``client_input`` in the evaluation.
      first_batching: how ClientDatasets are cut into batches in the first pass; as in the evaluation if None.
      splits: whether the passes take halves of each client's examples; see `Cohort.half`.
    """
    nothing = runner.aggregator

    def initialize(key: Any = None, *, params: Any = None) -> EvalState:
        return EvalState(jnp.int32(0), initial_weights(model, jax.random.key(0) if key is None else key, params), None)

    def next_fn(state: EvalState, client_data: Sequence[Any]) -> LearningProcessOutput:
        check_state(state, EvalState)
        keys = round_keys(jax.random.key(0), state.round)
        context = Context((), nothing.initialize(), state.weights, keys.clients, keys.aggregator)
        entries = as_entries(client_data)
        cohort = cohort_of(entries if first_pass is None else reusable(entries), client_batching, 0, int(state.round))
        cohort = dataclasses.replace(cohort, check=first_predictions(model, state.weights, client_batching))
        if first_pass is not None:
            first = cohort.half(0) if splits else cohort
            first = dataclasses.replace(first, batching=first_batching or client_batching)
            outputs = first_pass.run(context, first).outputs
            cohort = cohort.half(1) if splits else cohort
            cohort = cohort.after(outputs)
        result = runner.run(context, cohort)
        found = result.total.measurements
        totals = state.totals or found
        if state.totals and found:
            totals = {name: stat.merge(found[name]) for name, stat in state.totals.items()}
        metrics = {
            "client_work": {
                "eval": {"current_round_metrics": results_of(found), "total_rounds_metrics": results_of(totals)}
            },
            "clients": dict(result.counts),
        }
        return LearningProcessOutput(EvalState(state.round + 1, state.weights, totals or None), metrics)

    return LearningProcess(
        initialize,
        next_fn,
        lambda state: state.weights,
        lambda state, weights: state._replace(weights=replaced_weights(model, jax.random.key(0), weights)),
    )


class ModelEvaluator:
    """Evaluates a model on each client's data alone. See fedjax.ModelEvaluator.

    Args:
      model: the model; its ``eval_metrics`` and its mean ``loss`` are evaluated.
    """

    def __init__(self, model: Model):
        model = check_model(model)
        work = evaluation_work(model)

        def client_init(shared: Any, own: Any) -> Any:
            return whole_weights(model, own if shared is None else shared), _zero(model)

        def client_step(state: Any, batch: Mapping[str, Any]) -> Any:
            return state[0], work.client_step((), state[0], state[1], batch)

        self._model = model
        self._each = for_each_client(client_init, client_step, lambda shared, state: results_of(state[1]))

    def evaluate_global_params(
        self, params: Any, clients: Iterable[tuple[Any, Iterable[Mapping[str, Any]]]]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield pairs (client id, metrics), all of the same weights.

        Args:
          params: the model's weights, or its plain params.
          clients: pairs (client id, batches).
        """
        check_weights(self._model, whole_weights(self._model, params), "params")
        yield from self._each(params, ((client_id, batches, ()) for client_id, batches in clients))

    def evaluate_per_client_params(
        self, clients: Iterable[tuple[Any, Iterable[Mapping[str, Any]], Any]]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield pairs (client id, metrics), each of the client's own weights.

        Args:
          clients: triples (client id, batches, params).
        """
        yield from self._each(None, clients)


class AverageLossEvaluator:
    """Evaluates the mean loss of each client alone. See fedjax.AverageLossEvaluator.

    Args:
      per_example_loss: as `model_per_example_loss` returns it.
      regularizer: ``(params) -> scalar`` to add.
    """

    def __init__(
        self,
        per_example_loss: Callable[[Any, Mapping[str, Any], Any], Any],
        regularizer: Callable[[Any], Any] | None = None,
    ):
        def client_init(shared: Any, own: Any) -> Any:
            rng, params = own if shared is None else (own, shared)
            return params, rng, MeanStat(jnp.float32(0), jnp.int32(0))

        def client_step(state: Any, batch: Mapping[str, Any]) -> Any:
            params, rng, total = state
            rng, own = jax.random.split(rng)
            losses = jnp.asarray(per_example_loss(params, batch, own))
            kept = jnp.asarray(batch.get(MASK_KEY, jnp.ones(losses.shape, bool))).astype(jnp.int32)
            return params, rng, total.merge(MeanStat.new(losses, kept).reduce())

        def client_final(shared: Any, state: Any) -> Any:
            loss = state[2].result()
            return loss if regularizer is None else loss + regularizer(state[0])

        self._each = for_each_client(client_init, client_step, client_final)

    def evaluate_global_params(
        self, params: Any, clients: Iterable[tuple[Any, Iterable[Mapping[str, Any]], Any]]
    ) -> Iterator[tuple[Any, jax.Array]]:
        """Yield pairs (id, mean loss); ``clients`` are (id, batches, JAX key)."""
        yield from self._each(params, clients)

    def evaluate_per_client_params(
        self, clients: Iterable[tuple[Any, Iterable[Mapping[str, Any]], Any, Any]]
    ) -> Iterator[tuple[Any, jax.Array]]:
        """Yield pairs (id, mean loss); ``clients`` are (id, batches, key, params)."""
        yield from self._each(None, ((i, batches, (rng, params)) for i, batches, rng, params in clients))


def build_personalization_eval(
    model: Model,
    strategies: Mapping[str, tuple[ClientWork, ShuffleRepeatBatchHParams]],
    *,
    eval_batch_size: int = 128,
) -> Any:
    """Build an evaluation of personalization.

    See tff.learning.algorithms.build_personalization_eval_computation.

    Args:
      model: the model; its metrics and mean ``loss`` are evaluated.
      strategies: name to how a client personalizes the weights: a client work whose update is the difference of
        the trainable weights (`build_model_delta_client_work`), and how the client's training examples are batched.
      eval_batch_size: examples in a batch of evaluation.

    Returns:
      ``evaluate(weights, client_data, key=None)``: ``client_data`` is a list of pairs ``(training, test)`` of
      ClientDatasets. It returns ``{"baseline": metrics, name: metrics, ...}``; each metric's values are stacked, one
      for each client with test examples. A client's trained weights are not aggregated.

    Raises:
      InputError: a strategy named ``baseline`` or that is no such pair; when called: no client, a pair that is none, or
        weights, a key or examples that do not fit.
    """
    model = check_model(model)
    if "baseline" in strategies:
        raise InputError("build_personalization_eval: 'baseline' names the metrics before personalization")
    for name, strategy in strategies.items():
        if not (isinstance(strategy, tuple) and len(strategy) == 2 and isinstance(strategy[0], ClientWork)):
            raise InputError(f"build_personalization_eval: strategy {name!r} is a pair (ClientWork, batching)")
    check_number("build_personalization_eval", "eval_batch_size", eval_batch_size, least=1, whole=True)
    steps = {name: jax.jit(work.client_step) for name, (work, _) in strategies.items()}

    def evaluate(weights: Any, client_data: Sequence[Any], key: Any = None) -> dict[str, dict[str, Any]]:
        weights = whole_weights(model, weights)
        key = jax.random.key(0) if key is None else key
        check_key(key)
        rows: dict[str, list[Any]] = {name: [] for name in ("baseline", *strategies)}
        for index, (_, pair, _) in enumerate(as_entries(client_data)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InputError(f"client {index}: expected a pair of ClientDatasets (training, test)")
            train, test = pair
            if len(test) == 0:
                continue
            batches = list(test.padded_batch(batch_size=eval_batch_size, num_batch_size_buckets=3))
            rows["baseline"].append(evaluate_model(model, weights, batches))
            for name, (work, batching) in strategies.items():
                cohort = Cohort([train], batching, jax.random.fold_in(key, index))
                found = _personalized(model, work, steps[name], weights, cohort, jax.random.fold_in(key, index))
                rows[name].append(evaluate_model(model, found, batches))
        if not rows["baseline"]:
            raise InputError("build_personalization_eval: no client has test examples")
        return {name: jax.tree.map(lambda *values: np.stack(values), *found) for name, found in rows.items()}

    return evaluate


def _personalized(
    model: Model, work: ClientWork, step: Any, weights: ModelWeights, cohort: Cohort, key: Any
) -> ModelWeights:
    state, weights = work.initialize(), immutable(weights)
    carry = work.client_init(state, weights, key, None)
    for client in cohort.of_work(work).prepared():
        for batch in client.batches():
            carry = step(state, weights, carry, batch)
    result = work.client_final(state, weights, carry)
    personal = weights._replace(trainable=optax.tree.sub(weights.trainable, result.update))
    return apply_non_trainable(model, personal, result.non_trainable, jnp.float32(1))
