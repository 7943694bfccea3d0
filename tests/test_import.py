"""Imports are fast: ``--help`` must not load a framework."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["tf2jax_lite", "tf2jax_lite.cli.app"])
def test_importing_loads_no_framework(module):
    code = f"import sys, {module}; print([m for m in ('numpy', 'jax', 'tensorflow', 'optax') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.full
def test_every_public_name_resolves():
    import tf2jax_lite

    for name in tf2jax_lite.__all__:
        assert getattr(tf2jax_lite, name) is not None, name
    assert set(tf2jax_lite.__all__) <= set(dir(tf2jax_lite))
