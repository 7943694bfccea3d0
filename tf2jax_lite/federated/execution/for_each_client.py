"""Map functions over clients, on one of several backends.

Source: fedjax.for_each_client.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tf2jax_lite.calling.integers import check_integers
from tf2jax_lite.federated.execution.backends import scan_steps
from tf2jax_lite.federated.execution.cohort import round_up
from tf2jax_lite.learning.checks import immutable
from tf2jax_lite.learning.process import PyTree
from tf2jax_lite.support.errors import ForEachClientError, InputError

Batch = Mapping[str, Any]
Clients = Iterable[tuple[Any, Iterable[Batch], PyTree]]
Result = tuple[Any, PyTree, list[PyTree]]

_MAX_STACKED = 16  # clients in a program of the backends vmap and sharded


class _Functions(NamedTuple):
    """A user's functions; ``step`` always returns a pair."""

    init: Callable[[PyTree, PyTree], PyTree]
    step: Callable[[PyTree, Batch], tuple[PyTree, PyTree]]
    final: Callable[[PyTree, PyTree], PyTree]


@contextlib.contextmanager
def client_stage(client_id: Any, stage: str, **context: Any) -> Iterator[None]:
    """Name the client and the stage in errors of a user's function.

    Args:
      client_id: the client.
      stage: the function, such as ``"client_step 3"``.
      **context: its arguments, for the error's ``context``.

    Raises:
      ForEachClientError: for any error of the function.
    """
    try:
        yield
    except ForEachClientError:
        raise
    except Exception as error:  # users' functions raise anything
        raise ForEachClientError(error, stage, client_id=client_id, **context) from error


def _debug(functions: _Functions) -> Callable[..., Iterator[Result]]:
    def one(shared_input: PyTree, client_id: Any, batches: Iterable[Batch], client_input: PyTree) -> Result:
        results = []
        shared_input, client_input = immutable((shared_input, client_input))
        with client_stage(client_id, "client_init", shared_input=shared_input, client_input=client_input):
            state = functions.init(shared_input, client_input)
        for number, batch in enumerate(map(immutable, batches)):
            with client_stage(client_id, f"client_step {number}", state=state, batch=batch):
                state, result = functions.step(state, batch)
            results.append(result)
        with client_stage(client_id, "client_final", shared_input=shared_input, state=state):
            return client_id, functions.final(shared_input, state), results

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        for client in clients:
            with jax.disable_jit():
                found = one(shared_input, *client)
            yield found  # jit is disabled for the client's functions alone

    return run


def _jit(functions: _Functions) -> Callable[..., Iterator[Result]]:
    init, step, final = map(jax.jit, functions)

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        for client_id, batches, client_input in clients:
            state, results = init(shared_input, client_input), []
            for batch in batches:
                state, result = step(state, batch)
                results.append(result)
            yield client_id, final(shared_input, state), results

    return run


def _stack(trees: Sequence[PyTree]) -> PyTree:
    def stack(*leaves: Any) -> Any:
        return jnp.stack(leaves) if isinstance(leaves[0], jax.Array) else np.stack(leaves)

    return jax.tree.map(stack, *trees)


