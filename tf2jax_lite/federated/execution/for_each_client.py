"""Map functions over clients, on one of several backends.

Source: fedjax.for_each_client.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.execution.backends import (
    Accumulator,
    Context,
    Outcome,
    make_loop,
    make_scan,
    make_vmap,
    run_client,
    zero_accumulator,
)
from tf2jax_lite.federated.execution.cohort import Chunk, round_up
from tf2jax_lite.federated.execution.runner import MeshFold
from tf2jax_lite.learning.process import AggregationProcess, MeasuredProcessOutput, PyTree
from tf2jax_lite.support.errors import InputError

Batch = Mapping[str, Any]
Clients = Iterable[tuple[Any, Iterable[Batch], PyTree]]
Result = tuple[Any, PyTree, list[PyTree]]

_MAX_STACKED = 16  # clients in a program of the backends vmap and sharded
_NOTHING = AggregationProcess(
    tuple, lambda *_: (), lambda *_: (), lambda *_: (), lambda *_: MeasuredProcessOutput((), (), {})
)


def _work(init: Callable[..., PyTree], step: Callable[..., Any], final: Callable[..., PyTree]) -> ClientWork:
    """Return a user's functions as client work, which sends nothing to aggregate."""
    return ClientWork(
        tuple,
        lambda state, shared_input, key, client_input: init(shared_input, client_input),
        lambda state, shared_input, carry, batch: step(carry, batch),
        lambda state, shared_input, carry: ClientResult((), jnp.float32(1), output=final(shared_input, carry)),
        has_step_results=True,
    )


def _context(shared_input: PyTree) -> Context:
    return Context((), (), shared_input, None, None, client_keys=np.zeros(1))  # the functions take no keys


def _zero() -> Accumulator:
    return zero_accumulator(_NOTHING, (), _MAX_STACKED, ClientResult((), 1.0))


def _debug(work: ClientWork) -> Callable[..., Iterator[Result]]:
    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        for client_id, batches, client_input in clients:
            with jax.disable_jit():
                found, results = run_client(work, _context(shared_input), client_id, batches, client_input, None)
            yield client_id, found.output, results  # jit is disabled for the client's functions alone

    return run


def _jit(work: ClientWork) -> Callable[..., Iterator[Result]]:
    loop = make_loop(work, _NOTHING)
    init = jax.jit(lambda context, client_input: work.client_init((), context.message, None, client_input))

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        context = _context(shared_input)
        for client_id, batches, client_input in clients:
            carry, results = init(context, client_input), []
            for batch in batches:
                carry, result = loop.step(context, carry, batch)
                results.append(result)
            yield client_id, loop.finish(context, _zero(), carry, np.int32(0))[1].output, results

    return run


def _stack(trees: Sequence[PyTree], size: int) -> PyTree:
    """Return trees stacked along a first axis of a size; the last is repeated."""

    def stack(*leaves: Any) -> Any:
        return jnp.stack(leaves) if isinstance(leaves[0], jax.Array) else np.stack(leaves)

    return jax.tree.map(stack, *trees, *[trees[-1]] * (size - len(trees)))


