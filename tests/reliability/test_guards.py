"""The guards and tests that `guards` lists are there; ``python -m tools.reliability.guards`` takes them away."""

import pytest

from tools.reliability.guards import GUARDS, ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.against)
def test_a_guard_and_its_test_are_there(guard):
    assert (ROOT / guard.file).read_text().count(guard.there) == 1
    file, name = guard.test.split("::")
    assert f"def {name}(" in (ROOT / file).read_text()
