"""The ordered list of passes, and the function that runs it.

Each pass is a function ``(graph, config) -> Graph``. `PASSES` gives the order, with the reason for
each position; docs/architecture.md has the same list as a table. ``config.passes`` switches optional passes off by
name, for debugging and ablation.
"""

from __future__ import annotations

from collections.abc import Collection

from tf2jax_lite import ir
from tf2jax_lite.support.config import Config, Entry, apply_entries, is_chosen

from .canonicalize import effectful_conditions, legacy_tensor_arrays, stacks_to_lists
from .canonicalize.calls import calls_and_for, select_implementation
from .control_flow_v1 import functionalize
from .optimize import cse, dead_values, narrow_constants, repeat_idiom, scan_layers
from .optimize.clamps import fold_clamps, split_loop_bounds
from .optimize.idioms import gather_idiom, list_element_grads, relu_idiom, tensor_array_stack

PASSES = (
    Entry(
        "calls_and_for",
        calls_and_for,
        "first: other passes handle calls and While only",
        "BatchFunction -> call, For -> While",
        required=True,
    ),
    Entry(
        "select_implementation",
        select_implementation,
        "before passes that change signatures, which it compares",
        "call of `api_implements` -> its CPU variant",
        required=True,
    ),
    Entry(
        "legacy_tensor_arrays",
        legacy_tensor_arrays.run,
        "before functionalize: handles pass Switch, Merge and Enter as resources",
        "TensorArray V1, V2 -> V3; Stack -> StackV2",
        required=True,
    ),
    Entry(
        "functionalize",
        functionalize.run,
        "before the passes that analyze loops and branches",
        "Switch, Merge, Enter, Exit -> If, While",
        required=True,
    ),
    Entry(
        "effectful_conditions",
        effectful_conditions.run,
        "after functionalize, whose loops may have such conditions",
        "condition with effects -> call in the body",
        required=True,
    ),
    Entry(
        "stacks_to_lists",
        stacks_to_lists.run,
        "after functionalize: loops and branches carry the lists",
        "StackV2 -> TensorList",
        required=True,
    ),
    Entry(
        "tensor_array_stack",
        tensor_array_stack,
        "after functionalize, also inside loops; otherwise free",
        "gather(range(size)) -> `_TensorArrayStack`",
    ),
    Entry(
        "list_element_grads",
        list_element_grads,
        "before dead_values, which removes the unused lists",
        "sum of lists -> update of one element",
    ),
    Entry(
        "split_loop_bounds",
        split_loop_bounds,
        "before fold_clamps, which may rewrite the Minimum",
        "i < min(a, b) -> i < a and i < b",
    ),
    Entry(
        "fold_clamps",
        fold_clamps,
        "after split_loop_bounds; otherwise free",
        "max(n, x) -> n if x <= n",
    ),
    Entry(
        "repeat_idiom",
        repeat_idiom.run,
        "before cse, which merges equal repeats",
        "expanded tf.repeat -> `_Repeat`",
    ),
    Entry(
        "gather_idiom",
        gather_idiom,
        "free",
        "concat of slices of a split -> `_GatherPieces`",
    ),
    Entry(
        "relu_idiom",
        relu_idiom,
        "before narrow_constants, which changes constants",
        "max(x, 0) of jax2tf -> Relu",
    ),
    Entry(
        "narrow_constants",
        narrow_constants.run,
        "after the passes that read constants",
        "float constants -> bfloat16, if configured",
    ),
    Entry(
        "cse",
        cse.run,
        "after the idioms, whose nodes it merges as well",
        "equal nodes -> one, with data-dependent shapes",
    ),
    Entry(
        "dead_values",
        dead_values.run,
        "after the passes that leave values unused",
        "dead results, inputs, loop variables -> `_Undefined`",
    ),
    Entry(
        "scan_layers",
        scan_layers.run,
        "last: other passes see each layer's nodes",
        "equal consecutive layers -> `_ScanLayers`, if configured",
    ),
)
"""The passes, in order."""

NAMES = tuple(entry.name for entry in PASSES)
"""Their names."""

REQUIRED = tuple(entry.name for entry in PASSES if entry.required)
"""The names of those that no option switches off."""


def run_passes(graph: ir.Graph, config: Config, only: Collection[str] | None = None) -> ir.Graph:
    """Run the passes in order."""
    chosen = {name for name in NAMES if name in REQUIRED or is_chosen(config.passes, name)}
    return apply_entries(PASSES, chosen if only is None else chosen.intersection(only), graph, config)
