"""Running rounds: cohorts cut into chunks, and the ways to execute a chunk."""

from .cohort import Chunk, Cohort, client_seed
from .runner import CohortResult, CohortRunner, Execution

__all__ = ["Chunk", "Cohort", "CohortResult", "CohortRunner", "Execution", "client_seed"]
