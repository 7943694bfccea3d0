"""The training loop, with its records and checkpoints.

Entries: `loop.train_model`, and `loop.run_rounds` with more options; the release managers; `checkpoint.Checkpoints`.

Read in this order:
  loop: sampling, history and exact resumption.
  records, release_managers, events, plots: records of the loop's rounds.
  states, checkpoint: states as named arrays; their files.

Must not import `algorithms` or `execution`.
"""
