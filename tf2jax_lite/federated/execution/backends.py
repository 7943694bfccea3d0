"""Execution backends: loops over the clients of a chunk, and their sums.

Backends have equal results. The fastest depends on the device and the model: on an accelerator clients run side by
side (vmap); on a CPU one after another in one program (scan), which keeps a client's weights in the cache.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import usable_clients
from tf2jax_lite.federated.client_work import ClientResult, ClientWork
from tf2jax_lite.jaxprs.evaluate import equations
from tf2jax_lite.learning.checks import immutable
from tf2jax_lite.learning.metrics import Stat
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, PyTree
from tf2jax_lite.support.errors import ForEachClientError

# XLA has fast code for these inside loops as well: one group, channels last (JAX 0.10).
_FAST = re.compile(
    r"dim_numbers = \[b, (0(?:, 1)?), f\]x\[\1, i, o\]->\[b, \1, f\].*batch_group_count = 1 .*feature_group_count = 1 "
)


class Accumulator(NamedTuple):
    """Accumulated results of the clients so far.

    Attributes:
      aggregate: the aggregator's accumulator.
      non_trainable: weighted sums of differences of non-trainable weights.
      weight: float32 scalar, the sum of weights.
      measurements: sums of clients' measurements.
      participated: int32 scalar, clients whose updates count.
      non_finite: int32 scalar, clients whose results are not usable, see `usable_clients`.
    """

    aggregate: PyTree
    non_trainable: list[Any]
    weight: Any
    measurements: PyTree
    participated: Any
    non_finite: Any


def _is_stat(value: Any) -> bool:
    return isinstance(value, Stat)


def select_new(mask: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return rows of ``new`` where ``mask``, else of ``old``; NaN do not mix."""

    def one(n: Any, o: Any) -> Any:
        return jnp.where(jnp.reshape(mask, mask.shape + (1,) * (jnp.ndim(n) - mask.ndim)), n, o)

    return jax.tree.map(one, new, old)


def _zeros(leaf: Any) -> np.ndarray:
    """Return zeros to add to; for half precision, whose sums stand still, in float32."""
    narrow = jnp.issubdtype(leaf.dtype, jnp.floating)
    return np.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32) if narrow else leaf.dtype)


def zero_accumulator(
    aggregator: AggregationProcess, aggregator_state: PyTree, num_clients: int, result: ClientResult
) -> Accumulator:
    """Return an empty accumulator. ``result`` has the shapes of one client's result.

    Much of it is numpy's: a program takes that as well, and each array of zeros that JAX makes is a program of its own.
    """
    zeros = jax.tree.map(_zeros, (result.non_trainable, result.measurements))
    aggregate = aggregator.zero(aggregator_state, num_clients)
    return Accumulator(aggregate, list(zeros[0]), np.float32(0), zeros[1], np.int32(0), np.int32(0))


