"""Fixtures, tiers and settings that all tests share."""

import gc
import os
import time
from collections import defaultdict

import jax
import pytest

# On processors with AVX-512 TensorFlow takes oneDNN's kernels, which round otherwise, give unused results of batch
# normalization other shapes, and zeros in a softmax of NaN. The tests' oracle is the same on every machine.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Tests neither read nor write programs in the user's cache directory.
os.environ["TF2JAX_LITE_CACHE"] = ""


START = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, default=float("inf"), help="skip tests that would start later than this")
    parser.addoption(
        "--reuse-compilations", action="store_true", help="keep compiled programs in pytest's cache between runs"
    )


def pytest_configure(config):
    """Set up JAX's compilation cache.

    Its keys hold the program, the flags and the releases, but not the processor. A run that fills the cache takes a
    quarter longer, so this is an option.
    """
    if config.getoption("--reuse-compilations"):
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("compilations")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep a module's tests in one process by default: shared programs compile once.

    Modules keep their order: xdist's own, by number of tests, leaves the modules with one long test to the end.
    """
    from xdist.scheduler import LoadScopeScheduling

    if config.getoption("dist") != "load":
        return None
    config.option.loadscopereorder = False
    return LoadScopeScheduling(config, log)


def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if time.monotonic() - START > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes of this run are over")


@pytest.fixture(autouse=True, scope="module")
def _forget_compilations():
    """Forget compiled programs: without this a worker grows by gigabytes."""
    # Thousands of cases compile thousands of programs.
    yield
    jax.clear_caches()
    _collect_garbage()


def pytest_collection_finish():
    _collect_garbage()


def _collect_garbage():
    """Collect garbage, and freeze the surviving objects."""
    # They are imported packages and cases. Visiting them took a third of the run's time, and visiting packages that a
    # test imports as long as 1.7 s after each later module (two cores, Python 3.11).
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put cases into the full tier, by ``full_cases`` and ``default_cases``.

    They are the cases that ``full_cases`` names, or that ``default_cases`` does not name.
    """
    functions = defaultdict(list)
    for item in items:
        for marker in item.iter_markers():
            if marker.name in ("default_cases", "full_cases"):
                functions[item.path, getattr(item, "originalname", item.name), marker.name].append((item, marker.args))
    for (path, name, marker), marked in functions.items():
        cases, named = [item for item, _ in marked], set(marked[0][1])
        found = {item.callspec.id for item in cases}
        if len(found) > 1 and named - found:
            raise pytest.UsageError(f"{path}: {name} has no cases {sorted(named - found)}, which {marker} names")
        for item in cases:
            if (item.callspec.id in named) == (marker == "full_cases"):
                item.add_marker(pytest.mark.full)
