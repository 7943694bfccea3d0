"""Compose learning processes of client work, aggregator and finalizer.

Statistics of a model, as those of batch normalization, are averaged by the clients' weights; where the aggregation of
updates promises more, they are a part of it.

Sources: tff.learning.templates.compose_learning_process, DistributionProcess and FinalizerProcess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators.base import as_aggregator, chosen, remains_finite, tree_norm
from tf2jax_lite.federated.aggregators.privacy import aggregation_key
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.execution import CohortResult, CohortRunner, Execution
from tf2jax_lite.federated.execution.backends import Context
from tf2jax_lite.federated.execution.cohort import Batching, Check, Cohort, Entry, as_entries, cohort_of
from tf2jax_lite.federated.row_selection import check_rows, check_selection
from tf2jax_lite.learning.checks import check_key
from tf2jax_lite.learning.metrics import Stat
from tf2jax_lite.learning.model import (
    Model,
    as_model_weights,
    changing_leaves,
    changing_values,
    check_model,
    check_predictions,
    check_weights,
    replace_leaves,
)
from tf2jax_lite.learning.process import (
    AggregationProcess,
    Guarantee,
    LearningProcess,
    LearningProcessOutput,
    MeasuredProcessOutput,
    ModelWeights,
    PyTree,
    round_metrics,
)
from tf2jax_lite.learning.states import ByClient, commit_to_device
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class Distributor:
    """Turns the server's weights into the message to clients.

    See tff.learning.templates.DistributionProcess.

    Attributes:
      initialize: ``() -> state``.
      next: ``(state, ModelWeights) -> MeasuredProcessOutput(state, message, measurements)``.
    """

    initialize: Callable[[], PyTree]
    next: Callable[[PyTree, ModelWeights], MeasuredProcessOutput]


@dataclasses.dataclass(frozen=True)
class Finalizer:
    """Turns the aggregate of the updates into new weights.

    See tff.learning.templates.FinalizerProcess.

    Attributes:
      initialize: ``(ModelWeights) -> state``.
      next: ``(state, ModelWeights, aggregate) -> MeasuredProcessOutput(state, new ModelWeights, measurements)``. The
        aggregate of differences of weights is a direction to move *against*, as a gradient is; see `ClientResult`.
    """

    initialize: Callable[[ModelWeights], PyTree]
    next: Callable[[PyTree, ModelWeights, PyTree], MeasuredProcessOutput]


# TFF's names.
DistributionProcess, FinalizerProcess = Distributor, Finalizer


def build_broadcast_process(value_type: PyTree = None) -> Distributor:
    """Make a distributor that sends the weights unchanged.

    See tff.learning.templates.build_broadcast_process.

    Args:
      value_type: ignored; TFF's type of the weights.
    """
    del value_type
    return Distributor(lambda: (), lambda state, weights: MeasuredProcessOutput(state, weights, {}))


broadcast_distributor = build_broadcast_process


def check_optimizer(optimizer: Any, name: str) -> optax.GradientTransformation:
    """Return an optimizer whose state the server keeps.

    Args:
      optimizer: the value of the option.
      name: its name in messages, with an article.

    Raises:
      InputError: it is not an optax transformation; a function of the round's number, say, which clients' may be.
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise InputError(
            f"{name} is an optax.GradientTransformation, whose state is kept from round to round; not "
            f"{type(optimizer).__name__}"
        )
    return optimizer


def build_apply_optimizer_finalizer(optimizer: optax.GradientTransformation) -> Finalizer:
    """Make the finalizer that takes the aggregate for a gradient.

    See tff.learning.templates.build_apply_optimizer_finalizer.

    Args:
      optimizer: an optax transformation, such as ``optax.sgd(1.0)``.

    Raises:
      InputError: it is none.
    """
    check_optimizer(optimizer, "a server optimizer")

    def next_fn(state: PyTree, weights: ModelWeights, aggregate: PyTree) -> MeasuredProcessOutput:
        updates, state = optimizer.update(aggregate, state, weights.trainable)
        new = weights._replace(trainable=optax.apply_updates(weights.trainable, updates))
        return MeasuredProcessOutput(state, new, {"update_norm": tree_norm(aggregate)})

    return Finalizer(lambda weights: optimizer.init(weights.trainable), next_fn)


