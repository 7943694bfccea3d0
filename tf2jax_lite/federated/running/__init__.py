"""Runs rounds: splits cohorts into chunks, and executes chunks by one of several backends."""

from .cohort import Chunk, Cohort, client_seed
from .runner import CohortResult, CohortRunner, Execution

__all__ = ["Chunk", "Cohort", "CohortResult", "CohortRunner", "Execution", "client_seed"]
