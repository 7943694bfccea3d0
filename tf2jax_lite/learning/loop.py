"""Many rounds: sampling, history, checkpoints and exact resumption."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from tf2jax_lite.learning.checkpoints import Checkpoint, open_store
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.options import RoundOptions
from tf2jax_lite.learning.process import NOT_PRIVATE, LearningProcess
from tf2jax_lite.learning.recorder import (
    History,
    JSONLinesReleaseManager,
    Plot,
    ProgressBar,
    Record,
    Recorder,
    ReleaseManager,
    TensorBoardReleaseManager,
    diagnostics_record,
    flat_metrics,
)
from tf2jax_lite.learning.states import id_json
from tf2jax_lite.support.errors import CheckpointError, InputError
from tf2jax_lite.support.options import takes


class ClientSampler(Protocol):
    """A sampler of a round's clients: see ``federated.data`` and FedJAX."""

    def set_round_num(self, round_num: int) -> None:
        """Set the round that `sample` draws for."""

    def sample(self) -> Any:
        """Return tuples of client id, ClientDataset, and further values of the sampler."""


def _check_json(record: Record) -> None:
    try:
        json.dumps(record)
    except (TypeError, ValueError) as error:
        raise InputError(f"run_rounds: summarize returns JSON values by name, to be stored: {error}") from error


def _clients(source: Any, round_number: int) -> Any:
    if hasattr(source, "set_round_num") and hasattr(source, "sample"):
        source.set_round_num(round_number)
        # Not the sampler's keys: random numbers are those of the state's key, which its checkpoint has.
        return [item[:2] for item in source.sample()]
    return source(round_number)


@takes(RoundOptions)
def run_rounds(
    process: LearningProcess[Any],
    clients: Callable[[int], Any] | ClientSampler,
    num_rounds: int,
    *,
    key: Any = None,
    params: Any = None,
    evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
    summarize: Callable[[Mapping[str, Any]], Record] = flat_metrics,
    report: Callable[[Record], None] = lambda record: None,
    stop: Callable[[Sequence[Record]], bool] = lambda history: False,
    resumed: Callable[[Checkpoint], None] = lambda checkpoint: None,
    **options: Any,
) -> tuple[Any, list[Record]]:
    """Train for a number of rounds.

    Killed at any moment and called again, it ends with the same bits; under differential privacy with other noise, and
    rounds that are run again count for the accountant. Metrics that privacy does not cover are not recorded.

    Args:
      process: the learning process.
      clients: ``(round) -> client_data`` for ``process.next``, a function of the round alone; or a sampler, whose
        client ids go along where the process takes them.
      num_rounds: rounds in all, those before a resumption included.
      key: for ``process.initialize``.
      params: for ``process.initialize``.
      evaluate: ``(ModelWeights) -> metrics``, recorded under ``eval/``.
      summarize: turns nested metrics into recorded values, JSON values by name; by default their numbers, and arrays as
        lists.
      report: called with each record, when its round is saved; with those before a resumption, first.
      stop: ``(records so far) -> whether to end early``, before each round.
      resumed: called with the checkpoint that training resumes from, before anything else.
      **options: of `RoundOptions`.

    Returns:
      ``(state, history)``: the last state, and for each round a dict with ``round`` (from 1) and metrics by path, and
      ``client_diagnostics`` by client id, as text, if the process has them.
      Rounds before a resumption are read from ``metrics_file``, or else from the checkpoint.

    Raises:
      InputError: a number out of range, ``clients`` neither a function nor a sampler, an extra that is needed is not
        installed, or the state, a client's id or a record cannot be stored, which is known before a round begins.
      DataError: the metrics file is damaged, or a record cannot be written.
      CheckpointError: the checkpoint is damaged, of another training, or of more rounds, or cannot be written.
    """
    if not (callable(clients) or (hasattr(clients, "set_round_num") and hasattr(clients, "sample"))):
        raise InputError(
            "run_rounds: clients is a function of the round's number, as in lambda number: [...], or a sampler; not "
            f"{type(clients).__name__}"
        )
    check_number("run_rounds", "num_rounds", num_rounds, least=0, whole=True)
    given = RoundOptions(**options)
    with contextlib.ExitStack() as ending:
        rounds = _Rounds(process, given, evaluate, summarize, report, ending)
        state = rounds.begin(process.initialize(key, params=params), num_rounds, resumed)
        for number in range(rounds.done + 1, num_rounds + 1):
            if stop(tuple(rounds.history)):
                break
            state = rounds.run(state, clients, number, last=number == num_rounds)
    return state, rounds.history


