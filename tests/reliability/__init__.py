"""What a converter must stand that runs inside other people's servers and training jobs: threads, processes, faults."""
