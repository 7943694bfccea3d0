"""Run a cohort: chunks of clients on devices, on threads, or without compilation.

On a mesh, of one process or several, each device accumulates its own chunks.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.execution.backends import (
    Accumulator,
    Context,
    Outcome,
    can_be_batched,
    choose_backend,
    client_key,
    client_stage,
    fold_one,
    fold_results,
    make_loop,
    make_scan,
    make_vmap,
    merge_accumulators,
    reads_client_input,
    run_client,
    zero_accumulator,
)
from tf2jax_lite.federated.execution.cohort import Chunk, Client, Cohort, fill, lay_out, round_up, round_up_far
from tf2jax_lite.federated.execution.cpu_pool import CpuPool, signature
from tf2jax_lite.learning.checks import check_number, named_function
from tf2jax_lite.learning.data import EXAMPLE_MASK_KEY
from tf2jax_lite.learning.data.examples import EXAMPLE_FILL_KEY
from tf2jax_lite.learning.model import fitting
from tf2jax_lite.learning.process import AggregationProcess, PyTree
from tf2jax_lite.learning.states import beside, commit_to_device
from tf2jax_lite.support.errors import InputError


class MeshFold:
    """Accumulators on the devices of a mesh, one each.

    All axes of the mesh count as one. In a run of several processes (jax.distributed) each makes the same chunks and
    puts its own devices' part on them.

    Args:
      mesh: the devices.
      run: ``(context, total, chunk, exact) -> (total, outputs)``, for one device's part of a chunk.
      merge: of accumulators.
    """

    def __init__(self, mesh: Mesh, run: Callable[..., tuple[Accumulator, PyTree]], merge: Callable[..., Accumulator]):
        self.size = math.prod(mesh.devices.shape)
        split, same = P(mesh.axis_names), P()
        self._split, self._same = NamedSharding(mesh, split), NamedSharding(mesh, same)

        def part(context: Context, total: PyTree, chunk: Chunk) -> tuple[PyTree, PyTree]:
            own, output = run(_with_keys(context), jax.tree.map(lambda leaf: leaf[0], total), chunk, False)
            return jax.tree.map(lambda leaf: leaf[None], own), output

        mapped = jax.shard_map(
            part, mesh=mesh, in_specs=(same, split, split), out_specs=(split, split), check_vma=False
        )
        self._run = jax.jit(mapped, donate_argnums=1)

        def everywhere(totals: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, mesh.axis_names, tiled=True), totals)

        self._gather = jax.jit(jax.shard_map(everywhere, mesh=mesh, in_specs=(split,), out_specs=same, check_vma=False))
        self._merge = jax.jit(
            lambda totals: functools.reduce(
                merge, [jax.tree.map(lambda leaf, i=i: leaf[i], totals) for i in range(self.size)]
            )
        )

    def start(self, zero: Accumulator) -> PyTree:
        """Return a zero accumulator for each device."""
        host = jax.device_get(zero)
        return self._put(jax.tree.map(lambda leaf: np.broadcast_to(leaf, (self.size, *np.shape(leaf))), host))

    def context(self, context: Context) -> Context:
        """Return the context on every device."""
        return jax.tree.map(lambda leaf: _placed(leaf, self._same), _without_keys(context))

    def fold(self, context: Context, total: PyTree, chunk: Chunk) -> tuple[PyTree, PyTree]:
        """Fold a chunk whose number of clients is a multiple of the number of devices."""
        return self._run(context, total, self._put(chunk))

    def merged(self, total: PyTree) -> Accumulator:
        """Return the accumulator of all devices, as arrays of this process."""
        return self._merge(jax.tree.map(lambda leaf: leaf.addressable_data(0), self._gather(total)))

    def gathered(self, output: PyTree) -> PyTree:
        """Return outputs of all clients, numpy, in every process."""
        if jax.process_count() == 1:
            return jax.device_get(output)
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(output, tiled=True)

    def _put(self, tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: _placed(leaf, self._split), tree)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["data"], meta_fields=["kind"])
@dataclasses.dataclass(frozen=True)
class _RawKey:
    """A key as plain numbers: arrays of several processes are made of those alone."""

    data: Any
    kind: Hashable


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(tree: PyTree) -> PyTree:
    def raw(leaf: Any) -> Any:
        return _RawKey(jax.random.key_data(leaf), jax.random.key_impl(leaf)) if _is_key(leaf) else leaf

    return jax.tree.map(raw, tree)


def _with_keys(tree: PyTree) -> PyTree:
    def whole(leaf: Any) -> Any:
        return jax.random.wrap_key_data(leaf.data, impl=leaf.kind) if isinstance(leaf, _RawKey) else leaf

    return jax.tree.map(whole, tree, is_leaf=lambda leaf: isinstance(leaf, _RawKey))


def _placed(value: Any, sharding: NamedSharding) -> Any:
    array = np.asarray(value)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _capacity(aggregator: AggregationProcess, cohort: Cohort) -> int:
    """Return how many clients an accumulator has memory for.

    A secure sum has masks and levels for each: there are as many as clients.
    """
    return max(len(cohort), 1) if "secure aggregation" in aggregator.guarantees else cohort.capacity


def run_eagerly(
    work: ClientWork, aggregator: AggregationProcess, context: Context, cohort: Cohort, clients: Iterable[Client]
) -> tuple[Accumulator, list[tuple[list[int], Outcome]]]:
    """Run clients eagerly, so that prints and debuggers see values.

    Args:
      work: the client work.
      aggregator: accumulates the updates.
      context: of the round.
      cohort: the clients as given, for their names.
      clients: those that have data, at least one.

    Returns:
      The accumulator, and each client's index and outcome, as of a chunk of one client.

    Raises:
      ForEachClientError: a function of the client work fails.
    """
    total, outcomes = None, []
    with jax.disable_jit():
        for client in clients:
            name, index = cohort.name(client.index), jnp.int32(client.index)
            key = client_key(context, index)
            result, _ = run_client(work, context, name, client.batches(), client.client_input, key)
            if total is None:
                total = zero_accumulator(aggregator, context.aggregator, _capacity(aggregator, cohort), result)
            with client_stage(name, "aggregation", result=result):
                total, outcome = fold_one(aggregator, context, total, result, True, index)
            outcomes.append(([client.index], jax.tree.map(lambda leaf: np.asarray(leaf)[None], outcome)))
    assert total is not None
    return total, outcomes


Execution = Literal["auto", "vmap", "scan", "cpu_pool", "loop", "debug"]
# In a chunk of clients that run one after another, bytes of batches of one step of all.
_BATCHES_BYTES = 1 << 21
_FLAGS = (EXAMPLE_MASK_KEY, EXAMPLE_FILL_KEY)
_SMALL_INPUT = 1 << 16  # bytes of a client's input, for which rows that only pad a chunk cost little


class CohortResult(NamedTuple):
    """Results of a cohort.

    Attributes:
      total: the folded results.
      counts: name to int32: ``participated``, ``dropped``, ``empty``, ``non_finite``.
      outputs: client index to its output (numpy), for works that have one.
      refused: client index to its name, for those whose results are not usable and count as ``non_finite``.
    """

    total: Accumulator
    counts: dict[str, Any]
    outputs: dict[int, PyTree]
    refused: dict[int, Any]


@dataclasses.dataclass(eq=False)
class CohortRunner:
    """Runs one kind of client work over cohorts.

    Attributes:
      work: the client work.
      aggregator: accumulates the updates.
      execution: ``"vmap"`` (batched clients), ``"scan"`` (sequential clients in one program), ``"cpu_pool"`` (scan on
        a thread for each core), ``"loop"`` (a program for each batch),
        ``"debug"`` (eager; errors of the client work name the client and the stage), or ``"auto"``: see
        `choose_backend`. With vmap, scan and cpu_pool, a client with a short batch that must not be padded runs as a
        loop.
      clients_per_chunk: how many clients make a chunk; 16 to 128 for each device if None, by the size of a batch. A few
        chunks are in memory at once.
      mesh: devices that share each chunk's clients (vmap and scan), of all processes of `jax.distributed`.
    """

    work: ClientWork
    aggregator: AggregationProcess
    execution: Execution = "auto"
    clients_per_chunk: int | None = None
    mesh: Mesh | None = None
    _chosen: str | None = dataclasses.field(default=None, init=False, repr=False)
    _largest: tuple[int, int] = dataclasses.field(default=(0, 0), init=False, repr=False)
    _given: ClientWork = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.execution not in get_args(Execution):
            raise InputError(f"client_execution is one of {', '.join(get_args(Execution))}; not {self.execution!r}")
        self._given = self.work
        functions = {name: getattr(self.work, name) for name in ("client_init", "client_step", "client_final")}
        named = {name: named_function(name, function) for name, function in functions.items()}
        self.work = dataclasses.replace(self.work, **named)
        if self.clients_per_chunk is not None:
            check_number("CohortRunner", "clients_per_chunk", self.clients_per_chunk, least=1, whole=True)
        if self.work.counts_examples and self.aggregator.refuses_weights:
            raise InputError(
                f"the aggregator takes no weights ({self.aggregator.refuses_weights}), but clients are weighted by "
                "their examples. Use build_unweighted_fed_avg, or "
                "client_weighting='uniform'."
            )
        if self.mesh is not None and self.execution in ("cpu_pool", "loop", "debug"):
            raise InputError(
                f"a mesh shares chunks of clients: client_execution is 'auto', 'vmap' or 'scan', not {self.execution!r}"
            )

    def run(self, context: Context, cohort: Cohort) -> CohortResult:
        """Run a round's clients.

        Args:
          context: states, message and keys of the round.
          cohort: the clients.

        Raises:
          DataError: a client's data cannot be used; the message names the client and the reason.
        """
        context = commit_to_device(context)
        cohort = cohort.of_work(self.work)
        if self.work.counts_examples:
            context = context._replace(shares=cohort.shares())
        context = context._replace(client_keys=cohort.stacked_keys())
        capacity = _capacity(self.aggregator, cohort)
        prepared = cohort.prepared()
        first = next(prepared, None)
        outcomes: list[tuple[list[int], Outcome]] = []
        if first is None:  # no client has data: the metrics are not known
            nothing = ClientResult((), 0.0, [], {})
            total = zero_accumulator(self.aggregator, context.aggregator, capacity, nothing)
        elif self.execution == "debug":
            total, outcomes = run_eagerly(
                self._given, self.aggregator, context, cohort, itertools.chain([first], prepared)
            )
        else:
            with ExitStack() as stack:
                found = _Round(self, context, first, cohort, stack)
                waiting = list(found.run(itertools.chain([first], prepared)))
                total = found.total()
            outcomes = [(index, jax.device_get(get())) for index, get in waiting]
        unmoved = cohort.without_batch() if self.work.counts_examples and first is not None else {}
        if first is not None and unmoved:
            total = self._with_unmoved(context, total, first, unmoved)
        dropped = cohort.count_dropped()
        counts = {
            "participated": total.participated,
            "non_finite": total.non_finite,
            "dropped": np.int32(dropped),
            "empty": np.int32(len(cohort) - dropped - len(unmoved) - sum(len(index) for index, _ in outcomes)),
        }
        # Rows behind the indices only pad a chunk.
        left_out = sorted(i for index, found in outcomes for i in itertools.compress(index, found.refused))
        outputs: dict[int, PyTree] = {}
        for index, found in outcomes:
            if jax.tree.leaves(found.output):
                outputs |= {i: jax.tree.map(lambda leaf, r=r: leaf[r], found.output) for r, i in enumerate(index)}
        return CohortResult(total, counts, outputs, {i: cohort.name(i) for i in left_out})

    def _with_unmoved(
        self, context: Context, total: Accumulator, first: Client, weights: Mapping[int, float]
    ) -> Accumulator:
        """Return the total with clients whose updates are zero.

        Args:
          context: of the round.
          total: of the others.
          first: one of the others.
          weights: the clients' weights, by their indices.
        """
        form = self._whole.eval_shape(context, next(first.batches()), first.client_input)
        rows = round_up_far(len(weights))
        results = jax.tree.map(lambda leaf: np.zeros((rows, *leaf.shape), leaf.dtype), form)
        weight, index = np.zeros(rows, np.float32), np.zeros(rows, np.int32)
        weight[: len(weights)], index[: len(weights)] = [*weights.values()], [*weights]
        results = results._replace(update_weight=weight)
        exists = np.arange(rows) < len(weights)
        return self._fold(context.aggregator, total, results, exists, index, context.aggregator_key)[0]

    def _backend(self, context: Context, batch: Any, client_input: PyTree) -> str:
        if self.execution == "cpu_pool" and jax.default_backend() != "cpu":
            raise InputError(
                f"client_execution='cpu_pool' is for CPUs, not {jax.default_backend()}; choose 'auto', 'vmap' or 'scan'"
            )
        if self.execution not in ("auto", "vmap"):
            return self.execution
        if self._chosen is None:  # once: another batch would have to be another kind of model to change it
            if self.execution == "auto":
                backend = choose_backend(self.work, context, batch, client_input, alone=self.mesh is None)
            elif can_be_batched(self.work, context, batch, client_input):
                backend = "vmap"
            else:
                raise InputError(
                    "client_execution='vmap' batches clients, and the model calls a function that cannot be batched "
                    "(an artifact's StableHLO): choose 'auto' or 'scan', or load the artifact with backend='source'"
                )
            self._chosen = backend
        assert self._chosen is not None
        return self._chosen

    @functools.cached_property
    def _shapes(self) -> dict[Any, tuple[Any, Any]]:
        return {}

    def _chunk_shape(self, clients: int, steps: int, *, stateful: bool) -> tuple[int, int]:
        """Return the rows and steps of a chunk whose padding is not run.

        They are the largest so far, so that a round of another size needs no other program.

        Args:
          clients: in a chunk of the round.
          steps: of its longest client.
          stateful: whether clients have inputs and outputs as large as the model; those take memory in each row.
        """
        rows = round_up(clients) if stateful else round_up_far(clients)
        if self.clients_per_chunk is not None:
            rows = max(clients, min(rows, self.clients_per_chunk))
        self._largest = max(self._largest[0], rows), max(self._largest[1], round_up(steps))
        return self._largest

    @functools.cached_property
    def _whole(self) -> Any:
        def whole(context: Context, batch: Any, client_input: PyTree) -> ClientResult:
            carry = self.work.client_init(context.work, context.message, client_key(context, 0), client_input)
            carry = self.work.client_step(context.work, context.message, carry, batch)
            return self.work.client_final(context.work, context.message, carry)

        return jax.jit(whole)  # never run: its traces are cached, and only their shapes are read

    @functools.cached_property
    def _fold(self) -> Callable[..., Any]:
        return jax.jit(functools.partial(fold_results, self.aggregator))

    @functools.cached_property
    def _vmap(self) -> Callable[..., Any]:
        return jax.jit(make_vmap(self.work, self.aggregator), static_argnums=3, donate_argnums=1)

    @functools.cached_property
    def _scan(self) -> Callable[..., Any]:
        return jax.jit(make_scan(self.work, self.aggregator), static_argnums=3, donate_argnums=1)

    @functools.cached_property
    def _cpu_pool(self) -> CpuPool:
        return CpuPool(self._scan)

    @functools.cached_property
    def _loop(self) -> Any:
        return make_loop(self.work, self.aggregator)

    @functools.cached_property
    def _merge(self) -> Callable[..., Accumulator]:
        return jax.jit(functools.partial(merge_accumulators, self.aggregator))

    @functools.cached_property
    def _mesh_fold(self) -> MeshFold | None:
        if self.mesh is None:
            return None
        backend = self._chosen if self.execution == "auto" else self.execution
        make = make_vmap if backend == "vmap" else make_scan
        return MeshFold(self.mesh, make(self.work, self.aggregator), self._merge)


def _chunk_size(clients: int, batch: Mapping[str, Any], workers: int = 1) -> int:
    """Return the number of clients in a chunk of some megabytes.

    Each chunk costs a switch between threads. The result depends only on the sizes of the cohort and a batch, so that
    it is the same in each round, and programs are compiled once.

    Args:
      clients: of the cohort.
      batch: one batch.
      workers: that share the chunks; each gets as many as the others.
    """
    size = sum(np.asarray(value).nbytes for name, value in batch.items() if name not in _FLAGS)
    limit = 16 if not size else max(16, min(128, _BATCHES_BYTES // size))
    chunks = -(-clients // limit)
    return -(-clients // (-(-chunks // workers) * workers))


class _Round:
    """One round of a runner: groups clients into chunks, and accumulates them."""

    def __init__(self, runner: CohortRunner, context: Context, first: Client, cohort: Cohort, stack: ExitStack):
        cohort_size = len(cohort)
        self._runner, self._context, self._cohort_size = runner, context, cohort_size
        self._capacity = _capacity(runner.aggregator, cohort)
        self._padded: dict[int, bool] = {}  # by size of batch: all clients' examples have one form
        batch = self._batches(first)[1][0]
        try:
            with fitting(batch, "the batches of the first client"):
                self._backend = runner._backend(context, batch, first.client_input)
                result, self._form = self._shapes(batch, first.client_input)
        except InputError as error:
            if first.client_input is not None or not reads_client_input(runner.work, context):
                raise
            raise InputError(
                f"{error}. The client work reads client_input, and the process keeps no state of the clients: build it "
                "with client_states=ByClient(first), where first is the state of a client that is new"
            ) from error
        self._zero = lambda: zero_accumulator(runner.aggregator, context.aggregator, self._capacity, result)
        self._total: Accumulator | None = None
        self._mesh = runner._mesh_fold
        devices = 1 if self._mesh is None else self._mesh.size
        batches = batch if self._backend in ("scan", "cpu_pool") else {}
        most_workers = CpuPool.size(cohort_size) if self._backend == "cpu_pool" else 1
        wanted = runner.clients_per_chunk or _chunk_size(cohort_size, batches, most_workers) * devices
        self._size = max(1, -(-min(wanted, cohort_size) // devices)) * devices
        self._num_workers = CpuPool.size(-(-cohort_size // self._size)) if self._backend == "cpu_pool" else 0
        self._workers = None
        if self._num_workers > 1:
            self._workers = stack.enter_context(runner._cpu_pool.workers(self._num_workers, self._zero))
        if self._mesh is not None:
            self._shared = self._mesh.context(context)
            self._on_mesh = self._mesh.start(self._zero())

    def _shapes(self, batch: Any, client_input: PyTree) -> tuple[ClientResult, Accumulator]:
        """Return the shapes of a client's result and the accumulator, by tracing."""
        runner, context, size = self._runner, self._context, self._capacity
        key = (size, signature((context, batch, client_input)))
        if key not in runner._shapes:
            result = runner._whole.eval_shape(context, batch, client_input)
            total = jax.eval_shape(lambda: zero_accumulator(runner.aggregator, context.aggregator, size, result))
            runner._shapes[key] = result, total
        return runner._shapes[key]

    def run(self, clients: Iterable[Client]) -> Iterable[tuple[list[int], Callable[[], PyTree]]]:
        """Yield each chunk's client indices, and a function that awaits outputs.

        With vmap only clients of about the same number of steps share a chunk. A client whose short batches must not be
        padded runs alone.
        """
        waiting: dict[Any, list[Client]] = {}
        for client in clients:
            if self._backend == "loop" or not self._pads(client):
                yield [client.index], self._alone(client)
                continue
            kind = (round_up(client.steps) if self._backend == "vmap" else 0, client.rows.shape[1])
            group = waiting.setdefault(kind, [])
            group.append(client)
            if len(group) == self._size:
                yield [c.index for c in group], self._together(waiting.pop(kind))
        for group in waiting.values():
            yield [c.index for c in group], self._together(group)

    def total(self) -> Accumulator:
        """Return the accumulated result."""
        merge = self._runner._merge
        parts = [] if self._total is None else [self._total]
        if self._mesh is not None:
            parts.append(self._mesh.merged(self._on_mesh))
        if self._workers is not None:
            parts.append(self._workers.merged(merge))
        return functools.reduce(merge, parts)

    def _fold(
        self, write: Callable[[], None], run: Callable[[Accumulator], tuple[Accumulator, PyTree]]
    ) -> Callable[[], PyTree]:
        write()
        total = beside(self._zero(), self._context) if self._total is None else self._total
        jax.block_until_ready(total.participated)  # so that two chunks are in memory at most
        self._total, output = run(total)
        return lambda: output

    def _together(self, group: list[Client]) -> Callable[[], PyTree]:
        steps = max(client.steps for client in group)
        exact = self._backend == "vmap" and len(group) == self._size and all(client.steps == steps for client in group)
        exact = exact and self._mesh is None
        # Sequential clients take only their own steps: the padding behind them is not read.
        everywhere = self._backend == "vmap" or self._mesh is not None
        rounded = steps if exact else round_up(steps)
        if self._mesh is not None:
            chunk = lay_out(group, self._size, rounded, self._cohort_size)
            fill(chunk, group, everywhere=everywhere)
            self._on_mesh, output = self._mesh.fold(self._shared, self._on_mesh, chunk)
            gathered = self._mesh.gathered(output)
            return lambda: gathered
        runner, context, workers = self._runner, self._context, self._workers
        rows = self._size
        if not everywhere:
            inputs = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(group[0].client_input))
            stateful = inputs > _SMALL_INPUT or runner.work.has_step_results
            rows, rounded = runner._chunk_shape(self._size, steps, stateful=stateful)
        chunk = lay_out(group, rows, rounded, self._cohort_size, workers and workers.arena())
        write = functools.partial(fill, chunk, group, everywhere=everywhere)
        if workers is not None:
            program = runner._cpu_pool.program(self._num_workers, context, self._form, chunk)
            return workers.fold(write, lambda total: program(context, total, chunk))
        jitted = runner._vmap if self._backend == "vmap" else runner._scan
        return self._fold(write, lambda total: jitted(context, total, chunk, exact))

    def _alone(self, client: Client) -> Callable[[], PyTree]:
        write, batches = self._batches(client)
        index = np.int32(client.index)
        runner, context = self._runner, self._context

        def run(total: Accumulator) -> tuple[Accumulator, PyTree]:
            carry = runner._loop.start(context, index, client.client_input, batches[0])
            for batch in batches:
                carry, _ = runner._loop.step(context, carry, batch)
            return runner._loop.finish(context, total, carry, index)

        get = self._fold(write, run)
        return lambda: jax.tree.map(lambda leaf: leaf[None], get())

    def _pads(self, client: Client) -> bool:
        """Return whether a client's batches have one size, or are padded to it."""
        pads = self._runner.work.pads_batches
        if client.is_full or not callable(pads):
            return client.is_full or pads is True
        size = client.rows.shape[1]
        if size not in self._padded:
            batch = {n: jax.ShapeDtypeStruct((size, *v.shape[1:]), v.dtype) for n, v in client.examples.items()}
            self._padded[size] = pads(batch)
        return self._padded[size]

    def _batches(self, client: Client) -> tuple[Callable[[], None], list[dict[str, Any]]]:
        """Return the writer of a client's batches, and the arrays that it fills."""
        if not self._pads(client):
            return lambda: None, list(client.batches())
        chunk = lay_out([client], 1, client.steps, 0)
        batches = [{name: value[0, step] for name, value in chunk.batches.items()} for step in range(client.steps)]
        return functools.partial(fill, chunk, [client]), batches
