"""Types exchanged by building blocks: processes, outputs, client updates.

A process is a pair of pure functions.

Sources: tff.templates.MeasuredProcess, tff.templates.AggregationProcess, tff.learning.templates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = [
    "AggregationProcess",
    "ClientUpdates",
    "LearningProcess",
    "LearningProcessOutput",
    "MeasuredProcessOutput",
    "ModelWeights",
]

State = TypeVar("State")
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
    """

    initialize: Callable[[], PyTree]
    zero: Callable[[PyTree, int], PyTree]
    accumulate: Callable[[PyTree, PyTree, ClientUpdates, Any], PyTree]
    merge: Callable[[PyTree, PyTree], PyTree]
    report: Callable[[PyTree, PyTree, Any], MeasuredProcessOutput]
    refuses_weights: str = ""

    def next(self, state: PyTree, updates: ClientUpdates, key: Any) -> MeasuredProcessOutput:
        """Aggregate a whole cohort.

        ``key`` is a JAX key for the randomness of the aggregation.
        """
        zero = self.zero(state, int(updates.mask.shape[0]))
        return self.report(state, self.accumulate(state, zero, updates, key), key)


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
      refuses_weights: that of the aggregation of updates; see `AggregationProcess`.
    """

    initialize: Callable[..., State]
    next: Callable[[State, Any], LearningProcessOutput]
    get_model_weights: Callable[[State], ModelWeights]
    set_model_weights: Callable[[State, ModelWeights], State]
    takes_client_ids: bool = False
    refuses_weights: str = ""
