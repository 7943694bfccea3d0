"""Artifacts of functions with unknown sizes: which of them are one."""

import re

import jax
import jax.export
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import InputError, LoweringError
from tf2jax_lite.export import artifact, symbolic_dims

TABLE = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def lookup(ids, rows, is_empty):
    """Return a model's core with an embedding column, after its host part.

    The arguments are sparse ids and the empty rows.
    """
    found = tf.math.segment_sum(tf.gather(TABLE, ids), rows)
    return tf.where(is_empty[:, None], tf.zeros_like(found), found)


LOOKUP = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.bool)]
BATCH = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])]
# Function, types of arguments, and numbers of rows that the arguments can have.
CASES = {
    "pairs": (lookup, LOOKUP, [(5, 5, 3), (2, 2, 2)]),
    "a batch": (lambda x, y: tf.concat([x, y], 1), BATCH, [(4, 4), (1, 1)]),
    "nothing": (lambda x, y: (x * 2, y + 1), BATCH, [(4, 2), (1, 3)]),
}


def argument(spec, size):
    if spec.dtype == tf.bool:
        return np.arange(size) == 1
    if spec.dtype == tf.int32:
        return np.sort(np.arange(size, dtype=np.int32) % 3 % size)
    return np.arange(size * spec.shape[1], dtype=np.float32).reshape(size, -1)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_sizes_are_one_only_where_they_have_to_be(name, backend, tmp_path):
    function, specs, sizes = CASES[name]
    graph = tf.function(function, input_signature=specs)
    tf2jax.export_functions({"f": tf2jax.convert(graph, *specs)}, tmp_path / "out")
    own, params = tf2jax.load(tmp_path / "out", backend=backend)
    for call in sizes:
        args = [argument(spec, size) for spec, size in zip(specs, call, strict=True)]
        expected = tf.nest.flatten(graph(*args))
        found = own(params, *args)[0]
        for e, a in zip(expected, found if isinstance(found, tuple) else [found], strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-6)


def attention(x, a):
    """Graph attention over a dense adjacency matrix: scores of each node with each."""
    total = tf.reduce_sum(x, -1)
    return tf.matmul(tf.nn.softmax(total[..., :, None] + total[..., None, :] - 1e9 * (1.0 - a)), x)


# Function, shapes of arguments, and the inferred shapes.
AT_ONE_NODE = {
    "three sizes": (attention, [[None, None, 5], [None] * 3], [("b", "d1", 5), ("b", "d1", "d1")]),
    "three sizes without a batch": (attention, [[None, 5], [None] * 2], [("b", 5), ("b", "b")]),
    "two and two": (lambda x, y: x + y, [[None] * 3, [None] * 3], [("b", "d1", "d2")] * 2),
    "three, two of which are one": (lambda x, y: x + y, [[None, None, 5], [None, 5]], [("b", "d1", 5), ("d1", 5)]),
    "a square": (lambda x: tf.matmul(x, x), [[None, None]], [("b", "b")]),
    "squares": (lambda x: tf.matmul(x, x), [[None] * 3], [("b", "d1", "d1")]),
    "of three arrays": (
        lambda *xs: tf.concat(xs, 0),
        [[None] * 3] * 3,
        [("b", "d1", "d2"), ("d3", "d1", "d2"), ("d6", "d1", "d2")],
    ),
    "of three arrays, one place": (
        lambda *xs: tf.concat(xs, 1),
        [[None] * 3] * 3,
        [("b", "d1", "d2"), ("b", "d4", "d2"), ("b", "d7", "d2")],
    ),
}


@pytest.mark.default_cases("two and two", "three, two of which are one", "a square", "squares")
@pytest.mark.parametrize("name", AT_ONE_NODE)
def test_more_than_two_sizes_meet_at_a_node(name):
    function, shapes, expected = AT_ONE_NODE[name]
    fn, params = tf2jax.convert(tf.function(function, autograph=False), *map(tf.TensorSpec, shapes))
    staged = symbolic_dims.stage_symbolic(artifact.converted_function(fn), None, params)
    assert [spec.shape for spec in staged.inputs] == expected


