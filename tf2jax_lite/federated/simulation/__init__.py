"""Records and checkpoints of the training loop in `federated.training`.

Entries: the release managers, and `checkpoint.Checkpoints`.

Read in this order:
  release_managers, events, plots: records of the loop's rounds.
  states, checkpoint: states as named arrays; their files.

Must not import `algorithms` or `execution`.
"""