def fold_results(
    aggregator: AggregationProcess,
    aggregator_state: PyTree,
    total: Accumulator,
    results: ClientResult,
    exists: Any,
    index: Any,
    key: Any,
) -> tuple[Accumulator, Any]:
    """Add stacked results of ``n`` clients.

    A client with an update, weight, statistic or measurement that is not usable has no part in any sum.

    Args:
      aggregator: the aggregation.
      aggregator_state: its state.
      total: the sum so far.
      results: leaves of shape (n, ...).
      exists: bool (n,), False for padding.
      index: int32 (n,), indices in the cohort.
      key: the round's key of the aggregation.

    Returns:
      The accumulator, and which clients were left out, bool (n,).
    """
    # An evaluation sends measurements alone, which must show a model that diverged.
    measured = results.measurements if jax.tree.leaves(results.update) else ()
    usable = usable_clients(
        results.update,
        results.update_weight,
        (results.non_trainable, measured),
        bounded=not aggregator.bounds_updates,
    )
    mask, refused = exists & usable, exists & ~usable
    updates = ClientUpdates(results.update, results.update_weight, mask, index)
    weight = jnp.where(mask, results.update_weight, 0)
    zeros = jax.tree.map(jnp.zeros_like, (results.non_trainable, results.measurements))
    changes, measured = select_new(mask, (results.non_trainable, results.measurements), zeros)

    def add_rows(value: Any, rows: Any) -> Any:
        return value.merge(rows.reduce()) if _is_stat(value) else value + jnp.sum(rows, axis=0, dtype=value.dtype)

    def add_changes(value: Any, rows: Any) -> Any:
        if not jnp.issubdtype(value.dtype, jnp.inexact):
            return value
        return value + jnp.tensordot(weight.astype(value.dtype), rows.astype(value.dtype), 1)

    total = Accumulator(
        aggregator.accumulate(aggregator_state, total.aggregate, updates, key),
        [add_changes(t, c) for t, c in zip(total.non_trainable, changes, strict=True)],
        total.weight + jnp.sum(weight),
        jax.tree.map(add_rows, total.measurements, measured, is_leaf=_is_stat),
        total.participated + jnp.sum(mask, dtype=jnp.int32),
        total.non_finite + jnp.sum(refused, dtype=jnp.int32),
    )
    return total, refused


def merge_accumulators(aggregator: AggregationProcess, a: Accumulator, b: Accumulator) -> Accumulator:
    """Return the accumulator of the clients of both."""

    def add(x: Any, y: Any) -> Any:
        return x.merge(y) if _is_stat(x) else x + y

    return Accumulator(
        aggregator.merge(a.aggregate, b.aggregate),
        *jax.tree.map(add, tuple(a[1:]), tuple(b[1:]), is_leaf=_is_stat),
    )


class Context(NamedTuple):
    """Values shared by all clients of a round.

    Attributes:
      work: the client work's state.
      aggregator: the aggregator's state.
      message: the distributor's message.
      client_key: the round's key of the clients.
      aggregator_key: the round's key of the aggregation.
      shares: a factor of each client's weight, (clients and more,); None if all are 1. See
        `Cohort.shares`.
      client_keys: each client's own key, (clients and more,); None to derive them from ``client_key``.
    """

    work: PyTree
    aggregator: PyTree
    message: PyTree
    client_key: Any
    aggregator_key: Any
    shares: Any = None
    client_keys: Any = None


class Outcome(NamedTuple):
    """Facts about each client of a chunk.

    Attributes:
      output: the client work's output.
      refused: bool, whether the client's result was left out, as it is not usable.
      steps: the results of its steps, stacked, where these have some.
    """

    output: PyTree
    refused: Any
    steps: PyTree = ()


def client_key(context: Context, index: Any) -> Any:
    """Return a client's key; it does not depend on who else is in the chunk."""
    return jax.random.fold_in(context.client_key, index) if context.client_keys is None else context.client_keys[index]


def _at(batches: PyTree, client: Any, step: Any) -> PyTree:
    """Return one client's batch of a step, copying nothing more."""

    def take(value: Any) -> Any:
        zeros = [jnp.int32(0)] * (value.ndim - 2)
        sizes = (1, 1, *value.shape[2:])
        return jax.lax.dynamic_slice(value, [client, step, *zeros], sizes).reshape(value.shape[2:])

    return jax.tree.map(take, batches)


def _traced_once(work: ClientWork) -> Callable[..., tuple[PyTree, PyTree]]:
    """Return the work's step with its trace kept, for shapes and for a loop."""
    return jax.jit(work.step, inline=True)


