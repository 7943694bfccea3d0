"""The code in the federated pages runs."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.full
@pytest.mark.parametrize(
    ("page", "library"),
    [
        ("federated-data", "numpy"),
        ("federated-core", "federated_language"),
        ("federated-migration", "numpy"),
        ("flower", "flwr"),
    ],
)
def test_code_of_a_page(page, library):
    pytest.importorskip(library)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}.md, block {number}", "exec"), namespace)
