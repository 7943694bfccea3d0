"""ConcreteFunctions to IR graphs with an interface.

Entries: `trace.trace` for callables, `concrete_function.load_concrete` for a ConcreteFunction,
`saved_signatures.signature_loader` for SavedModels. Read:

- `trace`: callables to ConcreteFunctions with the signature that users call.
- `saved_signatures`: signatures of SavedModels, with values of the checkpoint.
- `concrete_function`, `structures`: graph and captures; nested arguments and results, composite ones by components.
- `graph_state`, `variable_values`: variables and tables, their values and attribute paths, and which variables train.

Must not import `passes` or `lowering`. Importing it raises `MissingLibraryError` without TensorFlow, which is an extra.
"""

from tf2jax_lite.support.extras import require_tensorflow

require_tensorflow()