def _settled(
    step: Callable[..., tuple[PyTree, PyTree]], context: Context, carry: PyTree, batch: PyTree
) -> tuple[PyTree, PyTree]:
    """Return a carry in the types that a step gives it, and a step's result types.

    A statistic of no examples may be a scalar where those of examples have a value for each position of a sequence; a
    Python number becomes an array.
    """
    new, result = jax.eval_shape(step, context.work, context.message, carry, batch)

    def settle(old: Any, leaf: Any) -> Any:
        old = jnp.asarray(old)  # the dimensions that it has lead (domains, say)
        old = old if old.dtype == leaf.dtype else old.astype(leaf.dtype)
        return jnp.broadcast_to(jnp.reshape(old, old.shape + (1,) * (leaf.ndim - old.ndim)), leaf.shape)

    return jax.tree.map(settle, carry, new), result


def scan_steps(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], carry: PyTree, batches: PyTree, count: Any = None
) -> tuple[PyTree, PyTree]:
    """Return the carry after a client's steps, and the steps' results.

    Args:
      step: ``(carry, batch) -> (carry, result)``; the carry keeps its shapes.
      carry: before the first step.
      batches: pytree with leaves (steps, ...).
      count: number of steps whose carry counts; the others are padding. None for all.
    """

    def body(carry: PyTree, xs: Any) -> tuple[PyTree, PyTree]:
        number, batch = xs
        new, result = step(carry, batch)
        return new if count is None else select_new(number < count, new, carry), result

    return jax.lax.scan(body, carry, (jnp.arange(jax.tree.leaves(batches)[0].shape[0]), batches))


def make_vmap(work: ClientWork, aggregator: AggregationProcess) -> Callable[..., tuple[Accumulator, PyTree]]:
    """Return ``(context, total, chunk, exact) -> (total, outputs)``, batched.

    It runs the chunk's clients under `jax.vmap`. ``exact`` (static) says that every client has all steps. Otherwise
    steps beyond a client's own are dropped.
    """
    client_step = _traced_once(work)

    def one(context: Context, batches: PyTree, steps: Any, index: Any, client_input: PyTree, exact: bool) -> Any:
        carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
        carry, _ = _settled(client_step, context, carry, jax.tree.map(lambda value: value[0], batches))

        def step(carry: PyTree, batch: PyTree) -> tuple[PyTree, PyTree]:
            return client_step(context.work, context.message, carry, batch)

        carry, found = scan_steps(step, carry, batches, None if exact else steps)
        return work.client_final(context.work, context.message, carry), found

    def run(context: Context, total: Accumulator, chunk: Any, exact: bool) -> tuple[Accumulator, PyTree]:
        results, found = jax.vmap(functools.partial(one, exact=exact), in_axes=(None, 0, 0, 0, 0))(
            context, chunk.batches, chunk.steps, chunk.index, chunk.client_input
        )
        results = _weighed(context, results, chunk.index)
        total, refused = fold_results(
            aggregator, context.aggregator, total, results, chunk.steps > 0, chunk.index, context.aggregator_key
        )
        return total, Outcome(results.output, refused, found)

    return run


def _weighed(context: Context, result: ClientResult, index: Any) -> ClientResult:
    """Return results of one or several clients with their mean's weights."""
    if context.shares is None:
        return result
    return result._replace(update_weight=result.update_weight * jnp.asarray(context.shares)[index])


def fold_one(
    aggregator: AggregationProcess, context: Context, total: Accumulator, result: ClientResult, exists: Any, index: Any
) -> tuple[Accumulator, Outcome]:
    """Add one client's result to the accumulator; ``exists`` is False for padding."""
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], _weighed(context, result, index))
    total, refused = fold_results(
        aggregator,
        context.aggregator,
        total,
        rows,
        jnp.reshape(exists, (1,)),
        jnp.reshape(index, (1,)),
        context.aggregator_key,
    )
    return total, Outcome(result.output, refused[0])


