"""Test files that a change touches."""

import pytest

from tools.affected_tests import affected


@pytest.mark.full
@pytest.mark.parametrize(
    ("changed", "first", "others"),
    [
        (["ops/nn/normalization.py"], "tests/ops/nn/test_normalization.py", []),
        (["tf2jax_lite/calling/params.py"], "tests/calling/test_params.py", []),
        (["tests/ops/arrays/test_pad.py"], "tests/ops/arrays/test_pad.py", []),
        (["tests/ops/batches.py"], None, ["tests/ops/arrays/test_pad.py", "tests/ops/nn/test_normalization.py"]),
        (["tf2jax_lite/federated/aggregators/base.py"], None, []),
    ],
)
def test_affected_puts_mirrors_first_and_finds_importers(changed, first, others):
    found = affected(changed)
    assert first is None or found[0] == first
    assert set(others) <= set(found)


@pytest.mark.full
def test_affected_leaves_out_what_documentation_changes():
    assert affected(["docs/ops.md", "README.md"]) == []
