"""States of any structure, dtype and shape are restored bit for bit."""

import tempfile
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tf2jax_lite.learning.checkpoints import CheckpointFile


class Pair(NamedTuple):
    """A node of a state that is neither a dict nor a list."""

    first: Any
    second: Any


DTYPES = [np.dtype(d) for d in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.bool_)]
ARRAYS = st.builds(
    lambda dtype, values: values.astype(dtype),
    st.sampled_from(DTYPES),
    hnp.arrays(np.int8, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
)
NAMES = st.text("ab/.~0 \u00e4", min_size=1, max_size=4)
KEYS = st.integers(0, 9).map(lambda seed: jax.random.key(seed))


def is_key(leaf):
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def data(leaf):
    """Return an array's bytes."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf).tobytes()


TREES = st.recursive(
    ARRAYS | KEYS,
    lambda inner: (
        st.dictionaries(NAMES, inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
    ),
    max_leaves=6,
)


@pytest.mark.full
@given(state=TREES, number=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
def test_drawn_states_are_restored_bit_for_bit(state, number):
    fresh = jax.tree.map(lambda x: jax.random.key(10) if is_key(x) else np.ones_like(x), state)
    with tempfile.TemporaryDirectory() as folder:
        CheckpointFile(folder).save(number, state, {"loss": 0.5})
        found = CheckpointFile(folder).restore(fresh)
    assert (found.number, found.record) == (number, {"loss": 0.5})
    assert jax.tree.structure(found.state) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(found.state), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and data(a) == data(b)
