"""Types exchanged by building blocks: processes, outputs, client updates.

A process is a pair of pure functions.

Sources: tff.templates.MeasuredProcess, tff.templates.AggregationProcess, tff.learning.templates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

State = TypeVar("State")
Guarantee = Literal["differential privacy", "local differential privacy", "secure aggregation", "robustness"]
PyTree = Any


class ModelWeights(NamedTuple):
    """The weights of a model. See tff.learning.models.ModelWeights.

    Attributes:
      trainable: pytree of the parameters that training changes.
      non_trainable: pytree of the rest (statistics of batch normalization, frozen parameters).
    """

    trainable: PyTree
    non_trainable: PyTree


class MeasuredProcessOutput(NamedTuple):
    """Result of one step of a process. See tff.templates.MeasuredProcessOutput.

    Attributes:
      state: the process's state after the step.
      result: the step's result.
      measurements: dict of metrics about the step (arrays; nested dicts for inner processes).
    """

    state: PyTree
    result: PyTree
    measurements: dict[str, Any]


class LearningProcessOutput(NamedTuple):
    """Result of one round of training.

    See tff.learning.templates.LearningProcessOutput.

    Attributes:
      state: the server's state after the round.
      metrics: dict of the round's metrics.
    """

    state: PyTree
    metrics: dict[str, Any]


class ClientUpdates(NamedTuple):
    """The updates of ``n`` clients of a cohort, stacked along a leading axis.

    Attributes:
      update: pytree whose leaves have shape (n, ...): initial minus final weights, or gradients.
      weight: float32 (n,), the clients' weights in the mean.
      mask: bool (n,), False where there is no such client (padding), it dropped out, has no data, or its update
        is not finite. Such a row is ignored, even if it contains NaN.
      index: int32 (n,), each client's index in the round's cohort.
    """

    update: PyTree
    weight: Any
    mask: Any
    index: Any


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A noised release of a round, for the accountant.

    Attributes:
      noise_multiplier: standard deviation of the noise over the movement of the sum by one client more.
      tree: of noise from a tree (DP-FTRL), how many rounds the first tree and each later one have; None for noise that
        is independent from round to round.
    """

    noise_multiplier: float
    tree: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class AggregationProcess:
    """Turns the updates of a cohort into one update.

    It needs constant memory if the aggregation allows it. All functions are pure and can be jitted. A cohort of any
    size is folded chunk by chunk: ``zero``, ``accumulate`` for each chunk, ``merge`` of the accumulators of several
    devices, ``report`` once. An aggregation of all updates at once (such as a median) keeps them in the accumulator.
    See tff.templates.AggregationProcess and tff.federated_aggregate.

    Attributes:
      initialize: ``() -> state``.
      zero: ``(state, num_clients) -> accumulator``; ``num_clients`` is the cohort's padded size, a Python int.
      accumulate: ``(state, accumulator, updates: ClientUpdates, key) -> accumulator``. ``key`` is the round's key;
        random numbers per client fold the client's ``index`` in.
      merge: ``(accumulator, accumulator) -> accumulator``.
      report: ``(state, accumulator, key) -> MeasuredProcessOutput`` with the aggregate in the form of one update.
      refuses_weights: why all clients must weigh the same (differential privacy), or "" if their weights may differ.
      guarantees: `Guarantee`s that the aggregate has. All else that leaves a client must have them, too.
      not_private: what of the aggregation itself differential privacy does not cover; "" if all is.
      bounds_updates: whether it bounds the influence of updates, however large their finite numbers are.
      is_secret: whether a guarantee rests on secret random numbers: the key is then
        `entropy.aggregation_key`'s.
      noise_seed: for tests: random numbers of such an aggregation are a function of this and the round's key.
      covered: names of the measurements that differential privacy covers; others must stay on the server.
      mechanisms: all noised releases of a round; see `aggregators.extract_dp_event`.
    """

    initialize: Callable[[], PyTree]
    zero: Callable[[PyTree, int], PyTree]
    accumulate: Callable[[PyTree, PyTree, ClientUpdates, Any], PyTree]
    merge: Callable[[PyTree, PyTree], PyTree]
    report: Callable[[PyTree, PyTree, Any], MeasuredProcessOutput]
    refuses_weights: str = ""
    guarantees: frozenset[Guarantee] = frozenset()
    not_private: str = ""
    bounds_updates: bool = False
    is_secret: bool = False
    noise_seed: int | None = None
    covered: frozenset[str] = frozenset()
    mechanisms: tuple[Mechanism, ...] = ()

    def next(self, state: PyTree, updates: ClientUpdates, key: Any) -> MeasuredProcessOutput:
        """Aggregate a whole cohort.

        ``key`` is a JAX key for the randomness of the aggregation.
        """
        zero = self.zero(state, int(updates.mask.shape[0]))
        return self.report(state, self.accumulate(state, zero, updates, key), key)


# The key of a round's metrics that differential privacy does not cover.
NOT_PRIVATE = "not_private"


def round_metrics(
    aggregation: AggregationProcess, metrics: dict[str, Any], refused: Mapping[int, Any]
) -> dict[str, Any]:
    """Return a round's metrics, with the names of refused clients, if there are any.

    Under differential privacy, all that it does not cover is under ``not_private``: it must stay on the server, and is
    neither recorded nor written to artifacts.

    Args:
      aggregation: of the clients' updates.
      metrics: the round's. Those of ``distributor`` and ``finalizer`` are functions of the aggregate.
      refused: client index to name.
    """
    if refused:
        metrics = {**metrics, "refused_clients": list(refused.values())}
    if "differential privacy" not in aggregation.guarantees:
        return metrics
    public = {name: metrics[name] for name in ("distributor", "finalizer") if name in metrics}
    public["aggregator"] = _only(metrics.get("aggregator", {}), aggregation.covered)
    rest = {name: value for name, value in metrics.items() if name not in ("distributor", "finalizer")}
    return {**public, NOT_PRIVATE: rest}


def _only(measured: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    kept = {name: _only(value, names) for name, value in measured.items() if isinstance(value, Mapping)}
    kept = {name: value for name, value in kept.items() if value}
    return kept | {name: value for name, value in measured.items() if name in names}


@dataclasses.dataclass(frozen=True)
class LearningProcess(Generic[State]):
    """A training process: rounds over a state.

    See tff.learning.templates.LearningProcess.

    Attributes:
      initialize: ``(key=None, *, params=None) -> state``: new weights drawn with ``key``, or the weights given.
      next: ``(state, client_data) -> LearningProcessOutput(state, metrics)``: one round.
      get_model_weights: ``(state) -> ModelWeights``.
      set_model_weights: ``(state, ModelWeights) -> state``.
      takes_client_ids: whether ``client_data`` is a list of pairs ``(client id, data)``: clients keep a state.
      guarantees: of the aggregation of updates; see `AggregationProcess`.
      mechanisms: the noised releases of a round, of all its passes.
      server: the `compose.Server` of a process that is composed of blocks, for real clients; or None.
    """

    initialize: Callable[..., State]
    next: Callable[[State, Any], LearningProcessOutput]
    get_model_weights: Callable[[State], ModelWeights]
    set_model_weights: Callable[[State, ModelWeights], State]
    takes_client_ids: bool = False
    guarantees: frozenset[Guarantee] = frozenset()
    mechanisms: tuple[Mechanism, ...] = ()
    server: Any = None
