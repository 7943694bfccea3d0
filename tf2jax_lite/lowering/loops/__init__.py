"""While and repeated layers: the JAX loops that they become.

`while_op` is the entry: it chooses ``lax.scan``, ``lax.while_loop`` or unrolling, and runs layers of equal form, which
`tf2jax_lite.passes.optimize.scan_layers` finds. Read it first, then

- `trip_count`: folds the static part of a loop, which gives the trip count or an upper bound;
- `loop`: the compiled loops;
- `carry`: widens the carry until no iteration changes its types;
- `list_capacity`: capacities of carried tensor lists;
- `growing_carry`: arrays that change their sizes.

Optimizations of the resulting scans are in `tf2jax_lite.lowering.scan_opt`. Must not import `pipeline`, `frontend` or
`export`.
"""
