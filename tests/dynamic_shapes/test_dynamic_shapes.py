"""Data-dependent dimensions under ``jit`` without a bound equal TensorFlow's.

Values, gradients and batches are compared.
"""

import jax
import jax.export
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.dynamic_shapes.evaluator import rules
from tf2jax_lite.errors import LoweringError, StaticInputError, Tf2JaxError

X = np.array([1.5, -2.0, 3.0, -0.5, 5.0, 0.25], np.float32)
INPUTS = {
    "some": X,
    "all": np.abs(X),
    "one": np.array([-1, -2, -3, 4, -5, -6], np.float32),
    "none": -np.abs(X),
}
ROWS = tf.constant(np.linspace(-1, 2, 18).reshape(6, 3), tf.float32)
LABELS = tf.constant([0, 2, 1, 1, 0, 2])
SEGMENTS = tf.constant([0, 0, 1, 1, 2, 2])


def kept(x, y=None):
    return tf.boolean_mask(x if y is None else y, x > 0)


def guarded_mean(x):
    found = kept(x)
    return tf.cond(tf.size(found) > 0, lambda: tf.reduce_mean(found), lambda: 0.0)


def cross_entropy(x):
    logits = kept(x, ROWS * x[:, None])
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(kept(x, LABELS), logits))


def own_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.square(kept(x)) * tf.exp(kept(x)))
    return tape.gradient(loss, x)


def mean_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_mean(tf.math.log(kept(x, x + 10.0))) * tf.reduce_max(kept(x, ROWS * x[:, None]))
    return tape.gradient(loss, x)


def mapped(x):
    return tf.reduce_sum(tf.map_fn(lambda v: v * v + 1.0, kept(x)))


def looped(x):
    found = kept(x)
    return tf.while_loop(
        lambda i, total: i < tf.size(found), lambda i, total: (i + 1, total + found[i] * float(2)), (0, 0.0)
    )[1]


def recurrent(x):
    rows = kept(x, ROWS * x[:, None])
    return tf.reduce_sum(tf.scan(lambda state, row: tf.tanh(state + row), rows, tf.zeros(3)))


def partitioned(x):
    parts = tf.dynamic_partition(x, tf.cast(x > 0, tf.int32), 2)
    return tf.reduce_sum(tf.square(parts[0])) + 3 * tf.reduce_sum(parts[1])


def stitched(x):
    which = tf.cast(x > 0, tf.int32)
    parts = tf.dynamic_partition(x, which, 2)
    positions = tf.dynamic_partition(tf.range(6), which, 2)
    return tf.dynamic_stitch(positions, [parts[0] * 2, tf.exp(parts[1])]) + x


def one_at_most(x):
    return tf.reduce_sum(tf.image.non_max_suppression(tf.stack([x, x, x + 2, x + 2], 1), x, 3, 0.1))


def covariance(x):
    return tf.exp(-tf.abs(x[:, None] - x[None])) + tf.eye(tf.size(x))


def boxes_of_classes(x):
    def of_class(scores):
        above = tf.where(scores > 0)[:, 0]
        boxes, scores = tf.gather(tf.stack([x, x, x + 2, x + 2], 1), above), tf.gather(scores, above)
        chosen = tf.image.non_max_suppression(boxes, scores, tf.minimum(3, tf.shape(boxes)[0]), 0.1)
        return tf.pad(tf.gather(scores, chosen), [[0, 3 - tf.size(chosen)]])

    return tf.map_fn(of_class, tf.stack([x, -x, x * 0]))


