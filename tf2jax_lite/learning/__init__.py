"""The parts of training that central and federated training share.

Read in this order:
  process, model, sources: the types of a training; models, and their sources (functions, Keras, Flax, artifacts).
  losses, metrics, named_metrics, optimizers, keras_functions: the same by name, and those of Keras.
  data: examples, clients, rows in files, and batches of them.
  loop, checkpoints, recorder: rounds, their states on disk, their records.
  partial, states, checks: training of some params; states as arrays; checks of options.

Must not import `federated`, `finetuning`, `artifacts`, `verification` or `cli`; TensorFlow only inside of functions.
"""