# Steps that need to know a size, or meet others that it cannot be.
NOWHERE = {
    "sizes that do not fit": (lambda x, y: tf.concat([x, tf.concat([y, y[:, :1]], 1)], 0), [[None, 4], [None, None]]),
    "a size that must be known": (lambda x: tf.linalg.diag(x, k=tf.shape(x)[0]), [[None]]),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_sizes_that_nothing_makes_fit(name):
    """The error is the first one; no size is assumed to be the batch's to make it run."""
    function, shapes = NOWHERE[name]
    fn, params = tf2jax.convert(tf.function(function, autograph=False), *map(tf.TensorSpec, shapes))
    with pytest.raises(LoweringError, match=r"concat|a size must be known"):
        symbolic_dims.stage_symbolic(artifact.converted_function(fn), None, params)


def shifted_loss(logits, ids):
    """Return a language model's loss: each token from those before it."""
    logits, labels = tf.reshape(logits[:, :-1], [-1, 5]), tf.reshape(ids[:, 1:], [-1])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


TWO_OPEN = [tf.TensorSpec([None, None])]
# Function, types of arguments, and shapes that arguments can have. JAX does not know by itself that b*n - b is a size.
NOT_BELOW_ZERO = {
    "all but the first": (lambda x: tf.reshape(x[:, 1:], [-1]), TWO_OPEN, [[(3, 4)], [(2, 1)]]),
    "the middle": (lambda x: tf.reshape(x[:, 2:-1], [-1]), TWO_OPEN, [[(3, 7)], [(2, 2)]]),
    "all but the first row": (lambda x: tf.reshape(x[1:] - x[:-1], [-1]), TWO_OPEN, [[(3, 4)], [(1, 2)]]),
    "a shifted loss": (
        shifted_loss,
        [tf.TensorSpec([None, None, 5]), tf.TensorSpec([None, None], tf.int32)],
        [[(3, 4, 5), (3, 4)], [(2, 9, 5), (2, 9)]],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NOT_BELOW_ZERO)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_products_of_sizes_that_are_not_below_zero(name, backend, tmp_path):
    function, specs, shapes = NOT_BELOW_ZERO[name]
    graph = tf.function(function, input_signature=specs, autograph=False)
    tf2jax.export_functions({"f": tf2jax.convert(graph, *specs)}, tmp_path / "out")
    own, params = tf2jax.load(tmp_path / "out", backend=backend)
    for call in shapes:
        numbers = [np.arange(np.prod(shape)).reshape(shape) % 5 for shape in call]
        args = [n.astype(spec.dtype.as_numpy_dtype) for n, spec in zip(numbers, specs, strict=True)]
        np.testing.assert_allclose(own(params, *args)[0], graph(*args), rtol=1e-6)


@pytest.mark.full
def test_what_to_tell_jax_of_sizes():
    function = NOT_BELOW_ZERO["all but the first"][0]
    own = tf2jax.convert_functional(tf.function(function), *TWO_OPEN)

    def exported(**options):
        shape = jax.export.symbolic_shape("b, n", **options)
        return jax.export.export(jax.jit(own))(jax.ShapeDtypeStruct(shape, np.float32))

    with pytest.raises(LoweringError, match=r"'Reshape'.*symbolic_shape\(..., constraints=\['b\*n - b >= 0'\]\)"):
        exported()
    x = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(exported(constraints=["b*n - b >= 0"]).call(x), function(x))


POSITIONS = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
# Of a table of six rows as many as are needed are taken: that are no more than six.
AT_MOST_SIX = {
    "a slice": lambda x: x + tf.constant(POSITIONS)[: tf.shape(x)[1]],
    "tf.slice": lambda x: x * tf.slice(POSITIONS, [0, 0], [tf.shape(x)[1], 3]),
}


@pytest.mark.default_cases("source-tf.slice")
@pytest.mark.parametrize("name", AT_MOST_SIX)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_sizes_that_a_table_limits(name, backend, tmp_path):
    specs = [tf.TensorSpec([None, None, 3])]
    graph = tf.function(AT_MOST_SIX[name], input_signature=specs, autograph=False)
    tf2jax.export_functions({"f": tf2jax.convert(graph, *specs)}, tmp_path / "out")
    own, params = tf2jax.load(tmp_path / "out", backend=backend)
    for size in (1, 4, 6):
        x = np.ones((2, size, 3), np.float32)
        np.testing.assert_allclose(own(params, x)[0], graph(x), rtol=1e-6)
    with pytest.raises((TypeError, ValueError), match=r"not fit|must be less than|ncompatible shapes"):
        own(params, np.ones((2, 7, 3), np.float32))


def cut_and_filled(x):
    return tf.pad(x[:5], [[0, tf.shape(x)[0] - 5], [0, 0]])


# Sizes less a number are sizes where they are as large.
FIVE_OR_MORE = {
    "zeros": lambda x: x[5:] + tf.zeros([tf.shape(x)[0] - 5, 3]),
    "two parts": lambda x: tf.split(x, [tf.shape(x)[0] - 5, 5])[1],
    "three parts": lambda x: tf.concat(tf.split(x, [2, tf.shape(x)[0] - 5, 3])[::-1], 0),
    "tf.slice": lambda x: tf.slice(x, [2, 0], [tf.shape(x)[0] - 5, 3]),
    "padded": cut_and_filled,
}


@pytest.mark.default_cases("stablehlo-padded", "source-tf.slice")
@pytest.mark.parametrize("name", FIVE_OR_MORE)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_sizes_that_are_large_enough(name, backend, tmp_path):
    specs = [tf.TensorSpec([None, 3])]
    graph = tf.function(FIVE_OR_MORE[name], input_signature=specs, autograph=False)
    (warning,) = tf2jax.export_functions({"f": tf2jax.convert(graph, *specs)}, tmp_path / "out").warnings
    assert "only for sizes where b" in warning
    own, params = tf2jax.load(tmp_path / "out", backend=backend)
    for size in (5, 7, 12):
        x = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        np.testing.assert_allclose(own(params, x)[0], graph(x), rtol=1e-6)
    with pytest.raises((tf2jax.errors.InputError, TypeError), match=r"do not fit|must "):
        own(params, np.ones((4, 3), np.float32))


def test_where_sizes_have_to_be_large_enough():
    own = tf2jax.convert_functional(tf.function(FIVE_OR_MORE["zeros"]), tf.TensorSpec([None, 3]))
    with pytest.raises(LoweringError, match=r"symbolic_shape\(..., constraints=\['b - 5 >= 0'\]\) tells JAX so"):
        jax.export.export(jax.jit(own))(jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), np.float32))


