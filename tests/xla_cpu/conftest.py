"""Every rule is tested with any JAX, also where newer XLA needs it no more."""

import pytest

from tf2jax_lite.xla_cpu import selection


@pytest.fixture(autouse=True)
def _every_rule_is_needed(monkeypatch):
    monkeypatch.setattr(selection, "_JAX", (0, 9))
