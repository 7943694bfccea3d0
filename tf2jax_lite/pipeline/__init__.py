"""The driver: import, verify, passes, plan, call.

Entry: `convert.convert` and its siblings, exported by `tf2jax_lite`. Read:

- `convert`: the four steps of a conversion, in order; `steps` has those after the import.
- `converted_function`: the function that users call.
- `retracing`: when one call traces more than once.
- `split_host`: a model as a prefix in TensorFlow and a core.
- `initial_values`: initializers of variables, evaluated by the lowering.
- `model_files`: SavedModels, Keras files and frozen graphs by path; `model_paths` has the paths alone.
- `inspect_model`: the ops of a model and the unsupported ones among them, without TensorFlow if its file allows it.

The only package that imports both `frontend` and `lowering`. Must not import `export`, `verification` or `cli`.
"""
