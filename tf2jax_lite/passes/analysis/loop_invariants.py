"""Loop-invariant variables of a While: those that its body returns unchanged."""

from __future__ import annotations

from tf2jax_lite import ir
from tf2jax_lite.ir.traversal import skip


def loop_invariants(body: ir.Function) -> set[int]:
    """Return the positions of the arguments that a loop's body returns unchanged.

    Identity nodes do not change a value.
    """
    nodes = {node.name: node for node in body.nodes}
    pairs = enumerate(zip(body.args, body.outputs, strict=False))
    return {index for index, (arg, ref) in pairs if skip(ref, nodes).node == arg.name}
