"""Artifacts of drawn argument and result structures give equal results."""

import tempfile

import jax
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import tf2jax_lite as tf2jax

LEAVES = st.sampled_from([(), (2,), (0, 3), (2, 1)])
NAMES = st.sampled_from(["a", "b", "A", "class", "x/y", "\u00e4", "0", "a:0"])
TREES = st.recursive(
    LEAVES.map(lambda shape: np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)),
    lambda inner: (
        st.dictionaries(NAMES, inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=4,
)


def check(tree, names, seed):
    """Export and load a function of a tree that permutes the tree's leaves."""
    variables = [tf.Variable(np.float32(i + 2), name=name) for i, name in enumerate(names)]

    @tf.function(autograph=False)
    def fn(tree):
        total = tf.add_n(variables)
        leaves = [leaf * total for leaf in tf.nest.flatten(tree)]
        order = np.random.default_rng(seed).permutation(len(leaves))
        return {"tree": tf.nest.map_structure(lambda x: x - variables[0], tree), "mixed": [leaves[i] for i in order]}

    jax_fn, params = tf2jax.convert(fn, tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape), tree))
    expected, _ = jax_fn(params, tree)
    with tempfile.TemporaryDirectory() as folder:
        tf2jax.export_functions({"f": (jax_fn, params)}, f"{folder}/out", platforms=["cpu"])
        for backend in ("stablehlo", "source"):
            loaded, stored = tf2jax.load(f"{folder}/out", backend=backend)
            assert {n: float(v) for n, v in stored.items()} == {n: float(v) for n, v in params.items()}
            found, _ = loaded(stored, tree)
            assert jax.tree.structure(found) == jax.tree.structure(expected)
            jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.full
@given(tree=TREES, names=st.lists(NAMES, min_size=1, max_size=3, unique=True), seed=st.integers(0, 5))
@settings(max_examples=4, deadline=None, derandomize=True, database=None)
def test_loaded_functions_keep_structures_and_values(tree, names, seed):
    check(tree, names, seed)


@pytest.mark.full
@given(tree=TREES, names=st.lists(NAMES, min_size=1, max_size=3, unique=True), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_loaded_functions_keep_many_structures(tree, names, seed):
    check(tree, names, seed)
