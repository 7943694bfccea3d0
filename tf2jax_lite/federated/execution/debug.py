"""The debug backend: clients one after another, without compilation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.user_functions import immutable
from tf2jax_lite.federated.execution.accumulator import Accumulator, zero_accumulator
from tf2jax_lite.federated.execution.backends import Context, Outcome, client_key, fold_one
from tf2jax_lite.federated.execution.cohort import Client, Cohort
from tf2jax_lite.federated.execution.for_each_client import client_stage
from tf2jax_lite.federated.templates.client_work import ClientWork
from tf2jax_lite.federated.templates.process import AggregationProcess

PyTree = Any


def run_eagerly(
    work: ClientWork, aggregator: AggregationProcess, context: Context, cohort: Cohort, clients: Iterable[Client]
) -> tuple[Accumulator, dict[int, Outcome]]:
    """Run clients eagerly, so that prints and debuggers see values.

    Args:
      work: the client work.
      aggregator: accumulates the updates.
      context: of the round.
      cohort: the clients as given, for their names.
      clients: those that have data, at least one.

    Returns:
      The accumulator, and each client's outcome by its index.

    Raises:
      ForEachClientError: a function of the client work fails.
    """
    total, outputs = None, {}
    with jax.disable_jit():
        for client in clients:
            name, index = cohort.name(client.index), jnp.int32(client.index)
            result = _one(work, context, name, client, client_key(context, index))
            if total is None:
                total = zero_accumulator(aggregator, context.aggregator, len(cohort), result)
            with client_stage(name, "aggregation", result=result):
                total, outcome = fold_one(aggregator, context, total, result, True, index)
            outputs[client.index] = jax.device_get(outcome)
    assert total is not None
    return total, outputs


def _one(work: ClientWork, context: Context, name: Any, client: Client, key: Any) -> Any:
    (state, message), client_input = immutable(((context.work, context.message), client.client_input))
    with client_stage(name, "client_init", message=context.message, client_input=client_input):
        carry = work.client_init(state, message, key, client_input)
    for number, batch in enumerate(client.batches()):
        arrays = immutable(batch)
        with client_stage(name, f"client_step {number}", state=carry, batch=arrays):
            carry = work.client_step(state, message, carry, arrays)
    with client_stage(name, "client_final", state=carry):
        return work.client_final(state, message, carry)