def build_add_finalizer() -> Finalizer:
    """Make the finalizer that adds the clients' mean change to the weights.

    Updates are initial minus final weights, so it subtracts the aggregate, as SGD of rate 1 does.
    """

    def next_fn(state: PyTree, weights: ModelWeights, aggregate: PyTree) -> MeasuredProcessOutput:
        new = weights._replace(trainable=optax.tree.sub(weights.trainable, aggregate))
        return MeasuredProcessOutput(state, new, {})

    return Finalizer(lambda weights: (), next_fn)


FIRST_PASS = "the results of the first pass"
_STATISTICS = "the model's statistics (of batch normalization)"
_KEYS = "the numbers of the rows that clients select"
_REMEDIES = {
    FIRST_PASS: "Give that pass an aggregator with the same guarantees (full_gradient_aggregator of Mime), or take "
    "another algorithm.",
    _STATISTICS: "Take a model without them, keep them at the clients (with_local_weights), or train an artifact's "
    "evaluation mode (train_signature='serving_default').",
    _KEYS: "Train the model without select_rows.",
}


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateRoute:
    """The way of clients' updates and statistics to the server.

    Attributes:
      aggregation: of the updates, or of both.
      model: the model.
      joined: whether statistics are a part of the update.
    """

    aggregation: AggregationProcess
    model: Model
    joined: bool

    def pack(self, result: ClientResult) -> ClientResult:
        """Return a client's result as the aggregation takes it."""
        if not self.joined:
            return result
        kept = [v for v in result.non_trainable if jnp.issubdtype(v.dtype, jnp.inexact)]
        return result._replace(update={"update": result.update, "statistics": kept}, non_trainable=[])

    def packed(self, work: ClientWork) -> ClientWork:
        """Return a client work whose results are packed."""
        if not self.joined:
            return work
        return dataclasses.replace(work, client_final=lambda *args: self.pack(work.client_final(*args)))

    def unpack(self, aggregate: PyTree, total: Any) -> tuple[PyTree, list[Any], Any]:
        """Return the aggregate of updates, and the sums of statistics with a divisor.

        Args:
          aggregate: the aggregation's result.
          total: the cohort's `Accumulator`.
        """
        if not self.joined:
            return aggregate, total.non_trainable, total.weight
        found = iter(aggregate["statistics"])
        values = changing_values(self.model, self.model.shapes.non_trainable)
        sums = [next(found) if jnp.issubdtype(v.dtype, jnp.inexact) else jnp.zeros(v.shape, v.dtype) for v in values]
        return aggregate["update"], sums, jnp.float32(1)


def update_route(who: str, aggregator: Any, template: PyTree, model: Model) -> UpdateRoute:
    """Return the way of updates.

    Args:
      who: the training, for messages.
      aggregator: an `AggregationProcess` for updates, or a factory of one.
      template: an update.
      model: the model.

    Raises:
      InputError: the aggregator is neither, or does not take the update; or it promises differential privacy, and not
        all that it does is private.
    """
    aggregation = as_aggregator(aggregator, template)
    if aggregation.not_private and "differential privacy" in aggregation.guarantees:
        raise InputError(
            f"{who}: the aggregator promises differential privacy, and {aggregation.not_private}. Take a fixed norm, "
            "or a QuantileEstimation with below_estimate_stddev."
        )
    values = changing_values(model, model.shapes.non_trainable)
    statistics = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values if jnp.issubdtype(v.dtype, jnp.inexact)]
    # Not under privacy: with noise, variances may be negative.
    joined = bool(statistics) and "differential privacy" not in aggregation.guarantees
    joined = joined and bool(aggregation.guarantees) and aggregation is not aggregator
    if joined:
        aggregation = as_aggregator(aggregator, {"update": template, "statistics": statistics})
    elif statistics:
        check_guarantees(who, aggregation, {_STATISTICS: frozenset()})
    return UpdateRoute(aggregation, model, joined)


