"""The IR, and operations on it that need no knowledge of any op.

Read `graph` first: `Graph`, `Function`, `Node`, `TensorRef`; this package exports their names. Then:

- `verify`: `check_calls` raises on recursion and on calls nested too deeply or expanded too often.
- `traversal`: producers behind Identity nodes, constants, topological order, called functions, kinds of calls;
  the nodes that outputs and effects need.
- `build`: Const and _Undefined nodes, rewired inputs, libraries of new functions.
- `providers`: protocols of compilers and evaluators that the pipeline injects into the lowering.

Must not import TensorFlow, JAX, or any other package than `support`.
"""

from .graph import (
    RESOURCE,
    STRING,
    VARIANT,
    Argument,
    Capture,
    DType,
    Function,
    FunctionRef,
    Graph,
    Node,
    NodeSpec,
    OpaqueType,
    Shape,
    TensorRef,
    Variable,
    free_name,
    functions_in,
    node_from_spec,
)

__all__ = [
    "RESOURCE",
    "STRING",
    "VARIANT",
    "Argument",
    "Capture",
    "DType",
    "Function",
    "FunctionRef",
    "Graph",
    "Node",
    "NodeSpec",
    "OpaqueType",
    "Shape",
    "TensorRef",
    "Variable",
    "free_name",
    "functions_in",
    "node_from_spec",
]