# The results have static sizes.
CASES = {
    "sum": lambda x: tf.reduce_sum(kept(x)),
    "mean": lambda x: tf.reduce_mean(kept(x)),
    "guarded mean": guarded_mean,
    "divided": lambda x: tf.reduce_sum(kept(x)) / tf.cast(tf.maximum(tf.size(kept(x)), 1), tf.float32),
    "no nan": lambda x: tf.math.divide_no_nan(tf.reduce_sum(kept(x)), tf.cast(tf.shape(kept(x))[0], tf.float32)),
    "max": lambda x: tf.reduce_max(kept(x)),
    "min": lambda x: tf.reduce_min(kept(x)),
    "product": lambda x: tf.reduce_prod(kept(x)),
    "deviation": lambda x: tf.math.reduce_std(kept(x)),
    "any": lambda x: tf.reduce_any(kept(x) > 4),
    "all": lambda x: tf.reduce_all(kept(x) > 1),
    "logsumexp": lambda x: tf.reduce_logsumexp(kept(x)),
    "count": lambda x: tf.shape(tf.where(x > 0))[0],
    "rank": lambda x: tf.rank(tf.where(x > 0)),
    "count of two": lambda x: tf.size(tf.where(tf.reshape(x, [2, 3]) > 0)),
    "positions": lambda x: tf.reduce_sum(tf.where(x > 0) * 3 + 1),
    "rows": lambda x: tf.reduce_sum(kept(x, ROWS * x[:, None]), 0),
    "columns": lambda x: tf.reduce_max(tf.reduce_sum(kept(x, ROWS * x[:, None]), 1)),
    "logarithm": lambda x: tf.reduce_sum(tf.math.log(kept(x))),
    "roots": lambda x: tf.reduce_sum(tf.sqrt(kept(x)) + tf.math.rsqrt(kept(x)) + 1 / kept(x) + kept(x) ** 0.3),
    "squared difference": lambda x: tf.reduce_mean(tf.math.squared_difference(kept(x), kept(x, x * x))),
    "two masks": lambda x: tf.reduce_sum(kept(x)) - tf.reduce_mean(tf.boolean_mask(x, x < 1)),
    "mask of a mask": lambda x: tf.reduce_sum(tf.boolean_mask(kept(x), kept(x) > 1)),
    "matrix mask": lambda x: tf.reduce_mean(tf.boolean_mask(tf.reshape(x, [2, 3]), tf.reshape(x, [2, 3]) > 0)),
    "axis": lambda x: tf.reduce_sum(tf.boolean_mask(tf.transpose(ROWS) * x, x > 0, axis=1), 1),
    "cross entropy": cross_entropy,
    "softmax": lambda x: tf.reduce_sum(tf.nn.softmax(kept(x, ROWS * x[:, None]))[:, 0]),
    "softmax over all": lambda x: tf.reduce_max(tf.nn.softmax(kept(x))),
    "dense": lambda x: tf.reduce_sum(tf.nn.relu(kept(x, ROWS * x[:, None]) @ tf.ones((3, 4)) + 0.1), 0),
    "outer": lambda x: tf.transpose(kept(x, ROWS)) @ kept(x, ROWS * x[:, None]),
    "einsum": lambda x: tf.einsum("ni,nj->ij", kept(x, ROWS), kept(x, ROWS * x[:, None])),
    "concatenated": lambda x: tf.reduce_sum(tf.concat([kept(x), x, kept(x)], 0) * 2),
    "concatenated in order": lambda x: tf.reduce_sum(tf.cumsum(tf.concat([kept(x), tf.boolean_mask(x, x < 1)], 0))),
    "stacked": lambda x: tf.reduce_sum(tf.stack([kept(x), kept(x) * 2], 1), 0),
    "flattened": lambda x: tf.reduce_sum(tf.cumsum(tf.reshape(kept(x, ROWS * x[:, None]), [-1]))),
    "transposed and flattened": lambda x: tf.reduce_sum(
        tf.cumsum(tf.reshape(tf.transpose(kept(x, ROWS * x[:, None])), [-1]))
    ),
    "reshaped": lambda x: tf.reduce_sum(tf.reshape(kept(x, ROWS), [tf.shape(kept(x))[0], 1, 3]), [0, 1]),
    "running sum": lambda x: tf.reduce_max(tf.cumsum(kept(x), reverse=True)),
    "sorted": lambda x: tf.reduce_sum(tf.sort(kept(x)) * tf.cast(tf.range(tf.size(kept(x))), tf.float32)),
    "order": lambda x: tf.reduce_sum(tf.argsort(kept(x), direction="DESCENDING")[:1]),
    "reversed": lambda x: tf.reduce_sum(tf.cumsum(tf.reverse(kept(x), [0]))),
    "first ones": lambda x: tf.reduce_sum(kept(x)[:2]),
    "all but the first": lambda x: tf.reduce_sum(kept(x)[1:]),
    "every second": lambda x: tf.reduce_sum(kept(x)[::2]),
    "all but the last": lambda x: tf.reduce_sum(kept(x)[:-1]),
    "last ones": lambda x: tf.reduce_sum(kept(x)[-2:]),
    "padded": lambda x: tf.pad(kept(x), [[0, 6 - tf.size(kept(x))]]),
    "padded in front": lambda x: tf.reduce_sum(tf.cumsum(tf.pad(kept(x), [[1, 2]], constant_values=3.0))),
    "scattered": lambda x: tf.scatter_nd(tf.where(x > 0), kept(x) * 2, [6]),
    "updated": lambda x: tf.tensor_scatter_nd_update(x, tf.where(x > 0), tf.sqrt(kept(x))),
    "gathered": lambda x: tf.reduce_sum(tf.gather(ROWS, tf.where(x > 0)[:, 0]), 0),
    "gathered in turn": lambda x: tf.reduce_sum(tf.gather(kept(x, x * 2), tf.range(tf.size(kept(x))))),
    "gather_nd": lambda x: tf.reduce_sum(tf.gather_nd(tf.reshape(x, [2, 3]), tf.where(tf.reshape(x, [2, 3]) > 0))),
    "one hot": lambda x: tf.reduce_sum(tf.one_hot(kept(x, LABELS), 3), 0),
    "segments": lambda x: tf.math.unsorted_segment_sum(kept(x), kept(x, SEGMENTS), 3),
    "most": lambda x: tf.math.unsorted_segment_max(kept(x), kept(x, SEGMENTS), 3),
    "counts": lambda x: tf.math.bincount(kept(x, LABELS), minlength=3, maxlength=3),
    "distinct": lambda x: tf.size(tf.unique(tf.cast(x, tf.int32))[0]),
    "sum of distinct": lambda x: tf.reduce_sum(tf.unique(tf.cast(x, tf.int32))[0]),
    "most often": lambda x: tf.reduce_max(tf.unique_with_counts(tf.cast(x, tf.int32))[2]),
    "difference": lambda x: tf.reduce_sum(tf.raw_ops.ListDiff(x=tf.cast(x, tf.int32), y=[1, 5])[0]),
    "partitioned": partitioned,
    "stitched": stitched,
    "suppressed": one_at_most,
    "mapped": mapped,
    "recurrent": recurrent,
    "looped": looped,
    "own gradient": own_gradient,
    "mean's gradient": mean_gradient,
    "meshed": lambda x: tf.reduce_sum(kept(x)[:, None] * kept(x)[None, :]),
    "pairs": lambda x: tf.reduce_max(tf.abs(kept(x)[:, None] - tf.boolean_mask(x, x < 2)[None, :])),
    "repeated": lambda x: tf.reduce_sum(tf.tile(kept(x)[None], [3, 1]), 1),
    "spread": lambda x: tf.reduce_sum(tf.broadcast_to(kept(x), [2, tf.size(kept(x))]), 1),
    "zeros": lambda x: tf.reduce_sum(tf.zeros_like(kept(x)) + tf.ones([tf.size(kept(x))])),
    "arg max": lambda x: tf.reduce_sum(tf.argmax(kept(x, ROWS * x[:, None]), 1)),
    "tiled": lambda x: tf.reduce_sum(tf.cumsum(tf.tile(kept(x), [3]))),
    "clipped": lambda x: tf.reduce_sum(tf.clip_by_value(kept(x), 0.5, 2.0)),
    "norm": lambda x: tf.norm(kept(x)),
    "normalized": lambda x: tf.reduce_sum(tf.nn.l2_normalize(kept(x)) * kept(x)),
    "moments": lambda x: tf.nn.moments(kept(x, ROWS * x[:, None]), 0)[1],
    "chosen": lambda x: tf.reduce_sum(tf.where(kept(x) > 2, kept(x), 10.0)),
    "sigmoid": lambda x: tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(kept(x) * 0 + 1, kept(x))),
    "huber": lambda x: tf.keras.losses.Huber()(kept(x), kept(x) * 3),
    "median": lambda x: tf.reduce_sum(tf.sort(kept(x))[: tf.size(kept(x)) // 2 + 1]),
}
TABLE = tf.constant(np.linspace(-2, 2, 24).reshape(8, 3), tf.float32)


def grid(x):
    return tf.reshape(x, [2, 3])


def ragged(x):
    return tf.RaggedTensor.from_tensor(grid(x), lengths=tf.reduce_sum(tf.cast(grid(x) > 0, tf.int32), 1))


def filled_rows(x):
    sparse = tf.sparse.from_dense(tf.cast(tf.maximum(grid(x), 0.0) * 4, tf.int64))
    return tf.sparse.to_dense(tf.sparse.fill_empty_rows(sparse, tf.constant(7, tf.int64))[0], validate_indices=False)


def in_rows(x):
    """Pad two groups to the longer one's rows: a multiple of a dynamic size."""
    group = tf.cast(x > 0, tf.int32)
    counts = tf.math.unsorted_segment_sum(tf.ones_like(group), group, 2)
    number = tf.where(x > 0, tf.cumsum(group), tf.cumsum(1 - group)) - 1
    longest = tf.reduce_max(counts)
    flat = tf.scatter_nd((group * longest + number)[:, None], x, [2 * longest])
    return tf.reduce_logsumexp(tf.reshape(flat, [2, longest]), 1)


CASES |= {
    "laid out in rows": in_rows,
    "ragged sums": lambda x: tf.reduce_sum(ragged(x), 1),
    "ragged maxima": lambda x: tf.reduce_max(ragged(x) * 2, 1),
    "ragged total": lambda x: tf.reduce_sum(tf.square(ragged(x).values)),
    "ragged to dense": lambda x: (ragged(x) * 2).to_tensor(default_value=-1.0, shape=[2, 3]),
    "ragged embedding": lambda x: tf.reduce_sum(tf.gather(TABLE, tf.cast(tf.abs(ragged(x)), tf.int32)), 1),
    "sparse sums": lambda x: tf.sparse.reduce_sum(tf.sparse.from_dense(grid(x)), 1),
    "sparse product": lambda x: tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.nn.relu(grid(x))), TABLE[:3]),
    "sparse softmax": lambda x: tf.sparse.to_dense(tf.sparse.softmax(tf.sparse.from_dense(tf.nn.relu(grid(x))))),
    "sparse, filled": filled_rows,
    "two largest": lambda x: tf.math.top_k(tf.concat([kept(x), [0.5, 0.25]], 0), 2)[0],
    "arg max over all": lambda x: tf.argmax(tf.concat([[0.0], kept(x)], 0)[tf.minimum(tf.size(kept(x)), 1) :]),
    "boxes left over": lambda x: tf.reduce_sum(
        tf.image.non_max_suppression(kept(x, tf.stack([x, x, x + 2, x + 2], 1)), kept(x), 3, 0.1)
    ),
    "boxes of a class": boxes_of_classes,
    "cholesky": lambda x: tf.reduce_sum(tf.linalg.cholesky(covariance(kept(x))) ** 2),
    "log determinant": lambda x: tf.linalg.logdet(covariance(kept(x))),
    "cholesky solve": lambda x: tf.reduce_sum(
        kept(x)[:, None] * tf.linalg.cholesky_solve(tf.linalg.cholesky(covariance(kept(x))), kept(x)[:, None])
    ),
    "transposed triangle": lambda x: tf.reduce_sum(
        tf.linalg.triangular_solve(covariance(kept(x)), kept(x)[:, None], lower=False, adjoint=True) ** 2
    ),
    "searched": lambda x: tf.searchsorted(tf.sort(kept(x)), [0.5, 2.0, 9.0]),
    "inverted": lambda x: tf.reduce_sum(tf.math.invert_permutation(tf.argsort(kept(x)))[:1]),
    "histogram": lambda x: tf.histogram_fixed_width(kept(x), [0.0, 5.0], 4),
    "confusion": lambda x: tf.math.confusion_matrix(kept(x, LABELS), kept(x, SEGMENTS), 3),
    "normalized over a batch": lambda x: tf.reduce_sum(
        tf.abs(tf.nn.batch_normalization(kept(x, ROWS), *tf.nn.moments(kept(x, ROWS * x[:, None]), 0), 0.1, 2.0, 1e-3)),
        0,
    ),
    "convolved": lambda x: tf.reduce_sum(
        tf.nn.conv1d(kept(x, ROWS * x[:, None])[..., None], TABLE[:2, None], 1, "SAME"), [0, 1]
    ),
    "determinant": lambda x: tf.linalg.det(
        tf.linalg.matmul(kept(x, ROWS * x[:, None]), kept(x, ROWS), transpose_a=True) + tf.eye(3)
    ),
    "spectrum": lambda x: tf.reduce_sum(tf.abs(tf.signal.rfft(kept(x, ROWS * x[:, None]))), 0),
    "branch on the size": lambda x: tf.cond(tf.size(kept(x)) > 2, lambda: tf.reduce_sum(kept(x)), lambda: x[0] * 3),
    "branch on elements": lambda x: tf.cond(
        tf.reduce_any(kept(x) > 2), lambda: tf.reduce_sum(tf.boolean_mask(x, x > 1)), lambda: tf.reduce_sum(kept(x))
    ),
    "in a loop": lambda x: tf.while_loop(
        lambda i, total: i < 3, lambda i, total: (i + 1, total + tf.reduce_sum(tf.boolean_mask(x, x > total))), (0, 0.0)
    )[1],
}


