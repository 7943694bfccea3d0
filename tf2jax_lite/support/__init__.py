"""Errors, options, limits and small tools.

`errors` and `config` have the public names; `limits` bounds sizes before memory is taken, `npz` reads archives of
bounded size, `scoped` has context-local overrides, `gc_pause` and `text` small helpers. Imports neither TensorFlow
nor JAX, and nothing else of this package.
"""
