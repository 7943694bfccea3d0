"""Run rounds: split cohorts into chunks, and execute them by a backend.

Entry: `runner.CohortRunner`.

Read in this order:
  backends: a chunk's computation for each backend (vmap, scan, loop), their choice, the aggregator's accumulator.
  cohort: clients as stacked arrays, chunk by chunk.
  cpu_pool: the backend scan on threads.
  runner: one round, also on the devices of a mesh and without compilation.
  for_each_client: functions of a user's over clients, without an algorithm around them.

Must not import `algorithms` or `aggregators`: it gets their processes as arguments.
"""

from tf2jax_lite.federated.execution.cohort import Chunk, Cohort, client_seed
from tf2jax_lite.federated.execution.for_each_client import (
    for_each_client,
    for_each_client_backend,
    get_for_each_client_backend,
    set_for_each_client_backend,
)
from tf2jax_lite.federated.execution.runner import CohortResult, CohortRunner, Execution

__all__ = [
    "Chunk",
    "Cohort",
    "CohortResult",
    "CohortRunner",
    "Execution",
    "client_seed",
    "for_each_client",
    "for_each_client_backend",
    "get_for_each_client_backend",
    "set_for_each_client_backend",
]
