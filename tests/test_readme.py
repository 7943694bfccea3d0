"""Python code of README runs in one namespace, a page's blocks alone."""

import re
from pathlib import Path

import pytest

from tf2jax_lite.ops import registry

ROOT = Path(__file__).parent.parent


def blocks(page):
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found
    return [compile(block, f"{page}, block {number}", "exec") for number, block in enumerate(found)]


@pytest.fixture(autouse=True)
def _without_new_ops():
    yield
    for name in [name for name in registry._registry if name.startswith("My")]:
        del registry._registry[name]


def test_readme_code_runs():
    namespace = {}
    found = blocks("README.md")
    assert len(found) >= 4
    for block in found:
        exec(block, namespace)


@pytest.mark.default_cases("adding-an-op", "control-flow")
@pytest.mark.parametrize("page", ["adding-an-op", "control-flow", "stablehlo"])
def test_each_block_of_a_page_runs(page):
    for block in blocks(f"docs/{page}.md"):
        exec(block, {"__name__": "tests.ops.test_family", "__package__": "tests.ops"})  # where tests of ops stand
