"""Checks of untrusted files, before TensorFlow or Keras reads them.

Entries, by kind of input:

- `unsafe_ops`: ops that run code or touch files, in graphs that TensorFlow is to run, and ops that it runs when it
  loads a SavedModel.
- `checkpoint_index`: indices of checkpoints that would end the process.
- `keras_config`: code, foreign files and sizes in Keras files, and calls of layers; `keras_names` lists what only
  computes.
- `raw_protos`: names in unverified protos, for the other modules.

Must not import `concrete`, `passes` or `lowering`.
"""
