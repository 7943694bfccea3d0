"""The demo set's bits repeat; other ways agree; float64 finds no fault."""

import pytest

from tests.models.demo_set import DEMO_SET
from tools.reliability.numbers import measure

TOLERANCE = 1e-5
FAST = ["digits_cnn", "frozen", "jax2tf"]


def check(names):
    for name, found in measure(names).items():
        assert found["same"], f"{name}: runs differ in bits"
        assert found["params"], f"{name}: params differ between processes"
        for how in ("tensorflow", "eager", "vmap"):
            assert found[how] <= TOLERANCE, (name, how, found[how])
        assert not found["wrong"] or "compiled module" in found["wrong"], (name, found)


@pytest.mark.full
def test_a_small_model():
    check(["frozen"])


@pytest.mark.full
def test_small_models():
    check(FAST)


@pytest.mark.full
def test_the_whole_demo_set():
    check([name for name in DEMO_SET if name not in FAST])
