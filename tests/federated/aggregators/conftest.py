"""These programs run once or twice each, and compilation dominates their time."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def quick_compilation():
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