def convolved(x):
    filtered, length = tf.constant([1.0, -2.0, 0.5]), tf.shape(x)[1] + 2
    return tf.signal.irfft(tf.signal.rfft(x, [length]) * tf.signal.rfft(filtered, [length]), [length])


FOURIER = {
    "of as many": lambda x: tf.abs(tf.signal.rfft(x)),
    "of more": lambda x: tf.abs(tf.signal.rfft(x, [2 * tf.shape(x)[1]])),
    "of fewer": lambda x: tf.abs(tf.signal.rfft(x, [tf.shape(x)[1] - 1])),
    "there and back": lambda x: tf.signal.irfft(tf.signal.rfft(x) * 2.0),
    "a convolution": convolved,
}


@pytest.mark.default_cases("of fewer")
@pytest.mark.parametrize("name", FOURIER)
def test_fourier_transforms_of_symbolic_sizes(name, tmp_path):
    """StableHLO has none of such sizes: the artifact has source alone."""
    graph = tf.function(FOURIER[name], input_signature=[tf.TensorSpec([2, None])], autograph=False)
    warnings = tf2jax.export_functions(
        {"f": tf2jax.convert(graph, tf.TensorSpec([2, None]))}, tmp_path / "out"
    ).warnings
    assert any("no StableHLO" in warning for warning in warnings)
    own, params = tf2jax.load(tmp_path / "out", backend="source")
    for size in (6, 9):
        x = np.random.default_rng(size).normal(size=(2, size)).astype(np.float32)
        with tf.GradientTape() as tape:
            tape.watch(given := tf.constant(x))
            expected = graph(given)
        np.testing.assert_allclose(own(params, x)[0], expected, rtol=1e-4, atol=1e-5)
        if name == "of fewer":  # TensorFlow's own gradient fails
            continue
        gradient = jax.grad(lambda x: own(params, x)[0].sum())(x)
        np.testing.assert_allclose(gradient, tape.gradient(expected, given), rtol=1e-4, atol=1e-4)


