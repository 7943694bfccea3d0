"""FedBuff: a server that moves whenever some of its clients have answered.

Source: Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation".
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tf2jax_lite.federated.aggregators import MeanFactory, SumFactory
from tf2jax_lite.federated.algorithms.fed_avg import takes_tff_keywords
from tf2jax_lite.federated.client_work import (
    ClientOptimizer,
    ClientResult,
    ClientWeighting,
    ClientWork,
    build_model_delta_client_work,
)
from tf2jax_lite.federated.compose import (
    Cohorts,
    Composition,
    LearningState,
    Server,
    build_apply_optimizer_finalizer,
    check_state,
    checked_ids,
    reusable,
    split_diagnostics,
    with_key,
)
from tf2jax_lite.federated.execution import Cohort, CohortResult
from tf2jax_lite.federated.execution.backends import Context, fold_results, zero_accumulator
from tf2jax_lite.federated.execution.cohort import Entry, as_entries
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.data import ClientDataset, lognormal_latency
from tf2jax_lite.learning.data.examples import numpy_rng
from tf2jax_lite.learning.data.selection import Latency
from tf2jax_lite.learning.metrics import Metric, check_metrics
from tf2jax_lite.learning.model import Model, changing_values, check_model
from tf2jax_lite.learning.process import LearningProcess, LearningProcessOutput, PyTree, round_metrics
from tf2jax_lite.learning.states import ByClient, commit_to_device
from tf2jax_lite.support.errors import InputError

_USABLE, _DROPPED, _EMPTY, _NON_FINITE = range(4)
_NOT_IN_SUM = {"dropped": _DROPPED, "empty": _EMPTY, "non_finite": _NON_FINITE}
_DURATIONS = 1  # the stream of random numbers, apart from those of samplers with the same seed


class PendingClient(NamedTuple):
    """A client that has begun and not answered yet; in the state's ``clients``.

    Attributes:
      result: its `ClientResult`, which the server does not know yet; zeros if it has none that is usable.
      began: int32, the round in which it began.
      seconds: float32, the time until it answers, from the end of the last round.
      status: int32, whether it has a usable result, or why not.
    """

    result: ClientResult
    began: Any
    seconds: Any
    status: Any


class _Schedule(NamedTuple):
    """The events of a round.

    Attributes:
      begun: the clients that begin, in order.
      answered: ids of those whose answers are in the buffer, in order.
      left: id to the seconds that the other ones take beyond the round's end.
      seconds: the round's.
    """

    begun: list[Entry]
    answered: list[Hashable]
    left: dict[Hashable, float]
    seconds: float


def _num_examples(data: Any) -> int:
    if data is None or isinstance(data, ClientDataset):
        return len(data or ())
    return sum(np.shape(jax.tree.leaves(batch)[0])[0] for batch in data)


def _with_results(work: ClientWork) -> ClientWork:
    """Return client work whose outputs are its results, without measurements."""

    def client_final(state: Any, message: PyTree, carry: PyTree) -> ClientResult:
        found = work.client_final(state, message, carry)
        result = found._replace(measurements=(), output=())
        return found._replace(output={**found.output, "output": result} if found.output else result)

    return dataclasses.replace(work, client_final=client_final)


class _Buffer:
    """The rounds of `build_fed_buff`."""

    def __init__(self, server: Server, size: int, concurrency: int, exponent: float, latency: Latency):
        blocks, route = server.blocks, server.route
        self._server, self._size, self._concurrency = server, size, concurrency
        self._exponent, self._latency = exponent, latency
        self._is_private = "differential privacy" in server.aggregation.guarantees
        work = server.client_work()
        changing = changing_values(blocks.model, blocks.model.shapes.non_trainable)
        form = route.pack(ClientResult(server.form, jax.ShapeDtypeStruct((), jnp.float32), changing))
        # The sum is not used: updates wait for the buffer. The runner finds those that are not usable.
        self._runner = blocks.cohorts.runner(_with_results(route.packed(work)), SumFactory().create(form.update))
        nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), form)
        self.empty = PendingClient(nothing, np.int32(0), np.float32(0), np.int32(_DROPPED))
        self._fold = jax.jit(self._fold_buffer)

    def next(self, state: LearningState, client_data: Sequence[Any]) -> LearningProcessOutput:
        server, blocks = self._server, self._server.blocks
        check_state(state, LearningState)
        pending, state = dict(state.clients), commit_to_device(state._replace(clients=()))
        distributor_state, context, sent = server.begin(state)
        entries = reusable(as_entries(client_data))
        checked_ids(blocks.who, entries)
        schedule = self._schedule(state, pending, entries)
        cohort = server.cohort(state, schedule.begun)
        trained = self._runner.run(context, cohort)
        metrics: dict[str, Any] = {"distributor": sent}
        if blocks.client_diagnostics:
            metrics["client_diagnostics"], trained = split_diagnostics(blocks.client_work, cohort, trained)
        pending |= self._begun(cohort, trained, int(state.round))
        answers = [pending.pop(client_id) for client_id in schedule.answered]
        ages = [int(state.round) - int(answer.began) for answer in answers]
        context = with_key(context, server.aggregation)
        total, refused = self._fold(context, *self._stacked(answers, ages))
        counts = {
            name: np.int32(sum(int(answer.status) == number for answer in answers))
            for name, number in _NOT_IN_SUM.items()
        }
        counts |= {"participated": total.participated, "non_finite": counts["non_finite"] + total.non_finite}
        result = CohortResult(total._replace(measurements=trained.total.measurements), counts, {}, {})
        new, found = server.end(state, distributor_state, context, result, (), ())
        metrics |= found
        metrics["buffer"] = {
            "seconds": np.float32(schedule.seconds),
            "staleness": np.float32(np.mean(ages) if ages else 0),
            "pending": np.int32(len(pending)),
        }
        lost = {
            i: client_id
            for i, client_id in enumerate(schedule.answered)
            if refused[i] or int(answers[i].status) == _NON_FINITE
        }
        left = {i: own._replace(seconds=np.float32(schedule.left[i])) for i, own in pending.items()}
        new = new._replace(clients=ByClient(self.empty, left))
        return LearningProcessOutput(new, round_metrics(server.aggregation, metrics, lost))

    def _schedule(
        self, state: LearningState, pending: Mapping[Hashable, PendingClient], entries: Sequence[Entry]
    ) -> _Schedule:
        rng = numpy_rng(state.key, int(state.round), _DURATIONS)
        waiting = [(float(own.seconds), order, client_id) for order, (client_id, own) in enumerate(pending.items())]
        heapq.heapify(waiting)
        ready = [entry for entry in entries if entry.client_id not in pending][::-1]
        begun: list[Entry] = []
        answered: list[Hashable] = []
        now = 0.0
        while len(answered) < self._size:
            while ready and len(waiting) < self._concurrency:
                begun.append(ready.pop())
                end = now + self._duration(begun[-1], rng)
                heapq.heappush(waiting, (end, len(pending) + len(begun), begun[-1].client_id))
            if not waiting:
                break
            now, _, client_id = heapq.heappop(waiting)
            answered.append(client_id)
        return _Schedule(begun, answered, {client_id: end - now for end, _, client_id in waiting}, now)

    def _duration(self, entry: Entry, rng: np.random.Generator) -> float:
        # Other clients' answers must not tell how many examples one has.
        count = 1 if self._is_private else _num_examples(entry.data)
        seconds = float(self._latency(entry.client_id, count, rng))
        if not 0 <= seconds < math.inf:
            raise InputError(f"build_fed_buff: latency returns finite seconds of 0 or more, not {seconds}.")
        return seconds

    def _begun(self, cohort: Cohort, trained: CohortResult, number: int) -> dict[Hashable, PendingClient]:
        """Return the clients that begin, with their results."""
        counts_examples = self._server.blocks.client_work.counts_examples
        shares = cohort.shares() if counts_examples else None
        unmoved = cohort.without_batch() if counts_examples else {}
        found = {}
        for i, data in enumerate(cohort.clients):
            result, status = self.empty.result, _DROPPED if data is None else _EMPTY
            if i in unmoved:
                result, status = result._replace(update_weight=np.float32(unmoved[i])), _USABLE
            elif i in trained.refused:
                status = _NON_FINITE
            elif i in trained.outputs:
                # Copies: a row of the cohort's array would keep all of it.
                result, status = jax.tree.map(np.array, trained.outputs[i]), _USABLE
                if shares is not None:
                    result = result._replace(update_weight=result.update_weight * shares[i])
            found[cohort.name(i)] = self.empty._replace(result=result, began=np.int32(number), status=np.int32(status))
        return found

    def _stacked(self, answers: Sequence[PendingClient], ages: Sequence[int]) -> tuple[ClientResult, Any, Any]:
        """Return the buffer's results, factors, and which of them are usable."""
        rows = [*answers, *[self.empty] * (self._size - len(answers))]
        results = jax.tree.map(lambda *leaves: np.stack(leaves), *(row.result for row in rows))
        factors = np.ones(self._size, np.float32)
        factors[: len(ages)] = (1.0 + np.array(ages, np.float64)) ** -self._exponent
        return results, factors, np.array([int(row.status) == _USABLE for row in rows])

    def _fold_buffer(self, context: Context, results: ClientResult, factors: Any, usable: Any) -> Any:
        """Return the buffer's sum, and which results were left out."""

        def scaled(leaf: Any) -> Any:
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                return leaf
            return (leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1))).astype(leaf.dtype)

        update, non_trainable = jax.tree.map(scaled, (results.update, results.non_trainable))
        results = results._replace(update=update, non_trainable=non_trainable, measurements={})
        aggregation, nothing = self._server.aggregation, self.empty.result._replace(measurements={})
        total = zero_accumulator(aggregation, context.aggregator, self._size, nothing)
        index = jnp.arange(self._size, dtype=jnp.int32)
        return fold_results(aggregation, context.aggregator, total, results, usable, index, context.aggregator_key)