def _row(tree: PyTree, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _padded(items: Sequence[Any], size: int) -> list[Any]:
    return [*items, *[items[-1]] * (size - len(items))]


def _form(tree: PyTree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(leaf), np.dtype(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves)


def _batch_form(batch: Batch) -> Any:
    return tuple(sorted((name, np.shape(value), str(np.asarray(value).dtype)) for name, value in batch.items()))


def _scanned(step: Callable[..., Any]) -> Callable[..., tuple[PyTree, PyTree]]:
    """Return ``(state, batches, count) -> (state, results)`` of ``count`` steps."""

    def run(state: PyTree, batches: PyTree, count: Any) -> tuple[PyTree, PyTree]:
        # A state may begin as Python numbers, and become an array of another dtype in the first step.
        settled = jax.eval_shape(step, state, _row(batches, 0))[0]
        state = jax.tree.map(lambda old, new: jnp.asarray(old, new.dtype), state, settled)
        return scan_steps(step, state, batches, count)

    return run


def _scan(functions: _Functions) -> Callable[..., Iterator[Result]]:
    init, final, steps = jax.jit(functions.init), jax.jit(functions.final), jax.jit(_scanned(functions.step))

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        for client_id, batches, client_input in clients:
            state, results = init(shared_input, client_input), []
            for group in _alike(batches):
                stacked = _stack(_padded(group, round_up(len(group))))
                state, found = steps(state, stacked, len(group))
                results += [_row(found, i) for i in range(len(group))]
            yield client_id, final(shared_input, state), results

    return run


def _alike(batches: Iterable[Batch]) -> Iterator[list[dict[str, Any]]]:
    """Yield runs of consecutive batches of equal shapes: a short last batch is alone."""
    group: list[dict[str, Any]] = []
    for batch in batches:
        if group and _batch_form(group[0]) != _batch_form(batch):
            yield group
            group = []
        group.append(dict(batch))
    if group:
        yield group


def _vmap(functions: _Functions, mesh: Mesh | None = None) -> Callable[..., Iterator[Result]]:
    """Clients whose batches have equal shapes are batched; the others are scanned."""
    alone = _scan(functions)
    scanned = _scanned(functions.step)
    devices = 1 if mesh is None else mesh.size
    most = max(_MAX_STACKED // devices, 1) * devices

    def one(shared_input: PyTree, batches: PyTree, count: Any, client_input: PyTree) -> tuple[PyTree, PyTree]:
        state, results = scanned(functions.init(shared_input, client_input), batches, count)
        return functions.final(shared_input, state), results

    batched = jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))

    def together(shared_input: PyTree, group: list[Any]) -> Iterator[Result]:
        rows = -(-round_up(len(group)) // devices) * devices
        steps = round_up(max(len(batches) for _, batches, _ in group))
        arguments = (
            _stack(_padded([_stack(_padded(batches, steps)) for _, batches, _ in group], rows)),
            np.asarray(_padded([len(batches) for _, batches, _ in group], rows), np.int32),
            _stack(_padded([client_input for _, _, client_input in group], rows)),
        )
        if mesh is not None:
            shared_input = jax.device_put(shared_input, NamedSharding(mesh, P()))
            arguments = jax.device_put(arguments, NamedSharding(mesh, P(mesh.axis_names)))
        outputs, results = batched(shared_input, *arguments)
        for index, (client_id, batches, _) in enumerate(group):
            found = _row(results, index)
            yield client_id, _row(outputs, index), [_row(found, step) for step in range(len(batches))]

    def run(shared_input: PyTree, clients: Clients) -> Iterator[Result]:
        waiting: dict[Any, list[Any]] = {}
        for client_id, batches, client_input in clients:
            groups = list(_alike(batches))
            if len(groups) != 1:  # no batch, or batches of several sizes
                yield from alone(shared_input, [(client_id, [b for g in groups for b in g], client_input)])
                continue
            kind = (round_up(len(groups[0])), _batch_form(groups[0][0]), _form(client_input))
            waiting.setdefault(kind, []).append((client_id, groups[0], client_input))
            if len(waiting[kind]) == most:
                yield from together(shared_input, waiting.pop(kind))
        for group in waiting.values():
            yield from together(shared_input, group)

    return run


def _sharded(functions: _Functions) -> Callable[..., Iterator[Result]]:
    return _vmap(functions, jax.make_mesh((jax.local_device_count(),), ("clients",), devices=jax.local_devices()))


_MAKERS: dict[str, Callable[[_Functions], Callable[..., Iterator[Result]]]] = {
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
) -> Callable[[PyTree, Clients], Iterator[tuple[Any, ...]]]:
    """Return a function that maps over clients. See fedjax.for_each_client.

    Args:
      client_init: ``(shared_input, client_input) -> state``.
      client_step: ``(state, batch) -> state``; with ``with_step_result``, ``-> (state, result)``.
      client_final: ``(shared_input, state) -> output``; the state itself by default.
      with_step_result: whether steps return a result, too.
      backend: see `set_for_each_client_backend`; None for the thread's choice when the function is called.

    Returns:
      ``(shared_input, clients) -> iterator`` of pairs (client id, output), or of triples with a list of the steps'
      results. ``clients`` is an iterable of triples (client id, iterable of batches, client input). The backends
      ``"vmap"`` and ``"sharded"`` change the order of clients.

    Raises:
      InputError: no such backend.
    """

    def plain_step(state: PyTree, batch: Batch) -> tuple[PyTree, PyTree]:
        return client_step(state, batch), ()

    functions = _Functions(client_init, client_step if with_step_result else plain_step, client_final)
    made = functools.cache(lambda name: _MAKERS[name](functions))  # keeps compiled programs
    fixed = None if backend is None else _checked(backend)

    def run(shared_input: PyTree, clients: Clients) -> Iterator[tuple[Any, ...]]:
        each = made(fixed or get_for_each_client_backend())
        checked = ((i, _checked_batches(i, batches), own) for i, batches, own in clients)
        for client_id, output, results in each(shared_input, checked):
            yield (client_id, output, results) if with_step_result else (client_id, output)

    return run