def converted(function, x=X):
    return tf2jax.convert_functional(tf.function(function, autograph=False), tf.TensorSpec(x.shape, x.dtype))


def assert_close(actual, expected, message=""):
    assert np.shape(actual) == np.shape(expected), message
    assert np.asarray(actual).dtype == (np.int32 if expected.dtype == np.int64 else expected.dtype), message
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6, err_msg=message)


def square(x):
    return kept(x)[:, None] * kept(x)[None, :]


def pairwise(x):
    """Return a network's result over all pairs."""
    n = tf.size(kept(x))
    found = tf.tanh(tf.reshape(square(x), [-1, 1]) @ tf.ones([1, 3])) @ tf.ones([3, 1])
    return tf.reduce_sum(tf.linalg.diag_part(tf.reshape(found, [n, n])) + tf.reduce_sum(tf.reshape(found, [n, -1]), 1))


CASES |= {
    "pairwise": pairwise,
    "number times shares": lambda x: tf.reduce_sum(tf.square((kept(x) + x[1]) * x[0] / tf.reduce_sum(kept(x)))),
    "diagonal": lambda x: tf.reduce_sum(tf.linalg.diag_part(square(x))),
    "trace": lambda x: tf.linalg.trace(square(x) + 1.0),
    "flat square": lambda x: tf.reduce_sum(tf.cumsum(tf.reshape(square(x), [-1]))),
    "flat pairs": lambda x: tf.reduce_max(tf.reshape(kept(x)[:, None] - tf.boolean_mask(x, x < 2)[None, :], [-1])),
    "mask of a square": lambda x: tf.reduce_sum(tf.boolean_mask(square(x), square(x) > 1.0)),
    "box": lambda x: tf.reduce_sum(tf.slice(x, [0], [tf.size(kept(x))]) * kept(x)),
    "rest": lambda x: tf.reduce_sum(tf.slice(x, [tf.size(kept(x))], [-1]) ** 2),
    "every third": lambda x: tf.reduce_sum(x[: tf.size(kept(x)) % 3]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function = CASES[name]
    graph, own = tf.function(function, autograph=False), jax.jit(converted(function))
    gradient_of = jax.jit(jax.grad(lambda x: own(x).sum()))
    for case, x in INPUTS.items():
        with tf.GradientTape() as tape:
            variable = tf.constant(x)
            tape.watch(variable)
            expected = graph(variable)
        assert_close(own(x), expected.numpy(), case)
        if expected.dtype != tf.float32:
            continue
        try:
            gradient = tape.gradient(expected, variable)
        except tf.errors.InvalidArgumentError:  # TensorFlow's gradient of sorting fails for nothing
            continue
        if gradient is None:
            continue
        assert_close(gradient_of(x), tf.convert_to_tensor(gradient).numpy(), f"gradient of {case}")


@pytest.mark.default_cases("count of two", "reversed", "difference", "partitioned", "looped", "convolved")
@pytest.mark.parametrize("name", CASES)
def test_batches(name):
    function = CASES[name]
    batch = np.stack(list(INPUTS.values()))
    graph = tf.function(function, autograph=False)
    expected = np.stack([graph(x).numpy() for x in batch])
    assert_close(jax.jit(jax.vmap(converted(function)))(batch), expected)


@pytest.mark.full
def test_a_result_of_unbounded_size_is_refused_and_padded():
    def positions(x):
        return tf.where(x > 0)

    with pytest.raises(Tf2JaxError, match=r"'Where'.*dynamic_shape_bound.*Result \[0\] of shape \[\?, 1\]"):
        jax.jit(converted(positions))(X)
    with tf2jax.override_config("dynamic_shape_bound", 5):
        padded = converted(positions)
    np.testing.assert_array_equal(jax.jit(padded)(X)[:, 0], [0, 2, 4, 5, -1])


def test_refusal_of_a_result_names_it_by_its_key():
    with pytest.raises(Tf2JaxError, match=r"Result \['kept'\] of shape \[\?\]"):
        jax.jit(converted(lambda x: {"given": x, "kept": kept(x)}))(X)


def test_refusal_where_a_size_meets_a_fixed_one_names_both_nodes():
    def function(x):
        return tf.linalg.det(kept(x)[:, None] * tf.ones([1, 3]), name="volume")

    with pytest.raises(Tf2JaxError, match=r"'boolean_mask/Where'.*dynamic_shape_bound.*fails at node 'volume'"):
        jax.jit(converted(function))(X)


def test_traced_number_of_segments_names_the_bound_option():
    def function(ids):
        return tf.math.unsorted_segment_sum(X, ids, tf.reduce_max(ids) + 1)

    own = tf2jax.convert_functional(tf.function(function), tf.TensorSpec([6], tf.int32))
    with pytest.raises(StaticInputError, match=r"'num_segments'.*dynamic_shape_bound"):
        jax.jit(own)(np.int32([0, 0, 1, 1, 2, 2]))


@pytest.mark.full
def test_a_bound_does_not_change_what_is_computed():
    with tf2jax.override_config("dynamic_shape_bound", 9):
        mean = converted(CASES["mean"])
    np.testing.assert_allclose(jax.jit(mean)(X), X[X > 0].mean(), rtol=1e-6)


@pytest.mark.full
def test_a_bound_that_is_too_small_leaves_the_first():
    with tf2jax.override_config("dynamic_shape_bound", 2):
        total = converted(CASES["sum"])
    np.testing.assert_allclose(jax.jit(total)(X), X[X > 0][:2].sum(), rtol=1e-6)


def test_what_has_no_rule_names_node_and_primitive():
    def function(x):
        return tf.reduce_sum(tf.linalg.svd(kept(x)[:, None] * kept(x)[None, :], compute_uv=False))

    with pytest.raises(Tf2JaxError, match=r"svd of shapes.*node 'Svd'"):
        jax.jit(converted(function))(X)


@pytest.mark.full
def test_params_and_state():
    weight, calls = tf.Variable(2.0), tf.Variable(0)

    @tf.function
    def function(x):
        calls.assign_add(tf.size(tf.boolean_mask(x, x > 0)))
        return tf.reduce_mean(tf.boolean_mask(x * weight, x > 0))

    own, params = tf2jax.convert(function, X)
    value, after = jax.jit(own)(params, X)
    np.testing.assert_allclose(value, 2 * X[X > 0].mean(), rtol=1e-6)
    assert sorted(map(int, after.values())) == [2, 4]
    gradient = jax.grad(lambda p: jax.jit(own)(p, X)[0], allow_int=True)(params)
    np.testing.assert_allclose(
        sorted(np.asarray(g, float) for g in gradient.values() if g.dtype == np.float32), X[X > 0].mean()
    )


@pytest.mark.full
def test_random_numbers_are_drawn():
    graph = tf.function(
        lambda x: tf.reduce_mean(tf.nn.dropout(tf.boolean_mask(x, x > 0) * 0 + 1, 0.5)), autograph=False
    )
    own = jax.jit(tf2jax.convert_functional(graph, X))
    found = {float(own(X, rng=jax.random.key(i))) for i in range(8)}
    assert found <= {0.0, 0.5, 1.0, 1.5, 2.0}
    assert len(found) > 1


OF_ANY_LENGTH = [
    *(
        "sum",
        "mean",
        "guarded mean",
        "divided",
        "no nan",
        "max",
        "deviation",
        "logsumexp",
        "count",
        "positions",
        "logarithm",
    ),
    *(
        "squared difference",
        "two masks",
        "mask of a mask",
        "softmax over all",
        "concatenated",
        "stacked",
        "running sum",
    ),
    *("concatenated in order", "sorted", "order", "first ones", "all but the first", "last ones", "padded in front"),
    *(
        "gathered in turn",
        "distinct",
        "most often",
        "own gradient",
        "meshed",
        "tiled",
        "norm",
        "mapped",
        "looped",
        "median",
    ),
    *(
        "updated",
        "partitioned",
        "searched",
        "reversed",
        "every second",
        "all but the last",
        "chosen",
        "arg max over all",
    ),
]


@pytest.mark.default_cases("divided")
@pytest.mark.parametrize("name", OF_ANY_LENGTH)
def test_exported_for_any_length(name):
    """Data-dependent and exported symbolic dimensions occur together."""
    graph = tf.function(CASES[name], autograph=False)
    own = tf2jax.convert_functional(graph, tf.TensorSpec([None], tf.float32))
    (spec,) = jax.export.symbolic_args_specs((X,), "b")
    exported = jax.export.export(jax.jit(own))(spec)
    for x in (X, X[:3], -np.abs(X), np.tile(X, 3)):
        assert_close(exported.call(x), graph(x).numpy(), f"{len(x)}")


GRID = np.arange(24, dtype=np.float32).reshape(6, 4) / 8
SLICES = {
    "end": lambda x, n: tf.reduce_sum(x[:n], 0),
    "start": lambda x, n: tf.reduce_sum(x[n:], 0),
    "columns": lambda x, n: tf.reduce_sum(tf.exp(x[:, :n]), 1),
    "both": lambda x, n: tf.reduce_sum(x[1:n, n:]),
    "from the end": lambda x, n: tf.reduce_sum(x[-n:]) + 2 * tf.reduce_sum(x[:-n]),
    "product": lambda x, n: tf.transpose(x[:n]) @ x[:n],
    "put together": lambda x, n: tf.reduce_sum(tf.concat([x[:n] * 2, x[n:]], 0), 0),
    "new axis": lambda x, n: tf.reduce_sum(x[tf.newaxis, :n, 1]),
    "window": lambda x, n: tf.reduce_max(tf.concat([x[n // 2 : n + 1], x[:1]], 0)),
    "in a loop": lambda x, n: tf.while_loop(
        lambda i, total: i < n, lambda i, total: (i + 1, total + tf.reduce_mean(x[: i + 1])), (0, 0.0)
    )[1],
}


@pytest.mark.default_cases("in a loop")
@pytest.mark.parametrize("name", SLICES)
def test_slices_to_where_data_says(name):
    graph = tf.function(SLICES[name], autograph=False)
    own = jax.jit(tf2jax.convert_functional(graph, tf.TensorSpec(GRID.shape), tf.TensorSpec((), tf.int32)))
    for n in (3, 0, 6, 1, 9):
        with tf.GradientTape() as tape:
            x = tf.constant(GRID)
            tape.watch(x)
            expected = graph(x, tf.constant(n))
        assert_close(own(GRID, np.int32(n)), expected.numpy(), f"{n}")
        if name != "in a loop":
            gradient = jax.grad(lambda x: own(x, np.int32(n)).sum())(GRID)  # noqa: B023
            assert_close(gradient, tf.convert_to_tensor(tape.gradient(expected, x)).numpy(), f"gradient of {n}")


BOXES = {
    "size": lambda x, n: tf.reduce_sum(tf.slice(x, [0, 1], [n, 2]) ** 2, 0),
    "begin": lambda x, n: tf.reduce_sum(tf.exp(tf.slice(x, [n, 0], [-1, 3])), 0),
    "both": lambda x, n: tf.reduce_sum(tf.slice(x, [n // 2, 0], [n // 3, -1]) * 2),
    "all of it": lambda x, n: tf.reduce_sum(tf.slice(x, [n // 3, 1], tf.stack([tf.where(n > 2, -1, 1), 2])), 0),
    "beside a slice": lambda x, n: tf.reduce_sum(tf.slice(x, [0, 0], [n, 4]) * x[:n]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", BOXES)
def test_boxes_of_a_size_that_data_says(name):
    graph = tf.function(BOXES[name], autograph=False)
    own = jax.jit(tf2jax.convert_functional(graph, tf.TensorSpec(GRID.shape), tf.TensorSpec((), tf.int32)))
    for n in (3, 0, 6, 1):
        with tf.GradientTape() as tape:
            x = tf.constant(GRID)
            tape.watch(x)
            expected = graph(x, tf.constant(n))
        assert_close(own(GRID, np.int32(n)), expected.numpy(), f"{n}")
        gradient = jax.grad(lambda x: own(x, np.int32(n)).sum())(GRID)  # noqa: B023
        assert_close(gradient, tf.convert_to_tensor(tape.gradient(expected, x)).numpy(), f"gradient of {n}")


LENGTHS = np.array([2, 0, 3], np.int32)
BOUNDED = {
    "range": (lambda n: tf.reduce_sum(tf.range(n) * 3), np.int32(4)),
    "range of steps": (lambda n: tf.reduce_sum(tf.range(2, n * 2, 3)), np.int32(4)),
    "sequence mask": (lambda n: tf.reduce_mean(tf.cast(tf.sequence_mask(n), tf.float32)), LENGTHS),
    "ones": (lambda n: tf.reduce_sum(tf.ones([n, 3]), 0), np.int32(4)),
    "tile": (lambda n: tf.reduce_sum(tf.tile(X, [n])), np.int32(2)),
    "reshape": (lambda n: tf.reduce_sum(tf.reshape(tf.tile(X, [n]), [n, 6]), 0), np.int32(2)),
    "one hot": (lambda n: tf.reduce_sum(tf.one_hot(n, tf.reduce_max(n) + 1), 1), LENGTHS),
    "repeat": (lambda n: tf.reduce_sum(tf.repeat([5, 6, 7], n)), LENGTHS),
    "bins": (lambda n: tf.reduce_max(tf.math.bincount(n)), LENGTHS),
    "eye": (lambda n: tf.reduce_sum(tf.eye(n)), np.int32(5)),
    "random": (lambda n: tf.reduce_sum(tf.random.stateless_normal([n], [1, 2])), np.int32(5)),
    "mapped": (lambda n: tf.reduce_sum(tf.map_fn(lambda i: i * i, tf.range(n))), np.int32(5)),
    "pairs": (lambda n: tf.reduce_sum(tf.range(n)[:, None] * tf.range(n)[None]), np.int32(5)),
}


IDS = np.int32([0, 0, 2, 1, 2, 2])
SEGMENT_COUNTS = {
    "largest id": lambda x, ids: tf.reduce_sum(tf.math.unsorted_segment_sum(x, ids, tf.reduce_max(ids) + 1) ** 2),
    "gathered": lambda x, ids: tf.gather(tf.math.unsorted_segment_max(x, ids, tf.reduce_max(ids) + 1), ids),
    "softmax": lambda x, ids: x / tf.gather(tf.math.unsorted_segment_sum(x, ids, tf.reduce_max(ids) + 1), ids),
    "last id": lambda x, ids: tf.reduce_max(tf.math.unsorted_segment_prod(x, tf.sort(ids), tf.sort(ids)[-1] + 1)),
    "of another size": lambda x, ids: tf.reduce_sum(
        tf.math.unsorted_segment_sum(x, ids, tf.reduce_max(ids) + 1) * tf.ones([tf.reduce_max(ids) + 1])
    ),
    "sparse": lambda x, ids: tf.reduce_sum(
        tf.sparse.segment_mean(x, ids, tf.sort(ids), num_segments=tf.reduce_max(ids) + 1) ** 2
    ),
}


@pytest.mark.default_cases("gathered", "sparse")
@pytest.mark.parametrize("name", SEGMENT_COUNTS)
def test_segments_are_at_most_as_many_as_ids(name):
    graph = tf.function(SEGMENT_COUNTS[name], autograph=False)
    own = jax.jit(tf2jax.convert_functional(graph, tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)))
    assert_close(own(X, IDS), graph(tf.constant(X), tf.constant(IDS)).numpy())
    assert_close(own(X[:1], IDS[:1]), graph(tf.constant(X[:1]), tf.constant(IDS[:1])).numpy())
    if name != "sparse":
        assert np.isnan(own(X, IDS * 4)).all()  # 9 segments of 6 ids: most of them are empty


@pytest.mark.default_cases("reshape", "bins")
@pytest.mark.parametrize("name", BOUNDED)
def test_sizes_with_a_bound(name):
    function, value = BOUNDED[name]
    graph = tf.function(function, autograph=False)
    spec = tf.TensorSpec(value.shape, tf.int32)
    with tf2jax.override_config("dynamic_shape_bound", 12):
        own = jax.jit(tf2jax.convert_functional(graph, spec))
    assert_close(own(value), graph(tf.constant(value)).numpy())
    with pytest.raises(Tf2JaxError, match="dynamic_shape_bound"):
        jax.jit(tf2jax.convert_functional(graph, spec))(value)


@jax.custom_vjp
def _backwards(x):
    return jax.numpy.sin(x) / x.shape[0]


_backwards.defvjp(
    lambda x: (_backwards(x), (x, x.shape[0])), lambda saved, bar: (bar * jax.numpy.cos(saved[0]) * 10 / saved[1],)
)


@jax.custom_jvp
def _forwards(x):
    return jax.numpy.sin(x) / x.shape[0]


_forwards.defjvp(
    lambda primals, tangents: (_forwards(*primals), tangents[0] * jax.numpy.cos(primals[0]) * 10 / primals[0].shape[0])
)


@pytest.mark.default_cases("vjp")
@pytest.mark.parametrize("function", [_backwards, _forwards], ids=["vjp", "jvp"])
def test_derivatives_of_their_own(function):
    """Custom gradients see the data-dependent dimension: ten times the cosine."""
    with tf2jax.override_op("Softsign", lambda features: function(features)):
        own = converted(lambda x: tf.reduce_sum(tf.nn.softsign(kept(x))))
    there = X > 0
    np.testing.assert_allclose(jax.jit(own)(X), np.sin(X[there]).sum() / there.sum(), rtol=1e-5)
    expected = np.where(there, np.cos(X) * 10 / there.sum(), 0)
    np.testing.assert_allclose(jax.jit(jax.grad(own))(X), expected, rtol=1e-5)
    batch = jax.vmap(jax.grad(own))(np.stack([X, np.abs(X)]))
    np.testing.assert_allclose(batch, [expected, np.cos(np.abs(X)) * 10 / 6], rtol=1e-5)


@tf.custom_gradient
def _custom(x):
    """Return the mean square with a custom gradient of the dynamic dimension."""
    # It differs from that of the mean.
    size = tf.cast(tf.size(x), tf.float32)
    return tf.reduce_sum(x * x) / size, lambda dy: dy * 5.0 * tf.cumsum(x) / size


def test_custom_gradients():
    graph = tf.function(lambda x: tf.sin(_custom(tf.exp(kept(x) * 0.1))))
    own = converted(lambda x: tf.sin(_custom(tf.exp(kept(x) * 0.1))))
    x, along = tf.constant(X), np.linspace(-1, 2, 6, dtype=np.float32)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = graph(x)
        first = tf.convert_to_tensor(inner.gradient(value, x))
        total = tf.reduce_sum(first * along)
    second = tf.convert_to_tensor(outer.gradient(total, x))
    np.testing.assert_allclose(jax.jit(own)(X), value, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(own))(X), first, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda x: jax.jvp(own, (x,), (along,)))(X)[1], total, rtol=1e-5)
    forwards = jax.jit(jax.grad(lambda x: jax.jvp(own, (x,), (along,))[1]))
    np.testing.assert_allclose(forwards(X), second, rtol=1e-4)
    batch = jax.vmap(lambda x: jax.jvp(own, (x,), (along,))[1])(np.stack([X, np.abs(X)]))
    np.testing.assert_allclose(batch[0], total, rtol=1e-5)


@pytest.mark.full
def test_second_derivatives():
    own = converted(lambda x: tf.reduce_mean(tf.math.log(kept(x)) ** 2))
    graph = tf.function(lambda x: tf.reduce_mean(tf.math.log(kept(x)) ** 2))
    with tf.GradientTape() as outer:
        x = tf.constant(X)
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            value = graph(x)
        first = tf.convert_to_tensor(inner.gradient(value, x))
    expected = outer.jacobian(first, x).numpy()
    np.testing.assert_allclose(jax.jit(jax.hessian(own))(X), expected, rtol=1e-4, atol=1e-5)


def test_what_jax_says_of_a_rule_is_said_of_its_equation(monkeypatch):
    """With a bound, too: results of padded arrays would be wrong."""

    def failing(ev, eqn, args):
        raise ValueError("shapes do not fit")

    monkeypatch.setitem(rules, "reduce_sum", failing)
    with pytest.raises(LoweringError, match=r"'boolean_mask/Where'.*reduce_sum.*shapes do not fit") as refused:
        jax.jit(converted(CASES["sum"]))(X)
    assert refused.value.op == "Where"
    with tf2jax.override_config("dynamic_shape_bound", 9):
        padded = converted(CASES["sum"])
    with pytest.raises(LoweringError, match=r"reduce_sum.*shapes do not fit.*without jax.jit") as refused:
        jax.jit(padded)(X)
    assert "override_config" not in str(refused.value)


def test_a_bound_does_not_change_loops_outside_jit():
    """Values inside of a loop are traced, and their sizes are not padded, either."""

    def body(i, total):
        kept = tf.boolean_mask(X, tf.cast(i, tf.float32) - 1 < X)
        return i + 1, total + tf.reduce_mean(tf.cos(kept))

    graph = tf.function(lambda: tf.while_loop(lambda i, total: total < 1, body, (0, 0.0))[1])
    with tf2jax.override_config("dynamic_shape_bound", 9):
        own = tf2jax.convert_functional(graph)
    np.testing.assert_allclose(own(), graph().numpy(), rtol=1e-6)
