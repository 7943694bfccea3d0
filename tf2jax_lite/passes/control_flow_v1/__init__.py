"""Functionalization: control flow v1 (Switch, Merge, Enter, Exit) to If and While.

Entry: `functionalize.run(graph, config)`. Read in the order of its steps:

- `while_regions`: the loops of a function, each to a While node.
- `node_conditions`: the condition under which each node is alive, as a decision diagram.
- `if_regions`: conditional nodes to If nodes.

Must not import TensorFlow, JAX or `lowering`.
"""
