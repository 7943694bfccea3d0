"""Rules are tested with all versions of JAX, also with those that do not need them."""

import pytest

from tf2jax_lite.xla_cpu import selection


@pytest.fixture(autouse=True)
def _every_rule_is_needed(monkeypatch):
    monkeypatch.setattr(selection, "_JAX", (0, 9))
