"""Many rounds: sampling, history, checkpoints and exact resumption."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax

from tf2jax_lite.export.atomic_dir import write_file
from tf2jax_lite.learning.checkpoints import Checkpoint, CheckpointStore, open_store
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import NOT_PRIVATE, LearningProcess
from tf2jax_lite.learning.recorder import (
    EventWriter,
    Record,
    ReleaseManager,
    diagnostics_record,
    flat_metrics,
    plot_history,
    scalars_of,
)
from tf2jax_lite.learning.states import id_json
from tf2jax_lite.support.errors import CheckpointError, DataError, ExportError, InputError
from tf2jax_lite.support.limits import regular


class ClientSampler(Protocol):
    """A sampler of a round's clients: see ``federated.data`` and FedJAX."""

    def set_round_num(self, round_num: int) -> None:
        """Set the round that `sample` draws for."""

    def sample(self) -> Any:
        """Return tuples of client id, ClientDataset, and further values of the sampler."""


def read_history(path: str | Path) -> list[Record]:
    """Read a JSONL file of metrics that `run_rounds` wrote.

    Each line is a dict with ``round``.

    Args:
      path: the file.

    Raises:
      DataError: the file is damaged, or cannot be read. An unfinished last line, of a run that was killed, is left out.
    """
    records: list[Record] = []
    try:
        lines = regular(Path(path), DataError).read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a history, as it is no text: {error}") from error
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
            record["round"] = int(record["round"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: not a record of a round: {error}") from error
        records.append(record)
    return records


@contextlib.contextmanager
def _writing(path: Any) -> Iterator[None]:
    try:
        yield
    except (OSError, ExportError) as error:
        raise DataError(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})") from error


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


def run_rounds(
    process: LearningProcess[Any],
    clients: Callable[[int], Any] | ClientSampler,
    num_rounds: int,
    *,
    key: Any = None,
    params: Any = None,
    evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
    evaluate_every: int = 10,
    evaluate_first: bool = False,
    checkpoint_dir: str | Path | CheckpointStore | None = None,
    checkpoint_every: int = 10,
    metrics_file: str | Path | None = None,
    tensorboard_dir: str | Path | None = None,
    plot_file: str | Path | None = None,
    progress: bool = False,
    timed: bool = False,
    summarize: Callable[[Mapping[str, Any]], Record] = flat_metrics,
    report: Callable[[Record], None] = lambda record: None,
    unit: str = "round",
    stop: Callable[[Sequence[Record]], bool] = lambda history: False,
    resumed: Callable[[Checkpoint], None] = lambda checkpoint: None,
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
      evaluate_every: every how many rounds, and after the last.
      evaluate_first: evaluate before the first round, too, as round 0.
      checkpoint_dir: where the state is saved (Orbax; extra: checkpoint), or a `CheckpointStore`; training resumes from
        the newest.
      checkpoint_every: every how many rounds, and after the last.
      metrics_file: a JSONL file: a line a round with the metrics' scalars.
      tensorboard_dir: where scalars are written for TensorBoard.
      plot_file: a ``.png`` or ``.svg`` of loss and accuracy by round (matplotlib; extra: plot), written at the end.
      progress: show a progress bar.
      timed: record each round's ``seconds``, too; they are not the same after a resumption.
      summarize: turns nested metrics into recorded values, JSON values by name; by default their numbers, and arrays as
        lists.
      report: called with each record, when its round is saved; with those before a resumption, first.
      unit: the key of a round's number in its record: "epoch" where a round is a pass over one data set. It must be
        "round" with ``metrics_file``, ``tensorboard_dir`` or ``plot_file``.
      stop: ``(records so far) -> whether to end early``, before each round.
      resumed: called with the checkpoint that training resumes from, before anything else.

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
    check_number("run_rounds", "evaluate_every", evaluate_every, least=1, whole=True)
    check_number("run_rounds", "checkpoint_every", checkpoint_every, least=1, whole=True)
    state = process.initialize(key, params=params)
    done, history = 0, []
    own = not isinstance(checkpoint_dir, CheckpointStore)
    checkpoints = None if checkpoint_dir is None else open_store(checkpoint_dir)
    if checkpoints is not None and checkpoints.latest() is not None:
        done, state, kept = found = checkpoints.restore(state)
        if done > num_rounds:
            raise CheckpointError(f"the checkpoint is of {done} {unit}s, more than the {num_rounds} that are asked for")
        history = list(kept.get("history", ()))
        resumed(found)
    if checkpoints is not None:
        checkpoints.check(state)
    if metrics_file is not None:
        with _writing(metrics_file):
            history = _resume_file(Path(metrics_file), done)
    with _writing(tensorboard_dir):
        scalars = None if tensorboard_dir is None else EventWriter(tensorboard_dir)
    bar, advance = _progress_bar(num_rounds, done, progress)

    def evaluated() -> Record:
        assert evaluate is not None
        weights = jax.tree.map(lambda leaf: leaf, process.get_model_weights(state))  # in containers of its own
        return summarize({"eval": jax.device_get(dict(evaluate(weights)))})

    def add(record: Record) -> None:
        if checkpoints is not None or metrics_file is not None:
            _check_json(record)
        history.append(record)
        # The line comes before the checkpoint, so that a checkpoint always has its history; later lines are dropped.
        if metrics_file is not None:
            with _writing(metrics_file):
                _append(Path(metrics_file), record)
        if scalars is not None:
            with _writing(tensorboard_dir):
                scalars.add_scalars({n: v for n, v in scalars_of(record).items() if n != "round"}, record["round"])

    for record in history:
        report(copy.deepcopy(record))
    with bar:
        if not history and evaluate_first:
            add({unit: 0, **({} if evaluate is None else evaluated())})
            report(copy.deepcopy(history[-1]))
        for number in range(done + 1, num_rounds + 1):
            if stop(tuple(history)):
                break
            begin = time.perf_counter()
            client_data = _clients(clients, number - 1)
            if checkpoints is not None and process.takes_client_ids:
                client_data = list(client_data)
                for client in client_data:
                    if isinstance(client, tuple) and client[0] is not None:
                        id_json(client[0])
            output = process.next(state, client_data)
            state = output.state
            unrecorded = ("client_diagnostics", "refused_clients", NOT_PRIVATE)
            metrics = {name: value for name, value in output.metrics.items() if name not in unrecorded}
            record: Record = {unit: number, **summarize(jax.device_get(metrics))}
            if refused := output.metrics.get("refused_clients"):
                record["refused_clients"] = [str(name) for name in refused]
            if diagnostics := output.metrics.get("client_diagnostics"):
                record["client_diagnostics"] = diagnostics_record(diagnostics)  # ids need have no order
            if evaluate is not None and (number == num_rounds or number % evaluate_every == 0):
                record |= evaluated()
            if timed:
                record["seconds"] = round(time.perf_counter() - begin, 3)
            add(record)
            if checkpoints is not None and (number == num_rounds or number % checkpoint_every == 0):
                checkpoints.save(number, state, {} if metrics_file is not None else {"history": history})
            advance(record)
            report(copy.deepcopy(record))
    if scalars is not None:
        scalars.close()
    if own and checkpoints is not None:
        checkpoints.close()
    if plot_file is not None:
        plot_history(history, plot_file)
    return state, history


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
    releases = [getattr(callback, "release", None) for callback in callbacks]
    for callback, release in zip(callbacks, releases, strict=True):
        if not callable(release) and not callable(callback):
            raise InputError(
                f"train_model: a callback has release(value, key), or is a function of a record; not {callback!r:.80}"
            )

    def report(record: Record) -> None:
        for callback, release in zip(callbacks, releases, strict=True):
            if release is None:
                callback(record)  # type: ignore[operator]
            else:
                release(record, record["round"])

    return run_rounds(process, clients, num_rounds, report=report, **options)


def _append(path: Path, record: Record) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _resume_file(path: Path, done: int) -> list[Record]:
    """Keep records up to the checkpoint; later ones are written again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = [r for r in read_history(path) if r["round"] <= done] if path.exists() else []
    write_file(path, "".join(json.dumps(record) + "\n" for record in kept).encode())
    return kept


def _progress_bar(total: int, done: int, show: bool) -> tuple[Any, Callable[[Record], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("rounds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    bar = Progress(*columns, disable=not show)
    task = bar.add_task("rounds", total=total, completed=done, loss="")

    def advance(record: Record) -> None:
        loss = record.get("client_work/train/loss")
        bar.update(task, advance=1, loss=f"loss {loss:.4f}" if isinstance(loss, int | float) else "")

    return bar, advance
