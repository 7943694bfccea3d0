"""Functions of composite tensors take components, or tensors themselves."""

from __future__ import annotations

import collections
import dataclasses

import jax
import numpy as np
import pytest
import tensorflow as tf
from jax.experimental import sparse

import tf2jax_lite as tf2jax
from tf2jax_lite import errors

MATRIX = np.float32([[1, 0, 2, 0], [0, 0, 0, 3], [0, 4, 0, 0]])
WEIGHTS = np.arange(8, dtype=np.float32).reshape(4, 2)
ROWS = tf.ragged.constant([[1.0, 2.0], [3.0], []])
NESTED = tf.ragged.constant([[[1, 2], []], [[3]]])


class Graph(tf.experimental.ExtensionType):
    """A batch of graphs: nodes, edges and how many of the latter each graph has."""

    nodes: tf.Tensor
    scale: int
    edges: tf.RaggedTensor


@dataclasses.dataclass
class Pair:
    """An object that ``tf.nest`` flattens, and JAX does not."""

    first: object
    second: object

    def __tf_flatten__(self):
        return ("pair",), (self.first, self.second)

    @classmethod
    def __tf_unflatten__(cls, metadata, components):
        return cls(*components)


def of_sparse(matrix):
    dense = tf.sparse.to_dense(matrix)
    return dense, tf.sparse.sparse_dense_matmul(matrix, WEIGHTS), tf.sparse.reduce_sum(matrix, 1), matrix * 2.0


def of_ragged(rows, k=2.0):
    return {
        "sums": tf.reduce_sum(rows, 1),
        "padded": rows.to_tensor(-1.0, shape=[None, 4]),
        "rows": rows * k,
        "mean": tf.reduce_mean(rows),
    }


def of_graph(graph, shift):
    return graph.nodes * float(graph.scale) + shift, tf.reduce_sum(graph.edges, 1)


CASES = {
    "sparse": (of_sparse, (tf.sparse.from_dense(MATRIX),)),
    "ragged": (of_ragged, (ROWS,)),
    "ragged and a literal": (of_ragged, (ROWS, 3.0)),
    "twice ragged": (lambda r: (r.bounding_shape(), tf.reduce_sum(r, 2), r + 1), (NESTED,)),
    "rows of one length": (
        lambda r: (tf.reduce_max(r, 1), r.to_tensor()),
        (tf.RaggedTensor.from_uniform_row_length(tf.range(6.0), 3),),
    ),
    "extension type": (of_graph, (Graph(tf.constant([1.0, 2.0]), 3, ROWS), np.float32(4))),
    "rows that were updated": (
        lambda s: tf.tensor_scatter_nd_add(tf.zeros([4, 2]), s.indices[:, None], s.values),
        (tf.IndexedSlices(tf.ones([3, 2]), tf.constant([0, 3, 3]), tf.constant([4, 2])),),
    ),
    "in structures": (
        lambda b: (b["x"] + tf.reduce_sum(b["rows"], 1), b["pair"][1].values),
        ({"x": np.float32([1, 2, 3]), "rows": ROWS, "pair": [np.int32(1), tf.sparse.from_dense(MATRIX)]},),
    ),
}


def taken_apart(value):
    """Return a structure in which composite tensors are tuples of numpy arrays."""

    def apart(leaf):
        parts = tf.nest.flatten(leaf, expand_composites=True)
        return leaf if len(parts) == 1 and parts[0] is leaf else tuple(part.numpy() for part in parts)

    return tf.nest.map_structure(apart, value)


def assert_same(got, want):
    want = [np.asarray(x) for x in tf.nest.flatten(want, expand_composites=True)]
    got = jax.tree.leaves(got)
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert np.shape(mine) == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", ["components", "tensors", "jit"])
def test_functions_of_composite_tensors(name, form):
    function, args = CASES[name]
    fn = tf2jax.convert_functional(function, *args)
    want = tf.function(function)(*args)
    if form == "tensors":
        assert_same(fn(*args), want)
    else:
        call = jax.jit(fn, static_argnums=1) if form == "jit" and len(args) > 1 and isinstance(args[1], float) else fn
        if form == "jit" and call is fn:
            call = jax.jit(fn)
        assert_same(call(*taken_apart(args)), want)


RESULTS = {
    "an extension type among others": lambda x: (Graph(x, 3, ROWS * x[0]), x + 1),
    "extension types in a dict": lambda x: {"b": Graph(x, 3, ROWS), "a": [Graph(x + 1, 2, ROWS), x]},
    "a dataclass": lambda x: (Pair(x, {"sum": x + 1}), x + 2),
    "a dataclass alone": lambda x: Pair(x, ROWS * 2.0),
}


