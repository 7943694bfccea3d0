"""The README's Python code runs, block after block, in one namespace."""

import re
from pathlib import Path

from tf2jax_lite.ops import registry

README = Path(__file__).parent.parent / "README.md"


def test_readme_code_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    namespace = {}
    try:
        for block in blocks:
            exec(compile(block, str(README), "exec"), namespace)
    finally:
        registry._registry.pop("MyOp", None)
