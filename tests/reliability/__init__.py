"""Robustness inside servers and training jobs: threads, processes, faults."""