def check_guarantees(who: str, aggregation: AggregationProcess, others: Mapping[str, frozenset[Guarantee]]) -> None:
    """Refuse a training whose clients send something without its guarantees.

    Args:
      who: the training, for the message.
      aggregation: of the clients' updates.
      others: what else leaves a client and moves the model, to the guarantees of its way. Measurements are not among
        them, see `round_metrics`.

    Raises:
      InputError: a guarantee is missing.
    """
    for name, guarantees in others.items():
        if missing := sorted(aggregation.guarantees - guarantees):
            raise InputError(
                f"{who}: the aggregator promises {' and '.join(missing)}, and {name} leave the clients without it. "
                f"{_REMEDIES[name]}"
            )


class LearningAlgorithmState(NamedTuple):
    """The server's state: a pytree of arrays, all that a resumed run needs.

    See tff.learning.templates.LearningAlgorithmState; `LearningState` is another name.

    Attributes:
      round: int32 scalar, rounds done.
      key: the training's JAX key; it stays, each round folds its number in.
      global_model_weights: the model's weights; also ``weights``. ``params``, as in FedJAX, are the trainable ones.
      distributor, client_work, aggregator, finalizer: the blocks' states.
      clients: the state of each client, a `ByClient` on the host; () if clients have no state.
    """

    round: Any
    key: Any
    global_model_weights: ModelWeights
    distributor: PyTree
    client_work: PyTree
    aggregator: PyTree
    finalizer: PyTree
    clients: Any = ()

    @property
    def weights(self) -> ModelWeights:
        """The model's weights."""
        return self.global_model_weights

    @property
    def params(self) -> PyTree:
        """The trainable weights: FedJAX's ``ServerState.params``."""
        return self.global_model_weights.trainable


LearningState = LearningAlgorithmState


@dataclasses.dataclass(frozen=True, eq=False)
class Survey:
    """A first pass over the round's clients before training.

    Its results enter the message and the finalizer.

    Attributes:
      client_work: the clients' work; its message is the distributor's. A client's output, if the work has one, is its
        input (``client_input``) when it trains.
      aggregator: an `AggregationProcess` of its updates.
      message: ``(weights, finalizer state, found) -> message`` for the training pass. ``found`` is the aggregate.
      client_batching: how ClientDatasets are cut into batches in this pass; as in training if None.
      check: called with a client's examples, before anything runs; see `Cohort`.
      splits: whether this pass takes one half of each client's examples, and training the other; see `Cohort.half`.
    """

    client_work: ClientWork
    aggregator: AggregationProcess
    message: Callable[[Any, PyTree, PyTree], PyTree]
    client_batching: Batching | None = None
    check: Check | None = None
    splits: bool = False


class Surveyed(NamedTuple):
    """The finalizer's input after a survey.

    Attributes:
      aggregate: the aggregate of the training pass.
      survey: that of the survey.
    """

    aggregate: PyTree
    survey: PyTree


class RoundKeys(NamedTuple):
    """The keys of a round, for clients and for the aggregation."""

    clients: Any
    aggregator: Any


def round_keys(key: Any, round_number: Any) -> RoundKeys:
    """Return a round's keys; they depend on the training's key and the round alone."""
    return RoundKeys(*jax.random.split(jax.random.fold_in(key, round_number)))


def initial_weights(model: Model, key: Any, params: Any) -> ModelWeights:
    """Return the weights given, or else new ones, as JAX arrays of their own.

    ``params`` may be `ModelWeights` or a bare pytree of the trainable ones; the others are then the model's.

    Raises:
      InputError: ``key`` is no JAX key, or ``params`` are not the model's in structure or shapes.
    """
    check_key(key)
    model = check_model(model)
    weights = model.init(key) if params is None or not isinstance(params, ModelWeights) else params
    if params is not None and not isinstance(params, ModelWeights):
        weights = weights._replace(trainable=params)
    if params is not None:
        check_weights(model, as_model_weights(weights), "params")
    return jax.tree.map(lambda leaf: jnp.array(leaf), as_model_weights(weights))


