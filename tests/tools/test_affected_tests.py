"""Test files that a change touches."""

import pytest

from tools.affected_tests import affected


@pytest.mark.full
@pytest.mark.parametrize(
    ("changed", "first", "others"),
    [
        (["ops/norm.py"], "tests/ops/test_norm.py", []),
        (["tf2jax_lite/params.py"], "tests/test_params.py", []),
        (["tests/ops/test_pad.py"], "tests/ops/test_pad.py", []),
        (["tests/ops/batches.py"], None, ["tests/ops/test_pad.py", "tests/ops/test_norm.py"]),
        (["tf2jax_lite/federated/aggregators/mean.py"], None, []),
    ],
)
def test_affected_puts_mirrors_first_and_finds_importers(changed, first, others):
    found = affected(changed)
    assert first is None or found[0] == first
    assert set(others) <= set(found)


@pytest.mark.full
def test_affected_leaves_out_what_documentation_changes():
    assert affected(["docs/ops.md", "README.md"]) == []
