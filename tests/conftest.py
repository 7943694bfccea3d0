"""What all tests share."""

import gc

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _forget_compilations():
    """Thousands of cases compile thousands of programs; without this a worker grows by gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()
