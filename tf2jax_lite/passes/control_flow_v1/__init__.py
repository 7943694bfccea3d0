"""Functionalization: control flow v1 (Switch, Merge, Enter, Exit) to If and While.

Entry: `functionalize.run(graph, config)`. Read in the order of its steps:

- `switch_n`: ``_SwitchN`` to a tree of Switches.
- `frames`: the loops of a function.
- `while_regions`: one loop to a While node.
- `bdd`, `node_conditions`: the condition under which each node is alive, as a decision diagram.
- `if_regions`: conditional nodes to If nodes.

Must not import TensorFlow, JAX or `lowering`.
"""