@pytest.mark.full
@pytest.mark.parametrize("name", RESULTS)
def test_results_of_such_types(name):
    x = np.float32([1, 2])
    assert_same(jax.jit(tf2jax.convert_functional(RESULTS[name], x))(x), tf.function(RESULTS[name])(x))


@pytest.mark.full
def test_classes_that_tensorflow_takes_apart_are_named_tuples(tmp_path):
    def swapped(pair):
        return Pair(pair.second, pair.first + 1.0), pair.first

    fn, params = tf2jax.convert(swapped, Pair(tf.TensorSpec([2]), tf.TensorSpec([2])))
    one, two = np.float32([1, 2]), np.float32([3, 4])
    for given in (Pair(one, two), (one, two)):
        (pair, first), _ = fn(params, given)
        np.testing.assert_array_equal(pair.first, two)
        np.testing.assert_array_equal(pair.second, one + 1)
        np.testing.assert_array_equal(first, one)
    assert jax.tree.structure(fn(params, (one, two))) == jax.tree.structure(jax.jit(fn)(params, (one, two)))
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "artifact", platforms=["cpu"])
    loaded, params = tf2jax.load(tmp_path / "artifact", "f")
    np.testing.assert_array_equal(loaded(params, (one, two))[0][0][1], one + 1)


Named = collections.namedtuple("Named", ["x", "y"])


def test_attrs_classes():
    attr = pytest.importorskip("attr")
    kind = attr.make_class("Point", ["x", "y"])
    fn = tf2jax.convert_functional(lambda p: (kind(p.y, p.x * 2.0), p.x), kind(np.float32(1), np.float32([2, 3])))
    for call in (fn, jax.jit(fn)):
        point, x = call(kind(np.float32(5), np.float32([6, 7])))
        assert type(point) is kind and (point.x.tolist(), float(point.y), float(x)) == ([6, 7], 10, 5)


def test_wrapped_containers_are_plain_in_results():
    """TensorFlow wraps containers that a module tracks; results need no TensorFlow."""
    module = tf.Module()
    module.found = {"z": tf.Variable(1.0), "a": [tf.Variable(2.0), (tf.Variable(3.0), None)]}
    module.pair = {"b": tf.Variable(4.0), "a": Named(tf.Variable(5.0), 6)}
    fn, params = tf2jax.convert(tf.function(lambda: (module.found, module.pair)))
    for call in (fn, jax.jit(fn)):
        found, pair = call(params)[0]
        assert type(found) is dict and type(found["a"]) is list and type(found["a"][1]) is tuple
        assert type(pair) is dict and type(pair["a"]) is Named
        assert jax.tree.map(float, (found, pair)) == (
            {"z": 1.0, "a": [2.0, (3.0, None)]},
            {"b": 4.0, "a": Named(5.0, 6.0)},
        )


@pytest.mark.default_cases("jit")
@pytest.mark.parametrize("form", ["eager", "jit"])
def test_tensor_arrays_that_are_returned_are_stacked(form):
    def function(x):
        array = tf.TensorArray(tf.float32, 0, dynamic_size=True)
        for i in tf.range(3):
            array = array.write(i, x * tf.cast(i, tf.float32))
        return {"array": array, "x": x}

    x = np.float32([1, 2])
    fn = tf2jax.convert_functional(function, x)
    results = (jax.jit(fn) if form == "jit" else fn)(x)
    np.testing.assert_array_equal(results["array"], [[0, 0], [1, 2], [2, 4]])
    np.testing.assert_array_equal(results["x"], x)


@pytest.mark.full
def test_results_of_one_are_arguments_of_another():
    doubled = tf2jax.convert_functional(lambda r: r * 2.0, ROWS)
    summed = tf2jax.convert_functional(lambda r: tf.reduce_sum(r, 1), ROWS)
    np.testing.assert_allclose(summed(doubled(ROWS)), [6, 6, 0])


@pytest.mark.full
def test_gradients_with_respect_to_components():
    indices, values, shape = taken_apart(tf.sparse.from_dense(MATRIX))
    fn = tf2jax.convert_functional(of_sparse, tf.SparseTensorSpec([3, 4], tf.float32))
    tensor = tf.sparse.from_dense(MATRIX)
    with tf.GradientTape() as tape:
        tape.watch(tensor.values)
        want = tf.reduce_sum(of_sparse(tensor)[1] ** 2)
    got = jax.jit(jax.grad(lambda v: (fn((indices, v, shape))[1] ** 2).sum()))(values)
    np.testing.assert_allclose(got, tape.gradient(want, tensor.values), rtol=1e-6)


