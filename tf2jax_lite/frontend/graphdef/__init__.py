"""GraphDef and FunctionDef to IR functions, each kind of proto read in one module.

Entries: `functions.load_main` and `functions.load_library`. Read:

- `functions`: nodes, references and results of a function.
- `nodes`: one NodeDef to a spec that equal nodes share.
- `op_defs`, `attributes`, `dtypes`: OpDefs, AttrValues and dtypes.
- `protos`: messages, with or without TensorFlow.
- `size_limits`: declared sizes, checked before anything is read.

None imports TensorFlow at once. Must not import `concrete`, `saved`, `passes` or `lowering`.
"""
