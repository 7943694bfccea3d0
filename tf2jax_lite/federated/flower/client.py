"""A Flower client that does the work of a simulated one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flwr.app import Context as FlowerContext
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from tf2jax_lite.federated.aggregators.base import all_finite, usable_clients
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.compose import apply_non_trainable, first_predictions, results_of
from tf2jax_lite.federated.execution import Cohort
from tf2jax_lite.federated.execution.cohort import Batching
from tf2jax_lite.federated.flower.records import (
    CONFIG,
    METRICS,
    NEW_WEIGHTS,
    NON_TRAINABLE,
    UPDATE,
    WEIGHTS,
    composed,
    content_of,
    from_arrays,
    message_form,
    scalars,
    to_arrays,
    weights_of,
)
from tf2jax_lite.federated.flower.secure import fit_message, fit_reply, is_fit
from tf2jax_lite.learning.data import ClientDataset
from tf2jax_lite.learning.model import Model, check_model, evaluate_model
from tf2jax_lite.learning.process import LearningProcess, ModelWeights, PyTree
from tf2jax_lite.support.errors import InputError

Settings = Mapping[str, Any]
_PROTOCOL = ("server-round", "index", "key", "key-impl", "reply")  # entries of a training message, by the strategy
_STATE = "client-state"


def client_app(
    model: Model,
    data_fn: Callable[[FlowerContext], Any],
    *,
    client_work: ClientWork | LearningProcess | Callable[[Settings], ClientWork | LearningProcess],
    client_batching: Batching | Callable[[Settings], Batching] | None = None,
    evaluation_data_fn: Callable[[FlowerContext], Any] | None = None,
    evaluation_batch_size: int = 256,
    mods: Sequence[Mod] = (),
) -> ClientApp:
    """Make a Flower ``ClientApp`` that trains and evaluates a model.

    To a server of `BlocksStrategy` it replies the client's update; to Flower's own strategies (``FedAvg``, ``FedAdam``,
    ...) its new weights; to `secure_server_app` a masked update. The metric ``num-examples`` is the client's weight in
    the mean.

    Args:
      model: the model; server and clients must have the same.
      data_fn: called with Flower's context (``context.node_config["partition-id"]``): this client's data, as for a
        process's ``next``: a `ClientDataset`, or an iterable of batches.
      client_work: a client's work, usually `build_model_delta_client_work(model, optimizer)`; or a process, such as
        `build_scaffold(...)`, whose clients' work, batching and states are used; or a function that returns either, of
        a dict of settings: the run's ``run_config``, and the server's ``train_config``, which wins. A client's state is
        kept in Flower's ``context.state``, see `client_state`.
      client_batching: how a `ClientDataset` is cut into batches, or such a function; the process's by default. Without
        a seed of its own, examples are shuffled with the client's key of the round, which is another order than the
        simulation's; with one, they agree.
      evaluation_data_fn: the data to evaluate on; ``data_fn`` by default.
      evaluation_batch_size: of `ClientDataset`s in evaluation.
      mods: Flower's mods, outermost first: ``flwr.clientapp.mod.fixedclipping_mod`` and others for differential
        privacy, ``flwr.client.mod.secaggplus_mod`` for secure aggregation.

    Returns:
      The app, for ``[tool.flwr.app.components]``.

    Raises:
      InputError: ``data_fn`` is not a function. While running, a message that is not for this model.
    """
    if not callable(data_fn):
        raise InputError("data_fn is a function of Flower's context that returns this client's data")
    app = ClientApp(mods=list(mods))
    template = check_model(model).shapes
    made: dict[str, _Training] = {}  # each is jitted once

    def training(context: FlowerContext, config: Any) -> _Training:
        given = {name: value for name, value in config.items() if name not in _PROTOCOL}
        settings = {**context.run_config, **given}
        fixed = not callable(client_work) and not callable(client_batching)
        name = "" if fixed else repr(sorted(settings.items()))
        if name not in made:
            work = client_work(settings) if callable(client_work) else client_work
            batching = client_batching(settings) if callable(client_batching) else client_batching
            made[name] = _Training(model, work, batching)
        return made[name]

    @app.train()
    def train_fn(message: Message, context: FlowerContext) -> Message:
        if is_fit(message):
            weights, config = fit_message(message, template)
            _, result = training(context, config)(weights, data_fn(context), context, config)
            return fit_reply(message, (result.update, list(result.non_trainable)), result.update_weight)
        config = content_of(message.content, "config_records", CONFIG, "a training message")
        work = training(context, config)
        sent = _sent(message, work.template)
        steps, result = work(sent, data_fn(context), context, config)
        metrics = scalars(results_of(result.measurements))
        metrics.pop("num_examples", None)  # a count, which strategies would average
        metrics["num-examples"] = float(result.update_weight)
        records: dict[str, Any] = {METRICS: MetricRecord(metrics)}
        if config.get("reply") in (UPDATE, NEW_WEIGHTS):
            records[METRICS]["steps"] = steps
        if config.get("reply") == UPDATE:
            records[WEIGHTS] = to_arrays(result.update)
            records[NON_TRAINABLE] = to_arrays(result.non_trainable)
        else:
            records[WEIGHTS] = to_arrays(_moved(model, sent, result))
        return Message(RecordDict(records), reply_to=message)

    @app.evaluate()
    def evaluate_fn(message: Message, context: FlowerContext) -> Message:
        found = (evaluation_data_fn or data_fn)(context)
        batches = list(
            found.padded_batch(batch_size=evaluation_batch_size) if isinstance(found, ClientDataset) else found
        )
        count = sum(int(b["__mask__"].sum()) if "__mask__" in b else len(next(iter(b.values()))) for b in batches)
        metrics = scalars(evaluate_model(model, _sent(message, template), batches)) if count else {}
        record = MetricRecord({**metrics, "num-examples": float(count)})
        return Message(RecordDict({METRICS: record}), reply_to=message)

    return app


def client_state(context: FlowerContext, process: LearningProcess) -> PyTree:
    """Return the state that this client keeps between rounds, or the first one.

    Args:
      context: Flower's, which keeps it for the run's time.
      process: of the training, such as `build_apfl(...)`; see `ByClient` and the process's own type of states.

    Raises:
      InputError: the process has no such states.
    """
    states = composed(process).blocks.client_states
    if states is None:
        raise InputError("client_state: the clients of this process keep no state between rounds.")
    if _STATE not in context.state.array_records:
        return states.like
    return from_arrays(context.state.array_records[_STATE], states.like, "the client's state")


def _sent(message: Message, template: PyTree) -> PyTree:
    where = f"a message of type {message.metadata.message_type}"
    return from_arrays(content_of(message.content, "array_records", WEIGHTS, where), template, where)


def _moved(model: Model, sent: PyTree, result: ClientResult) -> ModelWeights:
    """Return the weights after the client's training."""
    weights = weights_of(sent)
    if jax.tree.structure(result.update) != jax.tree.structure(weights.trainable):
        raise InputError("this client's work sends more than weights: its server is a BlocksStrategy(process=...)")
    moved = weights._replace(trainable=optax.tree.sub(weights.trainable, result.update))
    return apply_non_trainable(model, moved, result.non_trainable, 1)


