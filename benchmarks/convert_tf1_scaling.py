"""Measure how the time to functionalize a TF1 graph grows with its nodes.

Usage: ``python benchmarks/convert_tf1_scaling.py``.

The graph is a chain of TF1 blocks (nested branches on a few shared predicates, a while loop with a branch in it, and
in-graph gradients if asked for), built once for each size. Timed is the part from the GraphDef to the ir without
control flow v1: reading protos, and the passes. ``ratio`` is the time per node over that of the smallest graph: 1
everywhere is linear. Times are processor time, the best of ``--repeats``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parent.parent))

import tensorflow as tf
from tensorflow.python.ops import control_flow_v2_toggles

from tf2jax_lite import ir
from tf2jax_lite.frontend.graphdef import functions
from tf2jax_lite.passes.canonicalize import stacks_to_lists
from tf2jax_lite.passes.control_flow_v1 import functionalize
from tf2jax_lite.support.config import Config

tf1 = tf.compat.v1


def build(nodes: int, gradients: bool) -> Any:
    """Return a GraphDef of about ``nodes`` nodes from ``x``, ``p``, ``q`` to ``y``."""
    control_flow_v2_toggles.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [], "x")
        p, q = (tf1.placeholder(tf.bool, [], name) for name in "pq")
        y = x
        while len(graph.get_operations()) < nodes / (2.5 if gradients else 1):
            y = tf1.cond(p, lambda y=y: tf1.cond(q, lambda: tf.sin(y) * x, lambda: y + 1.0), lambda y=y: tf.tanh(y))

            def body(i, a):
                return i + 1, tf1.cond(i < 1, lambda: tf.sin(a) * x, lambda: a * 0.5)

            y = tf1.while_loop(lambda i, a: i < 2, body, [0, y])[1]
        outputs = [y, *(tf1.gradients(y, [x]) if gradients else [])]
        for index, tensor in enumerate(outputs):
            tf.identity(tensor, f"result_{index}")
        return graph.as_graph_def(), [f"result_{index}" for index in range(len(outputs))]


def measure(proto: Any, outputs: list[str], repeats: int) -> dict[str, float]:
    """Return the least processor seconds of each step."""
    best: dict[str, float] = {}
    args = [ir.Argument(node.name, ir.VARIANT) for node in proto.node if node.op == "Placeholder"]
    for _ in range(repeats):
        begin = time.process_time()
        main = functions.load_main(proto, "graph", args, outputs)
        read = time.process_time()
        graph = functionalize.run(ir.Graph(main, {}), Config())
        functionalized = time.process_time()
        graph = stacks_to_lists.run(graph, Config())
        done = time.process_time()
        assert not any(node.op in functionalize.OPS for _, node in graph.walk())
        steps = {"read": read - begin, "functionalize": functionalized - read, "stacks": done - functionalized}
        best = {name: min(value, best.get(name, value)) for name, value in steps.items()}
    return best


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[5_000, 10_000, 20_000, 50_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gradients", action="store_true", help="add in-graph gradients, which need stacks")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        proto, outputs = build(size, options.gradients)
        seconds = measure(proto, outputs, options.repeats)
        count = len(proto.node)
        per_node = {name: value / count * 1e6 for name, value in seconds.items()}
        passes = per_node["functionalize"] + per_node["stacks"]
        rows.append({"nodes": count, "microseconds_per_node": per_node, "passes_per_node": passes})
    for row in rows:
        row["ratio"] = row["passes_per_node"] / rows[0]["passes_per_node"]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'nodes':>8} {'read':>10} {'functionalize':>14} {'stacks':>8}  µs/node   ratio")
    for row in rows:
        steps = row["microseconds_per_node"]
        print(
            f"{row['nodes']:>8} {steps['read']:>10.1f} {steps['functionalize']:>14.1f} {steps['stacks']:>8.1f}"
            f"{'':>10} {row['ratio']:>6.2f}"
        )


if __name__ == "__main__":
    main()
