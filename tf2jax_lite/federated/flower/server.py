"""Flower's server: the strategy, and an app of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from logging import WARNING
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.app import Context as FlowerContext
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from tf2jax_lite.federated.aggregators.privacy import fresh_words
from tf2jax_lite.federated.client_work import ClientWork
from tf2jax_lite.federated.compose import (
    Composition,
    Distributor,
    Finalizer,
    LearningState,
    Server,
    build_add_finalizer,
    build_broadcast_process,
    initial_weights,
    with_key,
)
from tf2jax_lite.federated.execution import CohortResult
from tf2jax_lite.federated.execution.backends import Context, fold_results, zero_accumulator
from tf2jax_lite.federated.flower.records import (
    CONFIG,
    NEW_WEIGHTS,
    UPDATE,
    WEIGHTS,
    Reply,
    composed,
    evaluate_reply,
    from_arrays,
    scalars,
    to_arrays,
    train_reply,
    weights_of,
)
from tf2jax_lite.learning.checkpoints import CheckpointStore, open_store
from tf2jax_lite.learning.data.examples import numpy_rng
from tf2jax_lite.learning.model import Model, check_model
from tf2jax_lite.learning.process import NOT_PRIVATE, LearningProcess, ModelWeights, round_metrics
from tf2jax_lite.support.errors import InputError

_REPLIES = {"update": UPDATE, "weights": NEW_WEIGHTS}
_CLIENTS_OWN = ClientWork(lambda: (), *[lambda *args: ()] * 3)  # the work of `client_app`


class BlocksStrategy(Strategy):
    """Federated training with `client_app` clients.

    A round's results equal those of `compose_learning_process`. Clients' updates are folded one after another, in
    constant memory where the aggregator allows it. A client that fails is ignored, as is one whose reply is malformed,
    of another model, or not usable (see `usable_clients`); its node is named in the log, and in the metrics, which
    count such clients as ``clients/refused``. A round with no usable reply changes nothing.

    With a differentially private aggregator the noise and the draw of nodes come from the operating system's entropy,
    and metrics that privacy does not cover are in ``not_private``, and not in Flower's result.

    Each round begins at the weights that Flower passes, so that one of its wrappers may change them:
    ``DifferentialPrivacyServerSideFixedClipping(BlocksStrategy(..., reply="weights"), ...)``.

    Args:
      model: the model.
      process: a process, such as `build_scaffold(...)`, of which clients have the same; or the following three.
      aggregator: an `AggregationProcess` or a factory of one, such as ``MeanFactory()``.
      finalizer: the server's update by the aggregate; it takes a step of SGD of rate 1 by default.
      distributor: the message to clients; the unchanged weights by default. Its message must have the weights' form.
      clients_per_round: how many nodes train in a round; None for all that are connected.
      min_available_nodes: wait for as many nodes before a round.
      evaluate: have the same number of nodes evaluate after each round.
      reply: whether clients reply their ``"update"`` or their new ``"weights"``, which Flower's mods and wrappers for
        differential privacy read. The results are the same.
      key: the training's JAX key; it also draws the nodes. ``key(0)`` by default.

    Attributes:
      server: the server's part of a process.
      state: the `LearningState` after the last round; None before the first. Set it to go on with a training;
        `server_app` does so from a checkpoint.
      rounds_before: how many rounds there were before Flower's first.
      not_private: the last round's metrics that differential privacy does not cover; they must stay on the server.

    Raises:
      InputError: a block or a number does not fit.
    """

    def __init__(
        self,
        model: Model,
        *,
        process: LearningProcess | None = None,
        aggregator: Any = None,
        finalizer: Finalizer | None = None,
        distributor: Distributor | None = None,
        clients_per_round: int | None = None,
        min_available_nodes: int = 2,
        evaluate: bool = True,
        reply: Literal["update", "weights"] = "update",
        key: Any = None,
    ):
        if min_available_nodes < 1 or (clients_per_round is not None and clients_per_round < 1):
            raise InputError("min_available_nodes and clients_per_round are >= 1")
        if reply not in _REPLIES:
            raise InputError(f"BlocksStrategy: reply is one of {', '.join(_REPLIES)}; not {reply!r}")
        if (process is None) == (aggregator is None) or (process and (finalizer or distributor)):
            raise InputError("BlocksStrategy: give either a process, or an aggregator with other blocks")
        self._model = check_model(model)
        if process is None:
            blocks = (finalizer or build_add_finalizer(), distributor or build_broadcast_process())
            self.server = Server(Composition("BlocksStrategy", self._model, _CLIENTS_OWN, aggregator, *blocks))
        else:
            self.server = composed(process)
        if reply == "weights" and (self.server.blocks.update_form is not None):
            raise InputError("BlocksStrategy: clients of this process reply more than weights: reply='update'")
        self._aggregation = self.server.aggregation
        self._is_private = "differential privacy" in self._aggregation.guarantees
        self._fold = jax.jit(functools.partial(fold_results, self._aggregation))
        self._clients_per_round, self._min_nodes, self._evaluate = clients_per_round, min_available_nodes, evaluate
        self._key = jax.random.key(0) if key is None else key
        self._reply = _REPLIES[reply]
        self._indices: dict[int, int] = {}
        self._cohort_size = 0
        self.not_private: dict[str, Any] = {}
        self._context: Context | None = None
        self._returned: ArrayRecord | None = None
        self.state: LearningState | None = None
        self.rounds_before = 0

    def summary(self) -> None:
        """Do nothing: there is nothing to say that the caller did not choose."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each node that trains. Flower calls this."""
        state = self.state_at(arrays)
        distributor_state, self._context, _ = self.server.begin(state._replace(clients=()))
        self.state = state._replace(distributor=distributor_state)
        nodes = self._nodes(grid, server_round)
        self._indices = {node: index for index, node in enumerate(nodes)}
        self._cohort_size = len(nodes)
        message, key = to_arrays(self._context.message), self._context.client_key
        # Not the training's key: from that one, clients could draw the noise that the aggregation adds.
        words = np.asarray(jax.random.key_data(key)).ravel().tolist()
        messages = []
        for index, node in enumerate(nodes):
            own = ConfigRecord({**config, "server-round": int(state.round) + 1, "index": index})
            own["key"], own["key-impl"], own["reply"] = words, str(jax.random.key_impl(key)), self._reply
            content = RecordDict({WEIGHTS: message, CONFIG: own})
            messages.append(Message(content, message_type=MessageType.TRAIN, dst_node_id=node))
        return messages  # a list: Flower's grid goes over it twice

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fold the updates and take the round's step. Flower calls this."""
        assert self.state is not None and self._context is not None, "configure_train comes first"
        state, context = self.state._replace(clients=()), with_key(self._context, self._aggregation)
        asked = jnp.int32(self._cohort_size) if self.server.blocks.counts_clients else ()
        sent = weights_of(context.message)
        total, failed, empty = None, 0, 0
        refused: list[int] = []
        averages: dict[str, list[tuple[float, float]]] = {}
        # In the order of client indices, so that sums do not depend on the order of replies.
        for message in sorted(replies, key=lambda m: self._indices.get(m.metadata.src_node_id, -1)):
            node = message.metadata.src_node_id
            index = self._indices.pop(node, None)  # a node's second reply is none of this round
            if message.has_error() or index is None:
                failed += 1
                continue
            reply = _usable(train_reply, message, self._model, self.server.form, self._reply, sent)
            if reply is None:
                refused.append(node)
                continue
            if reply.metrics.pop("steps", 0) == 0:
                empty += 1
                continue
            assert reply.result is not None
            result = self.server.route.pack(reply.result)
            if total is None:
                total = zero_accumulator(self._aggregation, state.aggregator, self._cohort_size, result)
            rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result)
            index = jnp.asarray([index], jnp.int32)
            total, unusable = self._fold(
                state.aggregator, total, rows, jnp.ones(1, bool), index, context.aggregator_key
            )
            if unusable[0]:
                refused.append(node)
                log(WARNING, "the reply of node %s is refused: its numbers are not finite, or too large", node)
                continue
            for name, value in reply.metrics.items():
                averages.setdefault(name, []).append((value, reply.weight))
        if total is None:
            return None, None
        counts = {"participated": total.participated, "failed": failed, "empty": empty}
        counts |= {"non_finite": total.non_finite, "refused": len(refused)}
        done = CohortResult(total, counts, {}, {})
        new, found = self.server.end(state, state.distributor, context, done, (), asked)
        self.state = new._replace(clients=self.state.clients)
        metrics = round_metrics(self._aggregation, {**found, **_means(averages)}, dict(enumerate(refused)))
        self.not_private = metrics.pop(NOT_PRIVATE, {})
        names = metrics.pop("refused_clients", [])
        record = {**scalars(metrics), **({"clients/refused_nodes": names} if names else {})}
        self._returned = to_arrays(new.weights)
        return self._returned, MetricRecord(record)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return a message for each node that evaluates. Flower calls this."""
        if not self._evaluate:
            return []
        content = RecordDict({WEIGHTS: arrays, CONFIG: ConfigRecord({**config, "server-round": server_round})})
        nodes = self._nodes(grid, server_round)
        return [Message(content, message_type=MessageType.EVALUATE, dst_node_id=node) for node in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Average the clients' metrics by their numbers of examples. Flower calls this."""
        averages: dict[str, list[tuple[float, float]]] = {}
        for message in replies:
            reply = None if message.has_error() else _usable(evaluate_reply, message)
            if reply is None:
                continue
            for name, value in reply.metrics.items():
                averages.setdefault(name, []).append((value, reply.weight))
        if self._is_private:
            self.not_private["evaluate"] = _means(averages)
            return None
        return MetricRecord(_means(averages)) if averages else None

    def state_at(self, arrays: ArrayRecord) -> LearningState:
        """Return the state before a round that begins at these arrays.

        Args:
          arrays: what Flower passes: the initial arrays, the last round's, or those that a wrapper made of them.

        Raises:
          InputError: they are of another model.
        """
        if self.state is not None and (self._returned is None or arrays is self._returned):
            return self.state
        weights = from_arrays(arrays, self._model.shapes, "the strategy's arrays")
        return self.first_state(weights) if self.state is None else self.state._replace(global_model_weights=weights)

    def first_state(self, weights: ModelWeights) -> LearningState:
        """Return the state before the first round."""
        return self.server.first_state(self._key, weights)

    def _nodes(self, grid: Grid, server_round: int) -> list[int]:
        while len(nodes := sorted(grid.get_node_ids())) < max(self._min_nodes, self._clients_per_round or 1):
            time.sleep(0.2)
        if self._clients_per_round is None:
            return nodes
        # Privacy counts on secret cohorts.
        seed = fresh_words() if self._is_private else self._key
        drawn = numpy_rng(seed, self.rounds_before + server_round).choice(
            len(nodes), self._clients_per_round, replace=False
        )
        return [nodes[index] for index in sorted(drawn)]