def make_scan(work: ClientWork, aggregator: AggregationProcess) -> Callable[..., tuple[Accumulator, PyTree]]:
    """Return ``(context, total, chunk, exact) -> (total, outputs)``, scanned.

    It runs clients one after another. Each client takes its own number of steps, and rows behind the last client are
    not run: padding costs nothing. ``exact`` does not matter here.
    """
    client_step = _traced_once(work)

    def run(context: Context, total: Accumulator, chunk: Any, exact: bool) -> tuple[Accumulator, PyTree]:
        del exact

        def client(total: Accumulator, row: Any) -> tuple[Accumulator, PyTree]:
            steps, index, client_input = jax.tree.map(
                lambda leaf: leaf[row], (chunk.steps, chunk.index, chunk.client_input)
            )
            carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
            carry, shapes = _settled(client_step, context, carry, _at(chunk.batches, row, jnp.int32(0)))
            most = jax.tree.leaves(chunk.batches)[0].shape[1]
            found = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), shapes)

            def step(number: Any, carried: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
                carry, found = carried
                batch = _at(chunk.batches, row, number)
                carry, result = client_step(context.work, context.message, carry, batch)
                return carry, jax.tree.map(lambda all_, one: all_.at[number].set(one), found, result)

            carry, found = jax.lax.fori_loop(jnp.int32(0), steps, step, (carry, found))
            result = work.client_final(context.work, context.message, carry)
            total, outcome = fold_one(aggregator, context, total, result, steps > 0, index)
            return total, outcome._replace(steps=found)

        def add(row: Any, carry: Any) -> Any:
            total, outcomes = carry
            total, outcome = client(total, row)
            return total, jax.tree.map(lambda kept, own: kept.at[row].set(own), outcomes, outcome)

        _, form = jax.eval_shape(client, total, jnp.int32(0))
        outcomes = jax.tree.map(lambda t: jnp.zeros((chunk.steps.shape[0], *t.shape), t.dtype), form)
        count = jnp.sum(chunk.steps > 0, dtype=jnp.int32)
        return jax.lax.fori_loop(jnp.int32(0), count, add, (total, outcomes))

    return run


class LoopFunctions(NamedTuple):
    """Jitted functions ``start``, ``step`` and `finish` of a loop in Python.

    Arguments: ``start(context, index, input, first batch)``, ``step(context, carry, batch)``, which returns the carry
    and the step's result.
    """

    start: Callable[..., PyTree]
    step: Callable[..., tuple[PyTree, PyTree]]
    finish: Callable[..., tuple[Accumulator, PyTree]]


def make_loop(work: ClientWork, aggregator: AggregationProcess) -> LoopFunctions:
    """Return jitted functions of a Python loop; only a step compiles by shape.

    A step donates its carry, unless its result may share the carry's memory.
    """
    client_step = _traced_once(work)

    def start(context: Context, index: Any, client_input: PyTree, first: Any) -> PyTree:
        carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
        return _settled(client_step, context, carry, first)[0]

    def step(context: Context, carry: PyTree, batch: Any) -> tuple[PyTree, PyTree]:
        return client_step(context.work, context.message, carry, batch)

    def finish(context: Context, total: Accumulator, carry: PyTree, index: Any) -> tuple[Accumulator, PyTree]:
        result = work.client_final(context.work, context.message, carry)
        return fold_one(aggregator, context, total, result, True, index)

    donated = () if work.has_step_results else (1,)
    return LoopFunctions(jax.jit(start), jax.jit(step, donate_argnums=donated), jax.jit(finish, donate_argnums=1))


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


def run_client(
    work: ClientWork, context: Context, name: Any, batches: Iterable[PyTree], client_input: PyTree, key: Any
) -> tuple[ClientResult, list[PyTree]]:
    """Return a client's result and its steps' results, computed eagerly.

    Raises:
      ForEachClientError: a function of the work fails; it names the client and the function.
    """
    (state, message), client_input = immutable(((context.work, context.message), client_input))
    found = []
    with client_stage(name, "client_init", message=context.message, client_input=client_input):
        carry = work.client_init(state, message, key, client_input)
    for number, batch in enumerate(batches):
        arrays = immutable(batch)
        with client_stage(name, f"client_step {number}", state=carry, batch=arrays):
            carry, result = work.step(state, message, carry, arrays)
        found.append(result)
    with client_stage(name, "client_final", message=context.message, state=carry):
        return work.client_final(state, message, carry), found


def choose_backend(work: ClientWork, context: Context, batch: Any, client_input: Any, *, alone: bool = True) -> str:
    """Return the fastest backend: "vmap", "scan", "cpu_pool" or "loop".

    `benchmarks/federated.py` measures this.

    - On accelerators clients are batched (vmap), or run sequentially in one program (scan) if the model cannot be
      batched (an artifact's StableHLO cannot).
    - On a CPU they run sequentially in one program: batched weights would not fit in the cache, and batched matrix
      products are slower there.
      Chunks run on a thread for each core (cpu_pool): 1.6 times as fast as scan for logistic regression, 1.5 times for
      a CNN, on two x86-64 cores (benchmarks/pages/federated.md).
    - A step with a convolution that cannot be rewritten (in an artifact's StableHLO) must not run inside an XLA loop on
      a CPU: each step is a program of its own (loop).

    Args:
      work: the client work.
      context: of the round.
      batch: a client's batch, for its shapes.
      client_input: the algorithm's input for the client, or None.
      alone: whether clients may run individually; a mesh needs chunks.
    """
    if jax.default_backend() != "cpu":
        return "vmap" if can_be_batched(work, context, batch, client_input) else "scan"
    if not alone:
        return "scan"
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)
    return "loop" if has_slow_convolution(step, context, carry, batch) else "cpu_pool"


