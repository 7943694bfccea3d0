"""Models as pure functions of their weights.

Entries: `model.Model`, and the ``create_model_from_*`` functions.

Read in this order:
  model, losses: the type, its gradients and its evaluation; losses by name.
  sources, libraries, keras_functions: models from functions, artifacts, TensorFlow; from Flax, Haiku, stax.
  partial, local_weights: frozen weights, low-rank adapters, weights that stay with clients.
  cpu_rules: faster code on CPUs.

Must not import `execution` or `algorithms`.
"""
