"""Computations of a chunk of clients: vmap, scan, unrolled, or a jitted loop.

Results are equal.

Which one is fastest depends on the backend and the model. On an accelerator clients run side by side (vmap); on a CPU
one after another in one program (scan), which keeps a client's weights in the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tf2jax_lite.federated.execution.accumulator import Accumulator, fold_results, select_new
from tf2jax_lite.federated.templates.client_work import ClientResult, ClientWork
from tf2jax_lite.federated.templates.process import AggregationProcess

PyTree = Any


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
    """

    output: PyTree
    refused: Any


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


def _traced_once(work: ClientWork) -> Callable[..., PyTree]:
    """Return the work's step with its trace kept, for shapes and for a loop."""
    return jax.jit(work.client_step, inline=True)


def _settled(step: Callable[..., PyTree], context: Context, carry: PyTree, batch: PyTree) -> PyTree:
    """Return a carry in the shapes that a step gives it, as loops need.

    A statistic of no examples may be a scalar where those of examples have a value for each position of a sequence.
    """
    new = jax.eval_shape(step, context.work, context.message, carry, batch)

    def settle(old: Any, leaf: Any) -> Any:
        old = jnp.asarray(old)  # the dimensions that it has lead (domains, say)
        return jnp.broadcast_to(jnp.reshape(old, old.shape + (1,) * (leaf.ndim - old.ndim)), leaf.shape)

    return jax.tree.map(settle, carry, new)


def make_vmap(work: ClientWork, aggregator: AggregationProcess) -> Callable[..., tuple[Accumulator, PyTree]]:
    """Return ``(context, total, chunk, exact) -> (total, outputs)``, batched.

    It runs the chunk's clients under `jax.vmap`. ``exact`` (static) says that every client has all steps. Otherwise
    steps beyond a client's own are dropped.
    """
    client_step = _traced_once(work)

    def one(context: Context, batches: PyTree, steps: Any, index: Any, client_input: PyTree, exact: bool) -> Any:
        carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
        carry = _settled(client_step, context, carry, jax.tree.map(lambda value: value[0], batches))

        def step(carry: PyTree, xs: Any) -> tuple[PyTree, None]:
            number, batch = xs
            new = client_step(context.work, context.message, carry, batch)
            return (new if exact else select_new(number < steps, new, carry)), None

        count = jax.tree.leaves(batches)[0].shape[0]
        carry, _ = jax.lax.scan(step, carry, (jnp.arange(count), batches))
        return work.client_final(context.work, context.message, carry)

    def run(context: Context, total: Accumulator, chunk: Any, exact: bool) -> tuple[Accumulator, PyTree]:
        results = jax.vmap(functools.partial(one, exact=exact), in_axes=(None, 0, 0, 0, 0))(
            context, chunk.batches, chunk.steps, chunk.index, chunk.client_input
        )
        results = _weighed(context, results, chunk.index)
        total, refused = fold_results(
            aggregator, context.aggregator, total, results, chunk.steps > 0, chunk.index, context.aggregator_key
        )
        return total, Outcome(results.output, refused)

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

    It runs clients one after another. Each client takes its own number of steps: padding of steps costs nothing.
    ``exact`` does not matter here.
    """
    client_step = _traced_once(work)

    def run(context: Context, total: Accumulator, chunk: Any, exact: bool) -> tuple[Accumulator, PyTree]:
        del exact

        def client(total: Accumulator, xs: Any) -> tuple[Accumulator, PyTree]:
            row, steps, index, client_input = xs
            carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
            carry = _settled(client_step, context, carry, _at(chunk.batches, row, jnp.int32(0)))

            def step(number: Any, carry: PyTree) -> PyTree:
                return client_step(context.work, context.message, carry, _at(chunk.batches, row, number))

            carry = jax.lax.fori_loop(jnp.int32(0), steps, step, carry)
            result = work.client_final(context.work, context.message, carry)
            return fold_one(aggregator, context, total, result, steps > 0, index)

        rows = jnp.arange(chunk.steps.shape[0], dtype=jnp.int32)
        return jax.lax.scan(client, total, (rows, chunk.steps, chunk.index, chunk.client_input))

    return run


def make_unrolled(work: ClientWork, aggregator: AggregationProcess) -> Callable[..., tuple[Accumulator, PyTree]]:
    """Return the unrolled program of one client.

    It is ``(context, total, batches: list, index, client_input) -> (total, output)``. All steps are written out in one
    program: for slow loops. It is compiled for each number of steps.
    """

    def run(context: Context, total: Accumulator, batches: list[Any], index: Any, client_input: PyTree) -> Any:
        carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
        for batch in batches:
            carry = work.client_step(context.work, context.message, carry, batch)
        result = work.client_final(context.work, context.message, carry)
        return fold_one(aggregator, context, total, result, True, index)

    return run


class LoopFunctions(NamedTuple):
    """Jitted functions ``start``, ``step`` and `finish` of a loop in Python.

    Arguments: ``start(context, index, input, first batch)``, ``step(context, carry, batch)``.
    """

    start: Callable[..., PyTree]
    step: Callable[..., PyTree]
    finish: Callable[..., tuple[Accumulator, PyTree]]


def make_loop(work: ClientWork, aggregator: AggregationProcess) -> LoopFunctions:
    """Return jitted functions of a Python loop; only a step compiles by shape."""
    client_step = _traced_once(work)

    def start(context: Context, index: Any, client_input: PyTree, first: Any) -> PyTree:
        carry = work.client_init(context.work, context.message, client_key(context, index), client_input)
        return _settled(client_step, context, carry, first)

    def step(context: Context, carry: PyTree, batch: Any) -> PyTree:
        return client_step(context.work, context.message, carry, batch)

    def finish(context: Context, total: Accumulator, carry: PyTree, index: Any) -> tuple[Accumulator, PyTree]:
        result = work.client_final(context.work, context.message, carry)
        return fold_one(aggregator, context, total, result, True, index)

    return LoopFunctions(jax.jit(start), jax.jit(step, donate_argnums=1), jax.jit(finish, donate_argnums=1))
