"""What all tests share."""

import gc
import os

import jax
import pytest

from tests.slow import slow_tests

# On processors with AVX-512 TensorFlow takes oneDNN's kernels, which round otherwise, give unused results of batch
# normalization other shapes, and zeros in a softmax of NaN. The tests' oracle is the same on every machine.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@pytest.fixture(autouse=True, scope="module")
def _forget_compilations():
    """Thousands of cases compile thousands of programs; without this a worker grows by gigabytes."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks what was measured to take long."""
    listed = slow_tests()
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
