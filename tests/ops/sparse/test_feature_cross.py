"""Feature crosses: dense columns may be traced, others are static."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests.ops.batches import check, tiered
from tests.ops.harness import case
from tf2jax_lite.errors import Tf2JaxError

INT64, STRING = tf.int64, tf.string
A, B = np.array([[1, -2], [3, 4], [2**40, 0]]), np.array([[7], [8], [9]])
WORDS = np.array([[b"a", b"bcd"], [b"", b"x" * 40], [b"e", b"f"]], object)
INDICES = np.array([[0, 0], [2, 0], [2, 1], [2, 2]])
SHAPE = np.array([3, 3])
SALT = np.array([3, -4])
NAMES = np.array([b"u", b"v", b"w", b"u"], object)


def cross_case(sparse, dense, *, buckets=0, hashed=True, key=956888297470, **using):
    """Return a case of SparseCross: sparse columns are (indices, values, shape)."""
    columns = [list(column) for column in zip(*sparse, strict=True)] if sparse else [[], [], []]
    kind = INT64 if hashed else STRING
    attrs = {"hashed_output": hashed, "num_buckets": buckets, "hash_key": key, "out_type": kind, "internal_type": kind}
    return case("SparseCross", *columns, dense, **attrs).using(**using)


CASES = [
    cross_case([], [A, B], buckets=12, name="dense"),
    cross_case([], [A, B], name="dense-no-buckets"),
    cross_case([], [A], buckets=100, key=1, name="one"),
    cross_case([], [A, B, A, A], buckets=2**40 + 1, name="four"),
    cross_case([], [A, WORDS], buckets=1000, name="strings"),
    cross_case(
        [(INDICES, np.array([5, -6, 7, 8]), SHAPE)], [A], buckets=50, baked=("indices", "shapes"), name="sparse"
    ),
    cross_case([(INDICES, NAMES, SHAPE)] * 2, [B], buckets=50, baked=("indices", "shapes"), name="sparse-strings"),
    cross_case(
        [(INDICES, NAMES, SHAPE)],
        [WORDS, WORDS[:, 1:]],  # strings only: TensorFlow has no integers for internal_type string
        hashed=False,
        baked=("indices", "shapes", "dense_inputs"),
        name="text",
        jit=False,
    ),
    cross_case([], [A, B[:2]], buckets=5, error="different numbers of rows", name="rows"),
    *(
        case("SparseCrossHashed", [], [], [], [WORDS, B, A], np.array(n), np.array(False), SALT).using(
            name=f"dense-{n}"
        )
        for n in (0, 77)
    ),
    case("SparseCrossHashed", [], [], [], [WORDS, WORDS], np.array(9), np.array(True), SALT).using(name="strong"),
    case("SparseCrossHashed", [INDICES], [NAMES], [SHAPE], [], np.array(9), np.array(True), SALT).using(
        baked=("indices", "shapes"), name="strong-sparse"
    ),
    case("SparseCrossHashed", [], [], [], [A], np.array(9), np.array(True), SALT).using(error="columns of strings"),
    case("SparseCrossV2", [INDICES], [NAMES], [SHAPE], [A, WORDS], np.array(b"-")).using(
        baked=("indices", "shapes", "dense_inputs"), name="text", jit=False
    ),
]
TESTED_OTHERWISE = {"RaggedCross"}


@pytest.mark.parametrize("case", tiered(CASES))
def test_case(case):
    check(case)


def test_cross_into_strings():
    """The harness does not compare strings."""
    compiled = tf.function(lambda: tf.sparse.to_dense(tf.sparse.cross([tf.constant(WORDS), tf.constant(A)]), b""))
    found = tf2jax.convert_functional(compiled)()
    np.testing.assert_array_equal(found, compiled().numpy())


@pytest.mark.parametrize("hashed", [True, False])
def test_ragged_crosses(hashed):
    ragged = tf.RaggedTensor.from_row_splits(tf.constant([1, 2, 3, 4]), tf.constant([0, 2, 2, 4]))
    sparse = tf.SparseTensor(INDICES, NAMES, SHAPE)
    cross = tf.ragged.cross_hashed if hashed else tf.ragged.cross
    compiled = tf.function(
        lambda: (lambda r: (r.values, r.row_splits))(cross([ragged, tf.constant(A), sparse, ragged]))
    )
    with jax.enable_x64(True):
        for mine, theirs in zip(tf2jax.convert_functional(compiled)(), compiled(), strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.full
def test_traced_indices_raise():
    def cross(indices):
        return tf.sparse.cross_hashed([tf.SparseTensor(indices, tf.constant(NAMES), SHAPE)], 1000).values

    converted = tf2jax.convert_functional(tf.function(cross), tf.TensorSpec([4, 2], tf.int64))
    np.testing.assert_array_equal(converted(INDICES), tf.function(cross)(tf.constant(INDICES)).numpy())
    with pytest.raises(Tf2JaxError, match=r"'SparseCross'.*must be known while tracing"):
        jax.jit(converted)(INDICES)
