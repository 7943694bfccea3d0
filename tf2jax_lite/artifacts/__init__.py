"""Commands on files: convert, verify and train models, and write them back.

Each command of the shell has a module of its name. Entries: `convert.convert_model`, `verify.verify_model`,
`finetune.finetune_artifact`, `federate.federate_artifact`, `serve.serve_artifact`, `export_tf.export_to_tf`.

Read in this order:
  options: the options of the commands.
  convert, verify, export_tf: a model's file to an artifact, both against TensorFlow, and back.
  model: an artifact as a model with a loss; checks of examples.
  finetune, federate: a training of an artifact, and the trained artifact.
  serve: an artifact over HTTP.
  algorithms: federated algorithms, aggregators and domains by name.

Must not import `cli`; `options`, `model`, `finetune`, `federate`, `serve` and `algorithms` no TensorFlow and no
converter.
"""
