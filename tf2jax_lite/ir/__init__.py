"""The intermediate representation, and what can be done to it without knowing any op.

`graph` first: `Graph`, `Function`, `Node`, `TensorRef`; this package has their names. `op_kinds` lists the ops that
call functions, `verify` checks recursion and depth, `liveness` finds the nodes that outputs and effects need. Knows
neither TensorFlow nor JAX: imports `support` only.
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
    OpaqueType,
    Shape,
    Shared,
    TensorRef,
    Variable,
    free_name,
    functions_in,
    node_like,
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
    "OpaqueType",
    "Shape",
    "Shared",
    "TensorRef",
    "Variable",
    "free_name",
    "functions_in",
    "node_like",
]