def _row(tree: PyTree, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _forms(tree: PyTree) -> Any:
    """Return structure, shapes and dtypes, which trees to be stacked share."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), np.dtype(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)


def _stacked(work: ClientWork, fold: Callable[..., Outcome], most: int, devices: int = 1) -> Any:
    """Return the backend that runs chunks of clients.

    Clients share a chunk if their batches have equal shapes. Those without such batches run alone.

    Args:
      work: the client work.
      fold: ``(context, chunk) -> outcomes``.
      most: clients of a chunk.
      devices: whose number divides a chunk's clients.
    """
    alone = _jit(work)

    def together(shared_input: PyTree, group: list[Any]) -> Iterator[Result]:
        rows = -(-round_up(len(group)) // devices) * devices
        steps = round_up(max(len(batches) for _, batches, _ in group))
        counts = np.zeros(rows, np.int32)
        counts[: len(group)] = [len(batches) for _, batches, _ in group]
        chunk = Chunk(
            _stack([_stack(batches, steps) for _, batches, _ in group], rows),
            counts,
            np.zeros(rows, np.int32),
            _stack([client_input for _, _, client_input in group], rows),
        )
        found = fold(_context(shared_input), chunk)
        for index, (client_id, batches, _) in enumerate(group):
            results = _row(found.steps, index)
            yield client_id, _row(found.output, index), [_row(results, step) for step in range(len(batches))]

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        waiting: dict[Any, list[Any]] = {}
        for client_id, given, client_input in clients:
            batches = list(map(dict, given))
            forms = {_forms(batch) for batch in batches}
            if len(forms) != 1:  # no batch, or batches of several sizes
                yield from alone(shared_input, [(client_id, batches, client_input)])
                continue
            kind = (round_up(len(batches)), *forms, _forms(client_input))
            waiting.setdefault(kind, []).append((client_id, batches, client_input))
            if len(waiting[kind]) == most:
                yield from together(shared_input, waiting.pop(kind))
        for group in waiting.values():
            yield from together(shared_input, group)

    return run


def _scan(work: ClientWork) -> Callable[..., Iterator[Result]]:
    program = jax.jit(make_scan(work, _NOTHING), static_argnums=3)
    return _stacked(work, lambda context, chunk: program(context, _zero(), chunk, False)[1], 1)


def _vmap(work: ClientWork) -> Callable[..., Iterator[Result]]:
    program = jax.jit(make_vmap(work, _NOTHING), static_argnums=3)
    return _stacked(work, lambda context, chunk: program(context, _zero(), chunk, False)[1], _MAX_STACKED)


def _sharded(work: ClientWork, mesh: jax.sharding.Mesh | None = None) -> Callable[..., Iterator[Result]]:
    mesh = mesh or jax.make_mesh((jax.local_device_count(),), ("clients",), devices=jax.local_devices())
    on_mesh = MeshFold(mesh, make_vmap(work, _NOTHING), lambda a, b: a)

    def fold(context: Context, chunk: Chunk) -> Outcome:
        # Rows of arrays that a mesh divides cannot be taken one by one where its axes are explicit.
        return on_mesh.gathered(on_mesh.fold(on_mesh.context(context), on_mesh.start(_zero()), chunk)[1])

    return _stacked(work, fold, max(_MAX_STACKED // mesh.size, 1) * mesh.size, mesh.size)


_MAKERS: dict[str, Callable[[ClientWork], Callable[..., Iterator[Result]]]] = {
    "debug": _debug,
    "jit": _jit,
    "scan": _scan,
    "sharded": _sharded,
    "vmap": _vmap,
}
BACKENDS = tuple(_MAKERS)
_NAMES_IN_FEDJAX = {"pmap": "sharded"}
# FedJAX's choice is thread-local; a context variable is that, and follows asynchronous tasks.
_chosen: contextvars.ContextVar[str] = contextvars.ContextVar("for_each_client_backend", default="jit")


def _checked_batches(client_id: Any, batches: Iterable[Batch]) -> Iterator[Batch]:
    for number, batch in enumerate(batches):
        if isinstance(batch, Mapping):
            check_integers(batch, f"client {client_id!r}, batch {number}")
        yield batch


def _checked(backend: str | None) -> str:
    name = "jit" if backend is None else _NAMES_IN_FEDJAX.get(backend, backend)
    if name not in _MAKERS:
        raise InputError(f"a backend of for_each_client is one of {', '.join(BACKENDS)}, not {backend!r}")
    return name


def get_for_each_client_backend() -> str:
    """Return the name of this thread's backend."""
    return _chosen.get()


def set_for_each_client_backend(backend: str | None) -> None:
    """Choose this thread's backend for `for_each_client`.

    Args:
      backend: ``"jit"`` (a program for each batch; the default, also for None), ``"scan"`` (a program for each
        client), ``"vmap"`` (a program for several clients), ``"sharded"`` (the same, divided among the local devices;
        FedJAX's ``"pmap"``) or ``"debug"``: eager, with the client and the stage in every error.

    Raises:
      InputError: no such backend.
    """
    _chosen.set(_checked(backend))


@contextlib.contextmanager
def for_each_client_backend(backend: str | None) -> Iterator[None]:
    """Choose this thread's backend within a ``with`` block.

    See `set_for_each_client_backend`.

    Args:
      backend: as for `set_for_each_client_backend`.
    """
    token = _chosen.set(_checked(backend))
    try:
        yield
    finally:
        _chosen.reset(token)


def for_each_client(
    client_init: Callable[[PyTree, PyTree], PyTree],
    client_step: Callable[[PyTree, Batch], Any],
    client_final: Callable[[PyTree, PyTree], PyTree] = lambda shared_input, state: state,
    with_step_result: bool = False,
    *,
    backend: str | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> Callable[[PyTree, Clients], Iterator[tuple[Any, ...]]]:
    """Return a function that maps over clients. See fedjax.for_each_client.

    Args:
      client_init: ``(shared_input, client_input) -> state``.
      client_step: ``(state, batch) -> state``; with ``with_step_result``, ``-> (state, result)``.
      client_final: ``(shared_input, state) -> output``; the state itself by default.
      with_step_result: whether steps return a result, too.
      backend: see `set_for_each_client_backend`; None for the thread's choice when the function is called.
      mesh: the devices of the backend ``"sharded"``, on one axis; all local ones by default.

    Returns:
      ``(shared_input, clients) -> iterator`` of pairs (client id, output), or of triples with a list of the steps'
      results. ``clients`` is an iterable of triples (client id, iterable of batches, client input). The backends
      ``"vmap"`` and ``"sharded"`` change the order of clients.

    Raises:
      InputError: no such backend.
    """

    def plain_step(state: PyTree, batch: Batch) -> tuple[PyTree, PyTree]:
        return client_step(state, batch), ()

    work = _work(client_init, client_step if with_step_result else plain_step, client_final)
    makers = _MAKERS | {"sharded": functools.partial(_sharded, mesh=mesh)}
    made = functools.cache(lambda name: makers[name](work))  # keeps compiled programs
    fixed = None if backend is None else _checked(backend)

    def run(shared_input: PyTree, clients: Clients) -> Iterator[tuple[Any, ...]]:
        each = made(fixed or get_for_each_client_backend())
        checked = ((i, _checked_batches(i, batches), own) for i, batches, own in clients)
        for client_id, output, results in each(shared_input, checked):
            yield (client_id, output, results) if with_step_result else (client_id, output)

    return run