def replaced_weights(model: Model, key: Any, weights: Any) -> ModelWeights:
    """Return weights for ``set_model_weights``, as new JAX arrays.

    See `initial_weights`.

    Raises:
      InputError: they are None, or not the model's in structure or shapes.
    """
    if weights is None:
        raise InputError("set_model_weights takes ModelWeights, or the trainable weights; not None")
    return initial_weights(model, key, weights)


def check_state(state: Any, kind: type) -> None:
    """Refuse values that are not a state of a process.

    Raises:
      InputError: ``state`` is not of that kind.
    """
    if not isinstance(state, kind):
        raise InputError(
            f"state must be the result of initialize or of the last round's next, not {type(state).__name__}: "
            "state, metrics = process.next(state, client_data)"
        )


def results_of(measurements: PyTree) -> PyTree:
    """Return the results of the statistics in a pytree; arrays stay."""
    return jax.tree.map(
        lambda m: m.result() if isinstance(m, Stat) else m, measurements, is_leaf=lambda m: isinstance(m, Stat)
    )


def apply_non_trainable(model: Model, weights: ModelWeights, sums: Sequence[Any], weight: Any) -> ModelWeights:
    """Return weights with non-trainable leaves moved against clients' mean difference."""
    if not sums:
        return weights
    leaves = changing_values(model, weights.non_trainable)
    safe = jnp.where(weight > 0, weight, 1)
    moved = [
        leaf - (s / safe).astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
        for leaf, s in zip(leaves, sums, strict=True)
    ]
    flags = changing_leaves(model, weights.non_trainable)
    return weights._replace(non_trainable=replace_leaves(weights.non_trainable, flags, moved))


def first_predictions(model: Model, weights: ModelWeights, batching: Batching | None) -> Check:
    """Return a check of a cohort's first predictions; see `check_predictions`."""
    size = getattr(batching, "batch_size", None)

    def check(examples: Mapping[str, Any], who: str) -> None:
        first = {name: value[:size] for name, value in examples.items()}
        check_predictions(model, weights, first)
        check_rows(model, weights, first, who)

    return check