def _usable(read: Callable[..., Reply], message: Message, *args: Any) -> Reply | None:
    """Return a client's reply, or None for one that is not usable."""
    try:
        return read(message, *args)
    except Exception as error:  # whatever a client sends, the round goes on with the others
        log(WARNING, "%s is refused: %s", f"the reply of node {message.metadata.src_node_id}", str(error)[:500])
        return None


def _means(averages: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Weighted means of (value, weight) by name."""
    means = {}
    for name, pairs in averages.items():
        values, weights = np.array(pairs, np.float64).T
        means[name] = float(values @ weights / weights.sum()) if weights.sum() else float("nan")
    return means


def server_app(
    strategy: Strategy,
    model: Model,
    *,
    num_rounds: int = 3,
    key: Any = None,
    params: Any = None,
    evaluate_fn: Callable[[int, ModelWeights], Mapping[str, float]] | None = None,
    on_result: Callable[[ModelWeights, Any], None] | None = None,
    timeout: float = 3600.0,
    checkpoint_dir: str | Path | CheckpointStore | None = None,
    train_config: Mapping[str, Any] | None = None,
) -> ServerApp:
    """Make a Flower ``ServerApp`` that trains a model.

    Args:
      strategy: a `BlocksStrategy`, one of Flower's wrappers around it, or one of ``flwr.serverapp.strategy`` (FedAvg,
        FedAdam, Krum, ...).
      model: the model; server and clients must have the same.
      num_rounds: rounds of training; the run's ``num-server-rounds`` (``flwr run --run-config``) overrides it.
      key: the JAX key that new weights are drawn with; ``key(0)`` by default.
      params: the weights to begin with, `ModelWeights` or a pytree of the trainable ones, instead of new ones.
      evaluate_fn: ``(round, weights) -> metrics`` at the server, before the first and after each round.
      on_result: called at the end with the weights and Flower's ``Result`` (metrics by round), to save them.
      timeout: seconds to wait for the clients of a round; one that has not replied by then has failed.
      checkpoint_dir: where the state of a `BlocksStrategy` is saved after each round, or a `CheckpointStore`. A server
        that is started again resumes from there: ``num_rounds`` counts the rounds before, too, and the weights are
        those of an uninterrupted run. Flower's wrappers keep no state there.
      train_config: settings of clients' work, such as ``{"learning-rate": 0.1}``: see `client_app`.

    Returns:
      The app, for ``[tool.flwr.app.components]``.

    Raises:
      InputError: ``strategy`` is not a strategy of Flower's message API, ``num_rounds`` is negative, or
        ``checkpoint_dir`` is given for another strategy than `BlocksStrategy`.
    """
    if not isinstance(strategy, Strategy):
        raise InputError(
            f"a strategy is a BlocksStrategy or one of flwr.serverapp.strategy, not {type(strategy).__name__}; the"
            " learning processes of tf2jax_lite simulate their clients: give their blocks to BlocksStrategy"
        )
    if num_rounds < 0:
        raise InputError(f"num_rounds is 0 or more, not {num_rounds}")
    blocks = _blocks_of(strategy)
    if checkpoint_dir is not None and blocks is None:
        raise InputError(f"checkpoint_dir: a BlocksStrategy has a state to save, a {type(strategy).__name__} has none")
    if checkpoint_dir is not None and blocks is not None and blocks.server.blocks.client_states is not None:
        raise InputError(
            "checkpoint_dir: Flower keeps the states of this process's clients for a run, and a server that is started "
            "again begins another run"
        )
    app = ServerApp()
    template = check_model(model).shapes

    @app.main()
    def main(grid: Grid, context: FlowerContext) -> None:
        weights = initial_weights(model, jax.random.key(0) if key is None else key, params)
        done, store = 0, None if checkpoint_dir is None else open_store(checkpoint_dir)
        if store is not None and blocks is not None and store.latest() is not None:
            done, state, _ = store.restore(blocks.first_state(weights))
            blocks.state, blocks.rounds_before, weights = state, done, state.weights

        # Flower calls this with the weights after each round, those that a wrapper changed.
        def after(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if store is not None and blocks is not None and server_round:
                store.save(done + server_round, blocks.state_at(arrays))
            if evaluate_fn is None:
                return None
            found = evaluate_fn(done + server_round, from_arrays(arrays, template))
            return MetricRecord(dict[str, Any]((name, float(value)) for name, value in found.items()))

        result = strategy.start(
            grid=grid,
            initial_arrays=to_arrays(weights),
            num_rounds=max(0, int(context.run_config.get("num-server-rounds", num_rounds)) - done),
            timeout=timeout,
            train_config=ConfigRecord(dict(train_config or {})),
            evaluate_fn=after,
        )
        if on_result is not None:
            trained = from_arrays(result.arrays, template) if len(result.arrays) else weights
            on_result(trained, result)

    return app


def _blocks_of(strategy: Any) -> BlocksStrategy | None:
    """Return the strategy of blocks, perhaps inside of Flower's wrappers."""
    while strategy is not None and not isinstance(strategy, BlocksStrategy):
        strategy = getattr(strategy, "strategy", None)
    return strategy