def off_diagonal(x):
    size, products = tf.shape(x)[0], tf.reshape(x @ tf.transpose(x), [-1])
    return tf.reduce_sum(products[1:] ** 2) + tf.cast(tf.reduce_sum(tf.range(size * size)), tf.float32)


@pytest.mark.full
def test_squares_of_sizes(tmp_path):
    graph = tf.function(off_diagonal, input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    tf2jax.export_functions({"f": tf2jax.convert(graph, tf.TensorSpec([None, 3]))}, tmp_path / "out")
    own, params = tf2jax.load(tmp_path / "out", backend="source")
    for size in (1, 4, 6):
        x = np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)
        np.testing.assert_allclose(own(params, x)[0], graph(x), rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("shapes", [{"splits": "b+1", "x": "b,5"}, None])
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_shapes_with_offset_are_row_splits_beside_a_batch(tmp_path, backend, shapes):
    specs = [tf.TensorSpec([None], tf.int32, name="splits"), tf.TensorSpec([None, 5], name="x")]
    function = tf.function(lambda splits, x: tf.cast(splits[1:] - splits[:-1], tf.float32)[:, None] * x)
    tf2jax.export_functions({"f": tf2jax.convert(function, *specs)}, tmp_path / "o", shapes=shapes, platforms=["cpu"])
    fn, params = tf2jax.load(tmp_path / "o", backend=backend)
    splits, x = np.int32([0, 2, 3]), np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(fn(params, splits, x)[0], function(splits, x))
    with pytest.raises(InputError):
        fn(params, splits[:0], x)


i32, i64, f32 = tf.int32, tf.int64, tf.float32
EMBEDDINGS = np.random.default_rng(2).normal(size=(9, 4)).astype(np.float32)


def sparse_product(indices, values, shape, dense=EMBEDDINGS):
    return tf.sparse.sparse_dense_matmul(tf.SparseTensor(indices, values, shape), dense)


def ragged_mean(values, splits):
    return tf.reduce_mean(tf.RaggedTensor.from_row_splits(values, splits, validate=False), 1)


def masked_text(ids, mask):
    return tf.reduce_sum(tf.gather(EMBEDDINGS, ids) * mask[:, :, None], 1)


def attended(x, past, mask):
    keys = tf.concat([past, x], 1)
    scores = tf.matmul(x, keys, transpose_b=True) + (mask[:, None, :] - 1) * 1e9
    return tf.matmul(tf.nn.softmax(scores), keys)


def messages(x, source, target, edges):
    return x + tf.math.unsorted_segment_sum(tf.gather(x, source) * edges, target, tf.shape(x)[0])


COO = [([None, 2], i64), ([None], f32), ([2], i64)]
RAGGED = [([None], f32), ([None], i32)]
TEXT = [([None, None], i32), ([None, None], f32)]
# Function, shapes and dtypes of arguments, their expected shapes, and sizes of the symbols.
SIZES_OF_ARGUMENTS = {
    "a graph convolution": (
        lambda x, *adjacency: x + sparse_product(*adjacency, x),
        [([None, 4], f32), *COO],
        ["b,4", "d1,2", "d1", "2"],
    ),
    "sparse beside dense features": (
        lambda dense, *sparse: dense + sparse_product(*sparse),
        [([None, 1], f32), *COO],
        ["b,1", "d1,2", "d1", "2"],
    ),
    "two sparse features and a dense one": (
        lambda a, b, c, d, e, f, x: sparse_product(a, b, c) + sparse_product(d, e, f) + x,
        [*COO, *COO, ([None, 4], f32)],
        ["b,2", "b", "2", "d2,2", "d2", "2", "d4,4"],
    ),
    "edges": (
        messages,
        [([None, 4], f32), ([None], i32), ([None], i32), ([None, 4], f32)],
        ["b,4", "d1", "d1", "d1,4"],
    ),
    "two ragged features": (
        lambda a, b, c, d: ragged_mean(a, b) + ragged_mean(c, d),
        [*RAGGED, *RAGGED],
        ["b", "d1", "d2", "d1"],
    ),
    "ragged beside a masked text": (
        lambda a, b, *text: ragged_mean(a, b)[:, None] + masked_text(*text),
        [*RAGGED, *TEXT],
        ["b", "d2+1", "d2,d3", "d2,d3"],
    ),
    "a mask of past and present": (
        attended,
        [([None, None, 4], f32), ([None, None, 4], f32), ([None, None], f32)],
        ["b,d1,4", "b,d3,4", "b,d1+d3"],
    ),
}


@pytest.mark.default_cases("a graph convolution", "ragged beside a masked text", "a mask of past and present")
@pytest.mark.parametrize("name", SIZES_OF_ARGUMENTS)
def test_sizes_of_arguments_are_equal_only_if_they_need_to_be(name):
    function, types, expected = SIZES_OF_ARGUMENTS[name]
    specs = [tf.TensorSpec(*kind, f"x{i}") for i, kind in enumerate(types)]
    fn, params = tf2jax.convert(tf.function(lambda *args: function(*args), autograph=False), *specs)
    staged = symbolic_dims.stage_symbolic(artifact.converted_function(fn), None, params)
    found = [",".join(map(str, spec.shape)) for spec in staged.inputs]
    assert _in_order(found) == _in_order(expected)


def _in_order(shapes):
    """Number the symbols of shapes by their order; sums are sorted."""
    names = {}
    for symbol in re.findall("[a-z][a-z0-9]*", ",".join(shapes)):
        names.setdefault(symbol, f"s{len(names)}")
    renamed = [re.sub("[a-z][a-z0-9]*", lambda match: names[match[0]], shape) for shape in shapes]
    return [["+".join(sorted(size.split("+"))) for size in shape.split(",")] for shape in renamed]


def weighted(values, splits, x):
    """Sum of the rows of a ragged array, found by values' row numbers, beside a batch."""
    rows = tf.searchsorted(splits, tf.range(tf.size(values)), side="right") - 1
    sums = tf.math.unsorted_segment_sum(values, rows, tf.size(splits) - 1)
    return sums[:, None] * x


def halved(y):
    """Return a skip connection around a downsampling by two."""
    return tf.concat([tf.repeat(y[:, ::2], 2, 1), y], 2)


SPLITS = [tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 5])]
# Function, types of arguments, given shapes, and the inferred shapes.
OFFSETS = {
    "splits last": (lambda x, s: x * tf.cast(s[1:, None], tf.float32), [SPLITS[2], SPLITS[1]], None, ["b,5", "b+1"]),
    "after other sizes": (
        lambda i, j, s, x: tf.reduce_sum(i + j) + x * tf.cast(s[1:, None], tf.float32),
        [SPLITS[0], SPLITS[0], SPLITS[1], SPLITS[2]],
        None,
        ["b", "b", "d3+1", "d3,5"],
    ),
    "a given batch": (weighted, SPLITS, {"x": "b,5"}, ["batch", "b+1", "b,5"]),
    "beside multiples": (
        lambda s, x, y: halved(y + tf.reduce_sum(x * tf.cast(s[1:, None], tf.float32))),
        [SPLITS[1], SPLITS[2], tf.TensorSpec([3, None, 2])],
        None,
        ["b+1", "b,5", "3,2*d1,2"],
    ),
}


@pytest.mark.full_cases("beside multiples")
@pytest.mark.parametrize("name", OFFSETS)
def test_stage_symbolic_row_splits_have_an_offset(name):
    function, specs, shapes, expected = OFFSETS[name]
    fn, params = tf2jax.convert(tf.function(function, autograph=False), *specs)
    names = function.__code__.co_varnames[: len(specs)]
    staged = symbolic_dims.stage_symbolic(artifact.converted_function(fn), shapes, params)
    assert [spec.name for spec in staged.inputs] == list(names)
    assert [",".join(map(str, spec.shape)) for spec in staged.inputs] == expected