@takes_tff_keywords
def build_fed_buff(
    model: Model,
    client_optimizer: ClientOptimizer,
    server_optimizer: optax.GradientTransformation | None = None,
    *,
    buffer_size: int = 10,
    concurrency: int = 100,
    staleness_exponent: float = 0.5,
    latency: Latency | None = None,
    client_weighting: ClientWeighting | str = ClientWeighting.UNIFORM,
    train_metrics: Mapping[str, Metric] | None = None,
    aggregator: Any = None,
    client_diagnostics: bool = False,
    **cohorts: Any,
) -> LearningProcess[LearningState]:
    """Build FedBuff: asynchronous training with simulated times.

    Clients train concurrently, each from the weights of the round in which it began. When ``buffer_size`` of them have
    answered, the round ends: the server aggregates their changes, that of a client that began t rounds ago times
    (1 + t)**-staleness_exponent, and moves. The place of a client that has answered is free for the next one.

    Args:
      model: the model.
      client_optimizer: see `build_weighted_fed_avg`.
      server_optimizer: see `build_weighted_fed_avg`.
      buffer_size: how many clients answer in a round.
      concurrency: how many clients train at a time.
      staleness_exponent: 0 or more; 0 for no scaling.
      latency: ``(client id, number of examples, numpy generator) -> seconds`` until a client answers, drawn with the
        state's key; `lognormal_latency` by default. Under differential privacy the number of examples is 1: each other
        client's place in the rounds depends on the time, which would tell the number.
      client_weighting: ``"uniform"`` or ``"num_examples"``.
      train_metrics: see `build_weighted_fed_avg`; of clients that begin in the round.
      aggregator: of the changes in the buffer; the weighted mean by default.
      client_diagnostics: see `compose_learning_process`; of clients that begin in the round.
      **cohorts: ``client_batching``, ``client_execution``, ``clients_per_chunk`` and ``mesh`` of
        `compose_learning_process`.

    Returns:
      The process. ``client_data`` are a round's candidates, with ids: in order, those that are not training begin when
      a place is free, the others are not used. Give at least ``concurrency`` in the first round, and ``buffer_size``
      later. A client that drops out, has no data or sends unusable values takes its time, and then a place in the
      buffer. The state's ``clients`` are the `PendingClient`s of those that are training. Metrics: ``clients`` counts
      those that have answered; ``buffer`` has the round's simulated ``seconds``, the mean ``staleness`` t, and how many
      clients are ``pending``.

    Raises:
      InputError: an option does not fit; a client without an id, or one twice.
    """
    check_number("build_fed_buff", "buffer_size", buffer_size, least=1, whole=True)
    check_number("build_fed_buff", "concurrency", concurrency, least=1, whole=True)
    check_number("build_fed_buff", "staleness_exponent", staleness_exponent, least=0)
    work = build_model_delta_client_work(
        model,
        client_optimizer,
        client_weighting=client_weighting,
        train_metrics=check_metrics("build_fed_buff", "train_metrics", train_metrics),
    )
    process = Composition(
        "build_fed_buff",
        check_model(model),
        work,
        MeanFactory() if aggregator is None else aggregator,
        build_apply_optimizer_finalizer(server_optimizer or optax.sgd(1.0)),
        client_diagnostics=client_diagnostics,
        cohorts=Cohorts.of(**cohorts),
    ).process()
    latency = lognormal_latency() if latency is None else latency
    buffer = _Buffer(process.server, int(buffer_size), int(concurrency), float(staleness_exponent), latency)

    def initialize(key: Any = None, *, params: Any = None) -> LearningState:
        return process.initialize(key, params=params)._replace(clients=ByClient(buffer.empty))

    return dataclasses.replace(process, initialize=initialize, next=buffer.next, takes_client_ids=True, server=None)
