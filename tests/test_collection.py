"""Python's garbage collector comes back, whoever held it and in whatever order they end."""

import gc

import pytest

from tf2jax_lite.collection import paused


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_as_before_when_the_last_holder_is_done(enabled):
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        first, second = paused(), paused()
        first.__enter__()
        second.__enter__()
        assert not gc.isenabled()
        first.__exit__(None, None, None)
        assert not gc.isenabled()
        second.__exit__(None, None, None)
        assert gc.isenabled() is enabled
        with pytest.raises(ValueError, match="inside"), paused():
            raise ValueError("inside")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
