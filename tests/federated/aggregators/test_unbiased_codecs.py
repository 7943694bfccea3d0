"""Codecs that state they are unbiased have the vector as their mean."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tf2jax_lite.federated import aggregators as agg

SIZE, DRAWS = 16, 4096
NUMBERS = st.floats(-8, 8, width=32).map(lambda x: x if abs(x) > 1e-3 else 0.0)
VECTORS = hnp.arrays(np.float32, SIZE, elements=NUMBERS).filter(lambda x: x.any())


@functools.cache
def decoded(codec):
    """Return a function from a vector to `DRAWS` decoded ones, by key."""

    def one(x, key):
        keys = key, jax.random.fold_in(key, 1)
        return codec.decode(codec.encode(x, *keys), SIZE, *keys)

    keys = jax.random.split(jax.random.key(5), DRAWS)
    return jax.jit(lambda x: jax.vmap(one, (None, 0))(x, keys))


def check_unbiased(codec, x):
    """Fail unless means are within five standard errors, or 0.4 % of the maximum.

    A number near a level is hardly ever rounded to the other one, so that the standard error is measured as 0.
    """
    found = np.asarray(decoded(codec)(jnp.asarray(x)), np.float64)
    error = np.abs(found.mean(0) - x)
    assert (error <= 5 * found.std(0) / DRAWS**0.5 + 4e-3 * np.abs(x).max()).all()


@pytest.mark.full
@pytest.mark.parametrize(
    "codec", [agg.UniformQuantizer(4), agg.RotatedUniformQuantizer(4), agg.TernGrad(), agg.EliasGamma()], ids=repr
)
@given(x=VECTORS)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def test_mean_of_decoded_vectors_is_the_vector(codec, x):
    check_unbiased(codec, x)


class _Nearest(agg.UniformQuantizer):
    """Rounds to the nearest level."""

    def encode(self, x, key, shared_key):
        low, step = x.min(), (x.max() - x.min()) / (self.num_levels - 1)
        level = jnp.round((x - low) / step)
        return super().encode(low + level * step, key, shared_key)


X = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("codec", [_Nearest(4), agg.TernGrad(1.0), agg.TopK(0.5)], ids=repr)
def test_codecs_that_clip_or_round_to_nearest_are_biased(codec):
    with pytest.raises(AssertionError):
        check_unbiased(codec, X)