@pytest.mark.full
def test_dense_shape_that_the_type_knows_is_no_data():
    """TensorFlow takes it as data; under ``jit`` no result could have that shape."""
    parts = taken_apart(tf.sparse.from_dense(MATRIX))
    fn = tf2jax.convert_functional(of_sparse, tf.SparseTensorSpec([3, 4], tf.float32))
    np.testing.assert_array_equal(jax.jit(fn)(parts)[0], MATRIX)
    with pytest.raises(errors.ShapeMismatchError, match=r"matrix\[2\] is \(3, 5\).*converted for \(3, 4\)"):
        fn((*parts[:2], np.int64([3, 5])))
    with tf2jax.override_config("strict_shape_check", False):
        loose = tf2jax.convert_functional(tf.sparse.to_dense, tf.SparseTensorSpec([3, 4], tf.float32))
    assert loose((*parts[:2], np.int64([3, 5]))).shape == (3, 5)


@pytest.mark.full
def test_dense_shape_that_varies_is_static_or_an_error_that_says_so():
    parts = taken_apart(tf.sparse.from_dense(MATRIX))
    fn = tf2jax.convert_functional(tf.sparse.to_dense, tf.SparseTensorSpec([None, 4], tf.float32))
    np.testing.assert_array_equal(fn(parts), MATRIX)
    np.testing.assert_array_equal(jax.jit(lambda i, v: fn((i, v, parts[2])))(*parts[:2]), MATRIX)
    with pytest.raises(errors.StaticInputError, match=r"must be known while tracing.*BCOO.*dynamic_shape_bound"):
        jax.jit(fn)(parts)


@pytest.mark.full
def test_sparse_arrays_of_jax_are_sparse_tensors():
    fn = tf2jax.convert_functional(of_sparse, tf.SparseTensorSpec([None, None], tf.float32))
    array = sparse.BCOO.fromdense(MATRIX)
    assert_same(jax.jit(fn)(array), tf.function(of_sparse)(tf.sparse.from_dense(MATRIX)))
    with pytest.raises(errors.InputError, match=r"is a tuple .* got BCOO"):
        fn(sparse.BCOO.fromdense(MATRIX, n_batch=1))


@pytest.mark.full
def test_restored_functions(tmp_path):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(WEIGHTS)

        @tf.function(
            input_signature=[tf.RaggedTensorSpec([None, None], tf.float32), tf.SparseTensorSpec([None, 4], tf.float32)]
        )
        def __call__(self, rows, matrix):
            return {"sums": tf.reduce_sum(rows, 1), "product": tf.sparse.sparse_dense_matmul(matrix, self.weights)}

    tf.saved_model.save(Module(), str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    args = ROWS, tf.sparse.from_dense(MATRIX)
    fn, params = tf2jax.convert_from_restored(restored.__call__)
    assert_same(fn(params, *taken_apart(args))[0], restored(*args))


def test_artifacts(tmp_path):
    fn, params = tf2jax.convert(of_sparse, tf.SparseTensorSpec([3, 4], tf.float32))
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "artifact", platforms=["cpu"])
    loaded, params = tf2jax.load(tmp_path / "artifact", "f")
    parts = taken_apart(tf.sparse.from_dense(MATRIX))
    assert_same(loaded(params, parts)[0], tf.function(of_sparse)(tf.sparse.from_dense(MATRIX)))
    with pytest.raises(errors.ShapeMismatchError, match=r"\(3, 5\)"):
        loaded(params, (*parts[:2], np.int64([3, 5])))


@pytest.mark.full
def test_strings_in_front_of_a_model(tmp_path):
    """TensorFlow looks words up, row by row; JAX computes with their numbers."""
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], np.int64([1, 2])), 0)
    module.vectors = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.string)])
    def embed(words):
        numbers = tf.ragged.map_flat_values(module.table.lookup, words)
        return {"out": tf.reduce_sum(tf.nn.embedding_lookup(module.vectors, numbers), 1)}

    module.embed = embed
    tf.saved_model.save(module, str(tmp_path), signatures=embed)
    words = tf.ragged.constant([["a", "b"], [], ["c", "a", "a"]])
    host, fn, params = tf2jax.convert_saved_model(str(tmp_path), split_host=True)
    serving = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    names = list(serving.structured_input_signature[1])
    given = dict(zip(sorted(names, key=len), tf.nest.flatten(words, expand_composites=True), strict=True))
    np.testing.assert_allclose(fn(params, **host(**given))[0]["out"], embed(words)["out"])


