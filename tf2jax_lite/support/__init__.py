"""Errors, options, limits and small tools.

Entries: `errors` (public as `tf2jax_lite.errors`) and `config` (public as functions of `tf2jax_lite`). Read:

- `errors`: the exceptions of this library.
- `config`: conversion options and their overrides.
- `limits`: limits of sizes, checked before memory is allocated; errors of files.
- `extras`: whether an extra is installed.
- `npz`: .npz archives of bounded size.
- `stored_array`, `crc32c`: arrays that stay in a file, and the checksum of checkpoints.
- `op_traits`: ops that may be dropped, are unsafe, or have no implementation, by name.
- `gc_pause`, `text`: a pause of the garbage collector, text for messages.
- `retrace`: the one mechanism by which a trace starts again.

Must not import TensorFlow, JAX or any other package of tf2jax_lite.
"""
