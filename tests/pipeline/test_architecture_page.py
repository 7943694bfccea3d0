"""docs/architecture.md shows the real output of each step for one node."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.pipeline.convert import graph_of

PAGE = Path(__file__).parent.parent.parent / "docs/architecture.md"


@pytest.mark.full
def test_steps_of_one_node_are_those_of_the_page():
    text = PAGE.read_text()
    code = text.split("```python\n")[1].split("```")[0]
    scope = {"tf": tf, "tf2jax_lite": tf2jax_lite}
    exec(code, scope)
    jax_fn, params = scope["jax_fn"], scope["params"]
    graph = graph_of(jax_fn)
    (node,) = [n for n in graph.main.nodes if n.op == "Conv2D"]
    (step,) = [s for s in jax_fn.converted.program.plan(graph.main).steps if s.node is node]
    blocks = re.findall(r"^   ```\n(.*?)^   ```", text, re.MULTILINE | re.DOTALL)
    imported, planned, traced = (" ".join(block.split()) for block in blocks)
    assert imported == str(node)
    assert planned == (
        f"Step(op={step.op.name}, inputs={step.inputs}, outputs={step.outputs}, release={step.release}, "
        f"kwargs={ {name: step.kwargs[name] for name in sorted(step.kwargs)} })"
    )
    assert traced in str(jax.make_jaxpr(jax_fn)(params, np.ones((4, 8, 8, 1), np.float32)))
