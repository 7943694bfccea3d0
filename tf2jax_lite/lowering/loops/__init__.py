"""While: which JAX loop it becomes, and the form of its carry.

`while_op` is the entry and picks scan, while loop or unrolling; `trip_count` runs the condition on the host, `loop`
has the kinds, `carry` finds the form of the carry, `growing_carry` handles arrays that grow.
"""