@pytest.mark.full_cases("<lambda>-arg1-IteratorSpec.*no counterpart")
@pytest.mark.parametrize(
    ("function", "arg", "message"),
    [
        (lambda d: d.reduce(0.0, lambda a, b: a + b), tf.data.Dataset.from_tensors(1.0), "DatasetSpec.*no counterpart"),
        (lambda i: next(i), iter(tf.data.Dataset.from_tensors(1.0).repeat()), "IteratorSpec.*no counterpart"),
        (lambda x: (x, tf.data.Dataset.from_tensors(x)), np.float32(1), "result 1 .*no counterpart"),
    ],
)
def test_components_without_a_jax_counterpart_raise(function, arg, message):
    with pytest.raises(errors.UnsupportedError, match=message):
        tf2jax.convert(function, arg)


@pytest.mark.full_cases("arg1-InputError-rows is a tuple .* got .*float32")
@pytest.mark.parametrize(
    ("arg", "error", "message"),
    [
        (None, errors.MissingInputError, r"rows\[0\]: float32\[None\], rows\[1\]: int64\[None\]"),
        (np.ones([3, 2], np.float32), errors.InputError, r"rows is a tuple .* got .*float32"),
        ((np.ones(3, np.float32),), errors.MissingInputError, r"rows\[1\]"),
        (tf.sparse.from_dense(MATRIX), errors.InputError, "has 3 items"),
    ],
)
def test_invalid_composite_arguments_raise(arg, error, message):
    fn = tf2jax.convert_functional(lambda rows: tf.reduce_sum(rows, 1), tf.RaggedTensorSpec([None, None], tf.float32))
    with pytest.raises(error, match=message):
        fn(arg)


class Scaled(tf.experimental.ExtensionType):
    graph: Graph
    names: tuple[str, ...]


@pytest.mark.parametrize(
    ("converted", "given"),
    [
        (Graph(tf.ones(2), 3, ROWS), Graph(tf.ones(2), 5, ROWS)),
        (Scaled(Graph(tf.ones(2), 3, ROWS), ("a",)), Scaled(Graph(tf.ones(2), 5, ROWS), ("a",))),
        (Scaled(Graph(tf.ones(2), 3, ROWS), ("a",)), Scaled(Graph(tf.ones(2), 3, ROWS), ("a", "b"))),
        # Ragged tensors and rows that were updated have as many components.
        (ROWS, tf.IndexedSlices(tf.ones(2), tf.constant([0, 1]))),
    ],
)
def test_non_tensor_fields_of_composites_are_literals(converted, given):
    fn = tf2jax.convert_functional(lambda x: tf.nest.flatten(x, expand_composites=True)[0], converted)
    fn(converted)
    with pytest.raises(errors.InputError, match="argument x was converted for"):
        fn(given)


@pytest.mark.parametrize("kind", [Pair, lambda a, b: (a, b), lambda a, b: [a, b]])
def test_dicts_have_no_order_of_components(kind):
    fn = tf2jax.convert_functional(lambda x: tf.nest.flatten(x)[0], kind(tf.TensorSpec([]), tf.TensorSpec([])))
    with pytest.raises(errors.InputError, match=r"argument x is a .* got dict"):
        fn({"second": 1.0, "first": 2.0})


@pytest.mark.full
def test_structures_in_fields():
    def function(pair):
        return pair.first["b"] - 2.0 * pair.first["a"] + tf.reduce_sum(pair.second, 1)

    args = Pair({"b": np.float32([1, 2, 3]), "a": np.float32([4, 5, 6])}, ROWS)
    np.testing.assert_allclose(tf2jax.convert_functional(function, args)(args), function(args))


def test_variables_among_arguments_become_params():
    scale, count = tf.Variable(3.0, name="scale"), tf.Variable(1.0, name="count")

    @tf.function
    def function(variables, x):
        variables["count"].assign_add(1.0)
        return variables["scale"] * x * variables["count"]

    fn, params = tf2jax.convert(function, {"scale": scale, "count": count}, tf.TensorSpec([], tf.float32))
    result, after = jax.jit(fn)(params, {"scale": None, "count": None}, 2.0)
    assert (float(result), float(after["count"]), float(params["count"])) == (12.0, 2.0, 1.0)
    assert float(fn(params, {"scale": scale, "count": count}, 2.0)[0]) == 12.0