def compose_learning_process(
    model: Model,
    *,
    client_work: ClientWork,
    aggregator: Any,
    finalizer: Finalizer,
    distributor: Distributor | None = None,
    survey: Survey | None = None,
    client_states: ByClient | None = None,
    client_diagnostics: bool = False,
    client_batching: Batching | None = None,
    client_execution: Execution = "auto",
    clients_per_chunk: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> LearningProcess[LearningState]:
    """Compose a training process of four blocks; each can be swapped alone.

    Args:
      model: whose weights are trained.
      client_work: a client's work.
      aggregator: an `AggregationProcess` for updates in the form of the trainable weights, or a factory of one.
      finalizer: the server's update by the aggregate.
      distributor: the message to clients; the unchanged weights by default.
      survey: a first pass over the clients, for algorithms that need one.
      client_states: the clients' state between rounds, such as ``ByClient(first)``. A client's entry is the
        ``client_input`` of its work, and its `ClientResult.output` the next entry; every client then needs an id. See
        `with_local_weights`.
      client_diagnostics: return results of each client, too, as FedJAX's algorithms do: ``metrics`` has
        ``client_diagnostics``, a dict from client id (its index without one) to ``delta_l2_norm``, the norm of the
        update, ``update_weight``, and the client's own measurements (``loss``, ``num_examples``). A client that is in
        the round several times has a list of these.
      client_batching: how ClientDatasets are cut into batches: a ``ShuffleRepeatBatchHParams`` or ``BatchHParams``.
        Its seed, with the round and the client's index, shuffles; without one the client's key of the round does, if it
        was given, or the state's key.
      client_execution: how clients are run; see `CohortRunner`.
      clients_per_chunk: see `CohortRunner`.
      mesh: devices that share the clients; every process of `jax.distributed` calls ``next`` with the same clients.

    Returns:
      The process. ``initialize(key=None, *, params=None)``: key 0 by default. ``next(state, client_data)``:
      ``client_data`` is a list with for each client a ``ClientDataset``, an iterable of ready batches (dicts of arrays
      or pairs (x, y); the last may be short), or None for a client that dropped out; or pairs ``(client id, data)``, or
      triples ``(client id, data, JAX key)``, as a sampler's ``sample()`` returns them. A client's key is then that of
      its ``client_init``. Metrics: ``distributor``, ``client_work`` (with
      ``train``: clients' measurements, summed), ``aggregator``, ``finalizer``, ``clients`` (counts of those that
      participated, dropped out, had no data, or sent unusable values, as ``non_finite``; only the first count in the
      aggregate; and ``round_refused``: 1 if the state would not have remained finite, and stayed), and
      ``refused_clients``, the ids or indices of those that are ``non_finite``, if there are any. Under differential
      privacy see `round_metrics`.

    Raises:
      InputError: a block or an option does not fit.
    """
    if client_states is not None and (survey is not None or not isinstance(client_states, ByClient)):
        raise InputError("client_states is a ByClient, and does not go with a survey")
    return Composition(
        "compose_learning_process",
        check_model(model),
        client_work,
        aggregator,
        finalizer,
        distributor or build_broadcast_process(),
        survey,
        client_states,
        client_diagnostics,
        Cohorts.of(
            client_batching=client_batching,
            client_execution=client_execution,
            clients_per_chunk=clients_per_chunk,
            mesh=mesh,
        ),
    ).process()


class Cohorts(NamedTuple):
    """How cohorts run; see `compose_learning_process`."""

    batching: Batching | None = None
    execution: Execution = "auto"
    clients_per_chunk: int | None = None
    mesh: jax.sharding.Mesh | None = None

    @classmethod
    def of(
        cls,
        *,
        client_batching: Batching | None = None,
        client_execution: Execution = "auto",
        clients_per_chunk: int | None = None,
        mesh: jax.sharding.Mesh | None = None,
    ) -> Cohorts:
        """Return them by the options of `compose_learning_process`."""
        if client_batching is not None and not isinstance(client_batching, Batching):
            raise InputError(
                "client_batching is a ShuffleRepeatBatchHParams or a BatchHParams, as in "
                f"ShuffleRepeatBatchHParams(batch_size=20); not {type(client_batching).__name__}"
            )
        return cls(client_batching, client_execution, clients_per_chunk, mesh)

    def runner(self, work: ClientWork, aggregation: AggregationProcess) -> CohortRunner:
        """Return a runner of client work."""
        return CohortRunner(work, aggregation, self.execution, self.clients_per_chunk, self.mesh)


class Counted(NamedTuple):
    """The finalizer's input in an algorithm that counts the round's clients.

    Attributes:
      aggregate: the aggregate.
      clients: how many took part; under differential privacy, how many were asked, which is no secret.
    """

    aggregate: PyTree
    clients: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Composition:
    """The blocks of a process, and its rounds; see `compose_learning_process`.

    Attributes:
      who: the function that builds the process, for messages.
      update_form: the shapes of an update; those of the trainable weights if None.
      message: ``(the distributor's message, finalizer state) -> message``, for clients that get more than weights.
      counts_clients: whether the finalizer takes a `Counted`.
      checks_predictions: whether the first predictions are checked; not of a model without any.
    """

    who: str
    model: Model
    client_work: ClientWork
    aggregator: Any
    finalizer: Finalizer
    distributor: Distributor = dataclasses.field(default_factory=build_broadcast_process)
    survey: Survey | None = None
    client_states: ByClient | None = None
    client_diagnostics: bool = False
    cohorts: Cohorts = dataclasses.field(default_factory=Cohorts)
    update_form: PyTree = None
    message: Callable[[PyTree, PyTree], PyTree] | None = None
    counts_clients: bool = False
    checks_predictions: bool = True

    def process(self) -> LearningProcess[LearningState]:
        """Return the process.

        Raises:
          InputError: the aggregator does not go with the other blocks.
        """
        rounds = _Rounds(self)
        aggregation = rounds.server.aggregation
        return LearningProcess(
            rounds.initialize,
            rounds.next,
            lambda state: state.weights,
            rounds.set_model_weights,
            takes_client_ids=self.client_states is not None,
            guarantees=aggregation.guarantees,
            mechanisms=aggregation.mechanisms + (self.survey.aggregator.mechanisms if self.survey else ()),
            server=rounds.server,
        )


class Server:
    """The server's part of a composed process, for simulated and real clients.

    Attributes:
      blocks: of the process.
      form: the shapes of a client's update.
      route: of the clients' updates.
      aggregation: of the route.
      begin: ``(state) -> (the distributor's state, context of the clients, measurements)``, jitted.
      end: ``(state, the distributor's state, context, CohortResult without outputs, what the survey found, number of
        clients that were asked) -> (new state, metrics)``, jitted. The last two are () if there is none.
    """

    def __init__(self, blocks: Composition):
        self.blocks = blocks
        self.form = blocks.model.shapes.trainable if blocks.update_form is None else blocks.update_form
        self.route = update_route(blocks.who, blocks.aggregator, self.form, blocks.model)
        self.aggregation = self.route.aggregation
        self.begin, self.end = jax.jit(self._begin_round), jax.jit(self._end_round)

    def first_state(self, key: Any, weights: ModelWeights) -> LearningState:
        """Return the state before the first round."""
        blocks = self.blocks
        return LearningState(
            jnp.int32(0),
            key,
            weights,
            blocks.distributor.initialize(),
            blocks.client_work.initialize(),
            self.aggregation.initialize(),
            blocks.finalizer.initialize(weights),
            () if blocks.client_states is None else blocks.client_states,
        )

    def client_work(self) -> ClientWork:
        """Return the clients' work, on the rows that they select and with diagnostics."""
        work = self.blocks.client_work if self.blocks.model.rows is None else self._on_rows()
        return _with_diagnostics(work) if self.blocks.client_diagnostics else work

    def _on_rows(self) -> ClientWork:
        """Return the client work on the rows that a client selects."""
        blocks = self.blocks
        check_selection(blocks.who, blocks.model)
        # A client's rows are all that it changes only if nothing but its own examples moves its weights.
        if any(part is not None for part in (blocks.client_states, blocks.survey, blocks.message)):
            raise InputError(
                f"{blocks.who}: select_rows is for algorithms whose clients get weights alone, such as "
                "build_weighted_fed_avg; not for a state of each client, a first pass, or other messages."
            )
        check_guarantees(blocks.who, self.aggregation, {_KEYS: frozenset({"differential privacy", "robustness"})})
        return blocks.model.rows.work(blocks.client_work)

    def cohort(self, state: LearningState, entries: Sequence[Entry], inputs: Sequence[Any] | None = None) -> Cohort:
        """Return a round's clients, whose examples are checked."""
        blocks, batching = self.blocks, self.blocks.cohorts.batching
        cohort = cohort_of(entries, batching, state.key, int(state.round), inputs)
        if not blocks.checks_predictions:
            return cohort
        return dataclasses.replace(cohort, check=first_predictions(blocks.model, state.weights, batching))

    def _begin_round(self, state: LearningState) -> Any:
        blocks, keys = self.blocks, round_keys(state.key, state.round)
        sent = blocks.distributor.next(state.distributor, state.weights)
        message = sent.result if blocks.message is None else blocks.message(sent.result, state.finalizer)
        context = Context(state.client_work, state.aggregator, message, keys.clients, keys.aggregator)
        return sent.state, context, sent.measurements

    def _end_round(
        self,
        state: LearningState,
        distributor_state: PyTree,
        context: Context,
        result: CohortResult,
        surveyed: PyTree,
        asked: Any,
    ) -> Any:
        blocks, total = self.blocks, result.total
        found = self.aggregation.report(state.aggregator, total.aggregate, context.aggregator_key)
        update, sums, weight = self.route.unpack(found.result, total)
        aggregate = update if blocks.survey is None else Surveyed(update, surveyed)
        if blocks.counts_clients:
            private = "differential privacy" in self.aggregation.guarantees
            aggregate = Counted(aggregate, asked if private else total.participated)
        finished = blocks.finalizer.next(state.finalizer, state.weights, aggregate)
        weights = apply_non_trainable(blocks.model, finished.result, sums, weight)
        (weights, aggregator_state, finalizer_state), kept = keep_finite(
            (state.weights, state.aggregator, state.finalizer), (weights, found.state, finished.state)
        )
        new = LearningState(
            state.round + 1,
            state.key,
            weights,
            distributor_state,
            blocks.client_work.advance(state.client_work),
            aggregator_state,
            finalizer_state,
        )
        metrics = {
            "client_work": {"train": results_of(total.measurements)},
            "aggregator": found.measurements,
            "finalizer": finished.measurements,
            "clients": dict(result.counts) | {"round_refused": kept},
        }
        return new, metrics


class _Rounds:
    """The functions of a composed process.

    Attributes:
      server: its part of the rounds.
    """

    def __init__(self, blocks: Composition):
        self._blocks, self.server = blocks, Server(blocks)
        packed = self.server.route.packed(self.server.client_work())
        self._runner = blocks.cohorts.runner(packed, self.server.aggregation)
        self._surveyor = None
        if blocks.survey is not None:
            check_guarantees(blocks.who, self.server.aggregation, {FIRST_PASS: blocks.survey.aggregator.guarantees})
            self._surveyor = blocks.cohorts.runner(blocks.survey.client_work, blocks.survey.aggregator)
        self._survey_message = jax.jit(self._message_of_survey)

    def initialize(self, key: Any = None, *, params: Any = None) -> LearningState:
        key = jax.random.key(0) if key is None else key
        return self.server.first_state(key, initial_weights(self._blocks.model, key, params))

    def set_model_weights(self, state: LearningState, weights: Any) -> LearningState:
        return state._replace(global_model_weights=replaced_weights(self._blocks.model, state.key, weights))

    def next(self, state: LearningState, client_data: Sequence[Any]) -> LearningProcessOutput:
        check_state(state, LearningState)
        blocks, server = self._blocks, self.server
        kept, state = state.clients, commit_to_device(state._replace(clients=()))
        distributor_state, context, sent = server.begin(state)
        entries = as_entries(client_data) if self._surveyor is None else reusable(as_entries(client_data))
        ids = [] if blocks.client_states is None else checked_ids(blocks.who, entries)
        cohort = server.cohort(state, entries, [kept.of(i) for i in ids] or None)
        surveyed: PyTree = ()
        if self._surveyor is not None:
            surveyed, context, cohort = self._run_survey(state, context, cohort)
        context = with_key(context, server.aggregation)
        result = self._runner.run(context, cohort)
        bare = result._replace(outputs={}, refused={})
        asked = jnp.int32(len(cohort)) if blocks.counts_clients else ()
        new, metrics = server.end(state, distributor_state, context, bare, surveyed, asked)
        metrics = {"distributor": sent, **metrics}
        if blocks.client_diagnostics:
            metrics["client_diagnostics"], result = split_diagnostics(blocks.client_work, cohort, result)
        new = new._replace(clients=kept.updated(finite_outputs(ids, result)) if ids else kept)
        return LearningProcessOutput(new, round_metrics(server.aggregation, metrics, result.refused))

    def _run_survey(self, state: LearningState, context: Context, cohort: Cohort) -> tuple[PyTree, Context, Cohort]:
        """Return the survey's aggregate, and the training pass's context and clients."""
        survey = self._blocks.survey
        assert survey is not None and self._surveyor is not None
        first = context._replace(work=survey.client_work.initialize(), aggregator=survey.aggregator.initialize())
        first = with_key(first, survey.aggregator)
        batching = survey.client_batching or cohort.batching
        part = cohort.half(0) if survey.splits else cohort
        result = self._surveyor.run(first, dataclasses.replace(part, batching=batching, check=survey.check))
        found, message = self._survey_message(state, first, result.total)
        cohort = cohort.half(1) if survey.splits else cohort
        if result.outputs:
            cohort = cohort.after(result.outputs)
        return found, context._replace(message=message), cohort

    def _message_of_survey(self, state: LearningState, context: Context, total: Any) -> Any:
        survey = self._blocks.survey
        assert survey is not None
        found = survey.aggregator.report(context.aggregator, total.aggregate, context.aggregator_key).result
        return found, survey.message(context.message, state.finalizer, found)


def with_key(context: Context, aggregator: AggregationProcess) -> Context:
    """Return a round's context with the key that the aggregation may draw with."""
    return context._replace(aggregator_key=aggregation_key(aggregator, context.aggregator_key))


def keep_finite(old: PyTree, new: PyTree) -> tuple[PyTree, Any]:
    """Return a state after a round, and whether the round was refused, int32 ().

    It is where a number would no longer be finite; then all stays as it was.
    """
    finite = remains_finite(old, new)
    return chosen(finite, new, old), (~finite).astype(jnp.int32)


def _with_diagnostics(work: ClientWork) -> ClientWork:
    """Return client work whose output has each client's results beside its own output."""

    def client_final(state: Any, message: PyTree, carry: PyTree) -> ClientResult:
        found = work.client_final(state, message, carry)
        own = results_of(found.measurements)
        diagnostics = {"delta_l2_norm": tree_norm(work.weights_of(found.update)), "update_weight": found.update_weight}
        diagnostics |= own if isinstance(own, dict) else {}
        return found._replace(output={"diagnostics": diagnostics, "output": found.output})

    return dataclasses.replace(work, client_final=client_final)


def split_diagnostics(
    work: ClientWork, cohort: Cohort, result: CohortResult
) -> tuple[dict[Hashable, PyTree], CohortResult]:
    """Return results by client id, and the cohort's result without them.

    It takes apart the outputs of `_with_diagnostics`.
    """
    shares = cohort.shares() if work.counts_examples else None
    found = sorted(result.outputs.items())
    diagnostics = [{**output["diagnostics"]} for _, output in found]
    if shares is not None:
        for (i, _), own in zip(found, diagnostics, strict=True):
            own["update_weight"] = own["update_weight"] * shares[i]
    outputs = {i: output["output"] for i, output in found if jax.tree.leaves(output["output"])}
    named = by_name((cohort.name(i), own) for (i, _), own in zip(found, diagnostics, strict=True))
    return named, result._replace(outputs=outputs)


def by_name(entries: Iterable[tuple[Hashable, PyTree]]) -> dict[Hashable, PyTree]:
    """Return a dict from name to entry; to a list of them if there are several."""
    found: dict[Hashable, list[PyTree]] = {}
    for name, entry in entries:
        found.setdefault(name, []).append(entry)
    return {name: own[0] if len(own) == 1 else own for name, own in found.items()}


def finite_outputs(ids: Sequence[Hashable], result: CohortResult) -> dict[Hashable, PyTree]:
    """Return the states of clients that are not refused, by id, if they are finite."""
    return {
        ids[index]: output
        for index, output in result.outputs.items()
        if index not in result.refused and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(output))
    }


def checked_ids(who: str, entries: Sequence[Entry]) -> list[Hashable]:
    """Return the ids of clients that keep a state.

    Raises:
      InputError: an entry has no id, or a client is there twice.
    """
    ids = [entry.client_id for entry in entries]
    for client_id in ids:
        if client_id is None:
            raise InputError(
                f"{who}: client_data is a list of pairs (client id, data), or a sampler's triples: each client keeps a "
                "state"
            )
        if not _is_hashed(client_id):
            raise InputError(
                f"{who}: a client's state is kept under its id, which is text or a number; not "
                f"{type(client_id).__name__}: {client_id!r:.80}"
            )
    if len(set(ids)) != len(ids):
        raise InputError(f"{who}: a client is in the round twice")
    return ids


def _is_hashed(client_id: Any) -> bool:
    try:
        hash(client_id)
    except TypeError:  # a tuple of lists, say
        return False
    return True


def reusable(entries: Sequence[Entry]) -> list[Entry]:
    """Return clients that can be read again: iterators of batches become lists."""
    return [e._replace(data=list(e.data)) if hasattr(e.data, "__next__") else e for e in entries]
