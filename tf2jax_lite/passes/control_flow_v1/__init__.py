"""Switch, Merge, Enter and Exit to If and While.

`functionalize` is the entry. `frames` finds loop frames, `while_regions` and `if_regions` rewrite them,
`node_conditions` says when a node runs, with the decision diagrams of `bdd`; `switch_n` comes first.
"""
