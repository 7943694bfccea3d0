"""Run rounds: split cohorts into chunks, and execute them by a backend.

Entry: `runner.CohortRunner`.

Read in this order:
  cohort, stacking, buffers: clients as stacked arrays, chunk by chunk, in reused memory.
  choice: the execution backend (vmap, scan, unrolled or loop) of a cohort.
  strategies, programs: a chunk's computation for each backend; its compilation.
  accumulate, workers: the aggregator's accumulator; parallel workers on one device, or a mesh.
  runner: one round.

Must not import `algorithms` or `aggregators`: it gets their processes as arguments.
"""

from .cohort import Chunk, Cohort, client_seed
from .runner import CohortResult, CohortRunner, Execution

__all__ = ["Chunk", "Cohort", "CohortResult", "CohortRunner", "Execution", "client_seed"]