class _Rounds:
    """The rounds of one training: their records and checkpoints.

    Attributes:
      done: number of rounds before a resumption.
      history: the records so far.
    """

    def __init__(
        self,
        process: LearningProcess[Any],
        given: RoundOptions,
        evaluate: Callable[[Any], Mapping[str, Any]] | None,
        summarize: Callable[[Mapping[str, Any]], Record],
        report: Callable[[Record], None],
        ending: contextlib.ExitStack,
    ):
        self._process, self._given, self._evaluate = process, given, evaluate
        self._summarize, self._report, self._ending = summarize, report, ending
        self.done, self.history = 0, list[Record]()
        self._checkpoints = None if given.checkpoint_dir is None else open_store(given.checkpoint_dir)
        if self._checkpoints is not None and self._checkpoints is not given.checkpoint_dir:
            ending.callback(self._checkpoints.close)
        self._recorders, self._progress = list[Recorder](), Recorder()

    def begin(self, state: Any, num_rounds: int, resumed: Callable[[Checkpoint], None]) -> Any:
        """Return the state to begin with, from a checkpoint if there is one."""
        given, checkpoints = self._given, self._checkpoints
        if checkpoints is not None and checkpoints.latest() is not None:
            found = checkpoints.restore(state)
            self.done, state, kept = found
            if self.done > num_rounds:
                raise CheckpointError(
                    f"the checkpoint is of {self.done} {given.unit}s, more than the {num_rounds} that are asked for"
                )
            self.history = list(kept.get("history", ()))
            resumed(found)
        if checkpoints is not None:
            checkpoints.check(state)
        if given.metrics_file is not None:
            lines = JSONLinesReleaseManager(given.metrics_file)
            self.history = lines.resume(self.done)
            self._record_with(lines)
        if given.tensorboard_dir is not None:
            self._record_with(TensorBoardReleaseManager(given.tensorboard_dir))
        if given.plot_file is not None:
            self._record_with(Plot(History(given.unit, self.history), given.plot_file))
        if given.progress:
            self._progress = self._ending.enter_context(ProgressBar(given.unit, num_rounds, self.done))
        for record in self.history:
            self._report(copy.deepcopy(record))
        if not self.history and given.evaluate_first:
            self._add({given.unit: 0, **({} if self._evaluate is None else self._evaluated(state))})
            self._report(copy.deepcopy(self.history[-1]))
        return state

    def _record_with(self, recorder: Recorder) -> None:
        self._recorders.append(self._ending.enter_context(recorder))

    def run(self, state: Any, clients: Callable[[int], Any] | ClientSampler, number: int, last: bool) -> Any:
        """Return the state after a round that is recorded and saved."""
        given, begin = self._given, time.perf_counter()
        client_data = _clients(clients, number - 1)
        if self._checkpoints is not None and self._process.takes_client_ids:
            client_data = list(client_data)
            for client in client_data:
                if isinstance(client, tuple) and client[0] is not None:
                    id_json(client[0])
        output = self._process.next(state, client_data)
        unrecorded = ("client_diagnostics", "refused_clients", NOT_PRIVATE)
        metrics = {name: value for name, value in output.metrics.items() if name not in unrecorded}
        record: Record = {given.unit: number, **self._summarize(jax.device_get(metrics))}
        if refused := output.metrics.get("refused_clients"):
            record["refused_clients"] = [str(name) for name in refused]
        if diagnostics := output.metrics.get("client_diagnostics"):
            record["client_diagnostics"] = diagnostics_record(diagnostics)  # ids need have no order
        if self._evaluate is not None and (last or number % given.evaluate_every == 0):
            record |= self._evaluated(output.state)
        if given.timed:
            record["seconds"] = round(time.perf_counter() - begin, 3)
        self._add(record)
        if self._checkpoints is not None and (last or number % given.checkpoint_every == 0):
            kept = {} if given.metrics_file is not None else {"history": self.history}
            self._checkpoints.save(number, output.state, kept)
        self._progress.on_record(record)
        self._report(copy.deepcopy(record))
        return output.state

    def _evaluated(self, state: Any) -> Record:
        assert self._evaluate is not None
        weights = jax.tree.map(lambda leaf: leaf, self._process.get_model_weights(state))  # in containers of its own
        return self._summarize({"eval": jax.device_get(dict(self._evaluate(weights)))})

    def _add(self, record: Record) -> None:
        if self._checkpoints is not None or self._given.metrics_file is not None:
            _check_json(record)
        self.history.append(record)
        # The line comes before the checkpoint, so that a checkpoint always has its history; later lines are dropped.
        for recorder in self._recorders:
            recorder.on_record(record)


def train_model(
    process: LearningProcess[Any],
    clients: Callable[[int], Any] | ClientSampler,
    num_rounds: int,
    *,
    callbacks: Sequence[ReleaseManager | Callable[[Record], None]] = (),
    **options: Any,
) -> tuple[Any, list[Record]]:
    """Train for a number of rounds, and release each round's values to callbacks.

    See tff.learning.programs.train_model.

    Args:
      process: the learning process.
      clients: a sampler, or ``(round) -> client_data``.
      num_rounds: rounds in all, those before a resumption included.
      callbacks: release managers (objects with ``release(value, key)``), or functions of a round's record. They are
        called when a round is done and saved; after a resumption, first with the rounds before it.
      **options: of `run_rounds`: ``key``, ``params``, ``evaluate``, ``evaluate_every``, ``checkpoint_dir`` (TFF's
        program state manager), ``checkpoint_every``.

    Returns:
      ``(state, history)``, see `run_rounds`.

    Raises:
      InputError: a callback is neither; see `run_rounds` for the others.
    """
    for callback in callbacks:
        if not (callable(getattr(callback, "release", None)) or callable(callback)):
            raise InputError(
                f"train_model: a callback has release(value, key), or is a function of a record; not {callback!r:.80}"
            )

    def report(record: Record) -> None:
        for callback in callbacks:
            if isinstance(callback, ReleaseManager):
                callback.release(record, record["round"])
            else:
                callback(record)

    with contextlib.ExitStack() as ending:
        for callback in callbacks:
            if isinstance(callback, Recorder):
                ending.enter_context(callback)
        return run_rounds(process, clients, num_rounds, report=report, **options)
