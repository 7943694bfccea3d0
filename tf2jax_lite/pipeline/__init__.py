"""The driver: import, verify, passes, plan, call.

Entry: `convert.convert` and its siblings, exported by `tf2jax_lite`. Read:

- `convert`: the four steps of a conversion, in order.
- `converted_function`: the function that users call.
- `retracing`: when one call traces more than once.
- `split_host`: a model as a prefix in TensorFlow and a core.
- `initial_values`: initializers of variables, evaluated by the lowering.
- `model_files`: SavedModels, Keras files and frozen graphs by path.
- `inspect_model`: the ops of a model and the unsupported ones among them.

The only package that imports both `frontend` and `lowering`. Must not import `export`, `verification` or `cli`.
"""