class _Training:
    """The client work, jitted once for the app's life.

    Attributes:
      template: the shapes of the server's message.
    """

    def __init__(self, model: Model, work: ClientWork | LearningProcess, batching: Batching | None):
        self._process, bounded = None, True
        self.template: PyTree = check_model(model).shapes
        if isinstance(work, LearningProcess):
            server, self._process = composed(work), work
            self.template, bounded = message_form(server), not server.aggregation.bounds_updates
            work, batching = server.blocks.client_work, batching or server.blocks.cohorts.batching
        self._model, self._work, self._batching = model, work, batching
        self._start = jax.jit(self._first)
        self._step = jax.jit(work.client_step)
        self._final = jax.jit(work.client_final)
        self._usable = jax.jit(functools.partial(_is_usable, bounded=bounded))

    def _first(self, round_number: Any, message: PyTree, key: Any, index: Any, own: PyTree) -> Any:
        # The work's state depends on the number of rounds alone, so it need not be sent.
        state = jax.lax.fori_loop(0, round_number, lambda _, state: self._work.advance(state), self._work.initialize())
        return state, self._work.client_init(state, message, jax.random.fold_in(key, index), own)

    def __call__(self, sent: PyTree, data: Any, context: FlowerContext, config: Any) -> tuple[int, ClientResult]:
        """Do a round's work. Returns the number of steps, and the result."""
        if jax.tree.structure(sent) != jax.tree.structure(self.template):
            raise InputError("this client's work reads more than weights: its server is a BlocksStrategy(process=...)")
        round_number, index = int(config.get("server-round", 1)) - 1, int(config.get("index", 0))
        words = config.get("key")
        key = jax.random.fold_in(jax.random.key(0), round_number)
        if words is not None:
            key = jax.random.wrap_key_data(
                jnp.asarray(words, jnp.uint32), impl=str(config.get("key-impl", "threefry2x32"))
            )
        # The place in the cohort seeds the shuffling: those before it are not here.
        check = first_predictions(self._model, weights_of(sent), self._batching)
        cohort = Cohort([None] * index + [data], self._batching, key, round_number, check=check).of_work(self._work)
        keeps = self._process is not None and self._process.takes_client_ids
        own = client_state(context, self._process) if keeps else None
        state, carry = self._start(jnp.int32(round_number), sent, key, jnp.int32(index), own)
        steps = 0
        for client in cohort.prepared():
            for batch in client.batches():
                carry = self._step(state, sent, carry, batch)
                steps += 1
        result = self._final(state, sent, carry)
        if keeps and steps and self._usable(result):
            context.state[_STATE] = to_arrays(result.output)
        shares = cohort.shares() if self._work.counts_examples else None
        return steps, result if shares is None else result._replace(update_weight=result.update_weight * shares[index])


def _is_usable(result: ClientResult, bounded: bool) -> Any:
    """Return whether the server can use a result, and the client's state is finite."""
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)
    usable = usable_clients(rows.update, rows.update_weight, (rows.non_trainable, rows.measurements), bounded)
    return usable[0] & all_finite(result.output)
