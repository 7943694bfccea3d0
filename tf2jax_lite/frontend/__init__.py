"""Frontend: TensorFlow to IR.

Beside it, only verification and the command line import TensorFlow.

Entries, each returning an `ImportedFunction` (graph and interface):

- `concrete.trace.trace`: a callable, `tf.function` or Keras model.
- `concrete.saved_signatures.signature_loader`: SavedModels of TF1 and TF2.
- `saved.graph_def_file.load_frozen`: GraphDef files.

Read `graphdef` (protos), `concrete` (ConcreteFunctions), `saved` (files), then `gradients` (overridden gradients),
`runtime` (TensorFlow run at conversion or at call time) and `safety` (untrusted files).

Must not import `passes`, `lowering` or `pipeline`; the pipeline injects what the frontend needs of them as callables.
"""