def _parts(work: ClientWork) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def start(context: Context, client_input: Any) -> Any:
        return work.client_init(context.work, context.message, client_key(context, jnp.int32(0)), client_input)

    def step(context: Context, carry: Any, batch: Any) -> Any:
        return work.client_step(context.work, context.message, carry, batch)

    return start, step


def can_be_batched(work: ClientWork, context: Context, batch: Any, client_input: Any) -> bool:
    """Return whether clients can be batched: all primitives have batching rules.

    Arguments: `choose_backend`.
    """
    start, step = _parts(work)
    carry = jax.eval_shape(start, context, client_input)

    def one(carry: Any, batch: Any) -> Any:
        return step(context, carry, batch)

    try:
        jax.eval_shape(jax.vmap(one), *jax.tree.map(_stacked, (carry, dict(batch))))
    except NotImplementedError:
        return False
    return True


def reads_client_input(work: ClientWork, context: Context) -> bool:
    """Return whether ``client_init`` depends on the structure of its input.

    Args:
      work: the client work.
      context: of the round.
    """
    start, _ = _parts(work)
    try:
        forms = {jax.tree.structure(jax.eval_shape(start, context, given)) for given in (None, ())}
    except Exception:  # the code is the user's: it may fail in any way for want of its input
        return True
    return len(forms) > 1


def _stacked(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype)


def has_slow_convolution(fn: Callable[..., Any], *args: Any) -> bool:
    """Return whether ``fn(*args)`` has a convolution that is slow in XLA's loops.

    Those inside an artifact's StableHLO count, too: `optimize` cannot rewrite them.

    Args:
      fn: a function that can be traced.
      *args: pytrees of arrays, or of anything with shape and dtype.
    """
    traced = jax.jit(fn).trace(*args)
    if not any(_may_convolve(inner) for eqn in traced.jaxpr.jaxpr.eqns for inner in equations(eqn)):
        return False
    lines = traced.lower(lowering_platforms=("cpu",)).as_text().splitlines()
    return any("stablehlo.convolution" in line and not _FAST.search(line) for line in lines)


def _may_convolve(eqn: Any) -> bool:
    return eqn.primitive.name in ("conv_general_dilated", "call_exported")
