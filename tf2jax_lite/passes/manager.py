"""The ordered list of passes, and the function that runs it.

Each pass is a module with a function ``run(graph, config) -> Graph``. `PASSES` gives the order, with the reason for
each position; docs/architecture.md has the same list as a table. ``config.passes`` switches optional passes off by
name, for debugging and ablation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config, is_chosen

from .canonicalize import (
    calls_and_for,
    effectful_conditions,
    legacy_tensor_arrays,
    select_implementation,
    stacks_to_lists,
)
from .control_flow_v1 import functionalize
from .optimize import (
    cse,
    dead_values,
    fold_clamps,
    gather_idiom,
    list_element_grads,
    narrow_constants,
    relu_idiom,
    repeat_idiom,
    scan_layers,
    split_loop_bounds,
    tensor_array_stack,
)


@dataclasses.dataclass(frozen=True)
class Pass:
    """A pass.

    Attributes:
      name: the name of its module.
      run: returns the rewritten graph.
      effect: the rewrite in a few words: before -> after.
      reason: the reason for its position in the list.
      required: whether graphs would convert to wrong values, or not at all, without it.
    """

    name: str
    run: Callable[[ir.Graph, Config], ir.Graph]
    effect: str
    reason: str
    required: bool = False


PASSES: tuple[Pass, ...] = (
    Pass(
        "calls_and_for",
        calls_and_for.run,
        "BatchFunction -> call, For -> While",
        "first: other passes handle calls and While only",
        required=True,
    ),
    Pass(
        "select_implementation",
        select_implementation.run,
        "call of `api_implements` -> its CPU variant",
        "before passes that change signatures, which it compares",
        required=True,
    ),
    Pass(
        "legacy_tensor_arrays",
        legacy_tensor_arrays.run,
        "TensorArray V1, V2 -> V3; Stack -> StackV2",
        "before functionalize: handles pass Switch, Merge and Enter as resources",
        required=True,
    ),
    Pass(
        "functionalize",
        functionalize.run,
        "Switch, Merge, Enter, Exit -> If, While",
        "before the passes that analyze loops and branches",
        required=True,
    ),
    Pass(
        "effectful_conditions",
        effectful_conditions.run,
        "condition with effects -> call in the body",
        "after functionalize, whose loops may have such conditions",
        required=True,
    ),
    Pass(
        "stacks_to_lists",
        stacks_to_lists.run,
        "StackV2 -> TensorList",
        "after functionalize: loops and branches carry the lists",
        required=True,
    ),
    Pass(
        "tensor_array_stack",
        tensor_array_stack.run,
        "gather(range(size)) -> `_TensorArrayStack`",
        "after functionalize, also inside loops; otherwise free",
    ),
    Pass(
        "list_element_grads",
        list_element_grads.run,
        "sum of lists -> update of one element",
        "before dead_values, which removes the unused lists",
    ),
    Pass(
        "split_loop_bounds",
        split_loop_bounds.run,
        "i < min(a, b) -> i < a and i < b",
        "before fold_clamps, which may rewrite the Minimum",
    ),
    Pass(
        "fold_clamps",
        fold_clamps.run,
        "max(n, x) -> n if x <= n",
        "after split_loop_bounds; otherwise free",
    ),
    Pass(
        "repeat_idiom",
        repeat_idiom.run,
        "expanded tf.repeat -> `_Repeat`",
        "before cse, which merges equal repeats",
    ),
    Pass(
        "gather_idiom",
        gather_idiom.run,
        "concat of slices of a split -> `_GatherPieces`",
        "free",
    ),
    Pass(
        "relu_idiom",
        relu_idiom.run,
        "max(x, 0) of jax2tf -> Relu",
        "before narrow_constants, which changes constants",
    ),
    Pass(
        "narrow_constants",
        narrow_constants.run,
        "float constants -> bfloat16, if configured",
        "after the passes that read constants",
    ),
    Pass(
        "cse",
        cse.run,
        "equal nodes -> one, with data-dependent shapes",
        "after the idioms, whose nodes it merges as well",
    ),
    Pass(
        "dead_values",
        dead_values.run,
        "dead results, inputs, loop variables -> `_Undefined`",
        "after the passes that leave values unused",
    ),
    Pass(
        "scan_layers",
        scan_layers.run,
        "equal consecutive layers -> `_ScanLayers`, if configured",
        "last: other passes see each layer's nodes",
    ),
)
"""The passes, in order."""

NAMES = tuple(entry.name for entry in PASSES)
"""Their names."""

REQUIRED = tuple(entry.name for entry in PASSES if entry.required)
"""The names of those that no option switches off."""


def run_passes(graph: ir.Graph, config: Config, only: Collection[str] | None = None) -> ir.Graph:
    """Run the passes in order.

    Args:
      graph: a verified graph.
      config: the options; ``passes`` chooses the optional passes.
      only: names of the passes to run; all by default.
    """
    for entry in PASSES:
        if (only is None or entry.name in only) and (entry.required or is_chosen(config.passes, entry.name)):
            graph = entry.run(graph, config)
    return graph
