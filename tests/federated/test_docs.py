"""The code of docs/flower.md runs, where `.ci/flower` installs the library.

tests/docs runs that of the other pages.
"""

import pytest

from tests.docs.blocks import DOCS, blocks


@pytest.mark.full
def test_code_of_the_page_of_flower():
    """Flower's tests train with the quickstart's apps."""
    pytest.importorskip("flwr")
    pytest.importorskip("flax")
    namespace = {}
    found = blocks(DOCS / "flower.md")
    assert found
    for block in found:
        exec(compile(block.code, f"flower.md, line {block.line}", "exec"), namespace)
