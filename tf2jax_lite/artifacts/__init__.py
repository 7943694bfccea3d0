"""Commands on files: train artifacts, centrally and federated.

Entries: `finetune.finetune_artifact` and `federate.federate_artifact`.

Read in this order:
  model: an artifact as a model with a loss; checks of examples.
  finetune, federate: a training of an artifact, and the trained artifact.
  algorithms: federated algorithms, aggregators and domains by name.

Must not import TensorFlow, the converter (`pipeline`, `frontend`, `lowering`) or `cli`.
"""
