"""The garbage collector resumes after pauses that end in any order."""

import gc

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite.support.gc_pause import paused


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


@pytest.mark.full
def test_a_call_is_traced_without_collections_and_run_with_them():
    seen = []

    def probe(x):
        seen.append(gc.isenabled())
        return x

    x = np.ones(2, np.float32)
    with tf2jax_lite.override_op("Sin", probe):
        jax_fn, params = tf2jax_lite.convert(tf.function(tf.sin), x)
    before = gc.isenabled()
    gc.enable()
    try:
        jax.jit(jax_fn)(params, x)
        jax_fn(params, x)
        assert seen == [False, True]
        assert gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
