"""Conversion end to end: callables, binding, checks, results."""

import collections
import inspect
import threading

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import (
    ConfigError,
    DtypeMismatchError,
    InputError,
    InvalidModelError,
    MissingKeyError,
    MissingParamError,
    ShapeMismatchError,
    UnsupportedError,
    UnsupportedOpsError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = tf.TensorSpec([None, 3], tf.float32)


class Affine(tf.Module):
    def __init__(self):
        super().__init__(name="affine")
        self.w = tf.Variable(tf.reshape(tf.range(6.0), [3, 2]), name="w")
        self.b = tf.Variable([1.0, 2.0], name="b")
        self.calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function
    def __call__(self, x, scale=1.0):
        self.calls.assign_add(1)
        return tf.matmul(x, self.w) * scale + self.b

    def plain(self, x):
        return tf.matmul(x, self.w)


def _affine_result(module, x):
    return x @ module.w.numpy() + module.b.numpy()


@pytest.mark.full
def test_kinds_of_callables():
    module = Affine()
    expected = _affine_result(module, X)
    concrete = module.__call__.get_concrete_function(SPEC)
    for fn, args in ((module.__call__, (SPEC,)), (module, (SPEC,)), (concrete, ()), (lambda x: module(x), (SPEC,))):
        jax_fn, params = tf2jax.convert(fn, *args)
        actual, updated = jax.jit(jax_fn)(params, X)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert set(params) == {"w", "b", "calls"}
        assert updated["calls"] == params["calls"] + 1
    jax_fn, params = tf2jax.convert(module.plain, SPEC)
    assert set(params) == {"w"}
    layer = keras.layers.Dense(4)
    jax_fn, params = tf2jax.convert(layer, X)
    np.testing.assert_allclose(jax_fn(params, X)[0], layer(X), rtol=1e-5)
    assert len(params) == 2


@pytest.mark.full
def test_arguments_may_be_arrays_tensors_or_specs():
    for example in (X, tf.constant(X), jnp.asarray(X), jax.ShapeDtypeStruct(X.shape, X.dtype), SPEC):
        jax_fn = tf2jax.convert_functional(lambda x: x + 1.0, example)
        np.testing.assert_allclose(jax_fn(X), X + 1)


@pytest.mark.full
def test_annotated_function():
    module = Affine()
    jax_fn, _ = tf2jax.convert(module.__call__, SPEC)
    assert isinstance(jax_fn, tf2jax.AnnotatedFunction)
    args, kwargs = jax_fn.structured_inputs
    assert args[0].shape.as_list() == [None, 3] and args[0].dtype == tf.float32
    assert args[1] == 1.0 and kwargs == {}
    assert jax_fn.structured_outputs.shape.as_list() == [None, 2]
    assert list(jax_fn.signature.parameters) == ["x", "scale"]
    assert list(inspect.signature(jax_fn).parameters) == ["params", "x", "scale"]
    assert jax_fn.__name__ == "__call__"
    assert "converted from TensorFlow" in jax_fn.__doc__


@pytest.mark.full
def test_signature_has_rng_where_function_draws():
    plain = tf2jax.convert_functional(lambda x: x + 1.0, X)
    assert str(inspect.signature(plain)) == str(plain.signature) == "(x)"
    np.testing.assert_array_equal(jax.jit(plain)(X, rng=jax.random.key(0)), X + 1)
    drawing = tf2jax.convert_functional(lambda x: x + tf.random.normal([3]), X)
    assert str(inspect.signature(drawing)) == "(x, *, rng=None)"


def test_nested_structures_namedtuples_none_and_defaults():
    Point = collections.namedtuple("Point", ["x", "y"])

    @tf.function
    def fn(p, d, *rest, k=None, flag=True, **more):
        total = p.x + d["a"][0] + d["b"] + rest[0]
        if k is not None:
            total += k["z"]
        return {"total": total, "point": Point(p.y, None), "pair": (total, [more["extra"]]), "flag": "text"}

    spec = tf.TensorSpec([], tf.float32)
    jax_fn = tf2jax.convert_functional(fn, Point(spec, spec), {"a": [spec], "b": spec}, spec, k={"z": spec}, extra=spec)
    args = (Point(1.0, 2.0), {"b": 4.0, "a": [3.0]}, 5.0)
    out = jax_fn(*args, k={"z": 6.0}, extra=7.0)
    assert out["total"] == 19.0
    assert out["point"] == Point(2.0, None)
    assert out["pair"] == (19.0, [7.0])
    assert out["flag"] == "text" or out["flag"] == b"text"
    with pytest.raises(InputError, match="flag"):
        jax_fn(*args, k={"z": 6.0}, extra=7.0, flag=False)
    with pytest.raises(tf2jax.MissingInputError, match=r"k\['z'\]"):
        jax_fn(*args, k={}, extra=7.0)
    with pytest.raises(tf2jax.MissingInputError, match="k"):
        jax_fn(*args, extra=7.0)
    with pytest.raises(InputError, match="unexpected key"):
        jax_fn(Point(1.0, 2.0), {"b": 4.0, "a": [3.0], "c": 1.0}, 5.0, k={"z": 6.0}, extra=7.0)
    with pytest.raises(InputError, match="dict"):
        jax_fn(Point(1.0, 2.0), 3.0, 5.0, k={"z": 6.0}, extra=7.0)


def test_missing_inputs_are_listed():
    jax_fn = tf2jax.convert_functional(lambda x, y: x + y, SPEC, SPEC)
    with pytest.raises(tf2jax.MissingInputError, match=r"y: float32\[None,3\]"):
        jax_fn(X)
    with pytest.raises(ValueError, match="missing input"):  # what tf2jax's users catch
        jax_fn()
    with pytest.raises(InputError):
        jax_fn(X, X, X)
    with pytest.raises(InputError):
        jax_fn(X, X, z=X)


@pytest.mark.full
def test_shape_check():
    jax_fn = tf2jax.convert_functional(lambda x: x + 1.0, SPEC)
    with pytest.raises(ShapeMismatchError, match=r"input shape \(2, 4\) of argument x.*strict_shape_check"):
        jax_fn(np.zeros((2, 4), np.float32))
    with pytest.raises(ShapeMismatchError):
        jax.jit(jax_fn)(np.zeros(3, np.float32))
    with tf2jax.override_config("strict_shape_check", False):
        loose = tf2jax.convert_functional(lambda x: x + 1.0, SPEC)
    assert loose(np.zeros((2, 4), np.float32)).shape == (2, 4)


@pytest.mark.full
def test_shape_check_follows_an_override_around_the_call():
    w = tf.Variable([1.0, 2.0, 3.0], name="w")
    fn, params = tf2jax.convert(lambda x: x + w, SPEC)
    jitted = jax.jit(fn)
    with tf2jax.override_config("strict_shape_check", False):
        assert jitted(params, np.zeros(3, np.float32))[0].shape == (3,)
        assert fn({"w": np.zeros(2, np.float32)}, np.zeros((4, 2), np.float32))[0].shape == (4, 2)
    with pytest.raises(ShapeMismatchError, match="around conversion or call"):
        fn(params, np.zeros(3, np.float32))
    with tf2jax.override_config("strict_shape_check", False):
        loose, params = tf2jax.convert(lambda x: x + w, SPEC)
    with tf2jax.override_config("strict_shape_check", True), pytest.raises(ShapeMismatchError):
        loose(params, np.zeros(3, np.float32))


@pytest.mark.full
def test_dtype_check_follows_an_override_around_the_call():
    w = tf.Variable([1.0, 2.0], name="w")
    fn, params = tf2jax.convert(lambda x: x + w, tf.TensorSpec([2]))
    halves = np.ones(2, np.float16)
    with tf2jax.override_config("strict_dtype_check", True):
        with pytest.raises(DtypeMismatchError, match="argument x"):
            jax.jit(fn)(params, halves)
        with pytest.raises(DtypeMismatchError, match="param 'w'"):
            fn({"w": halves}, np.ones(2, np.float32))
        strict, params = tf2jax.convert(lambda x: x + w, tf.TensorSpec([2]))
    with tf2jax.override_config("strict_dtype_check", False):
        np.testing.assert_array_equal(strict(params, halves)[0], [2, 3])


@pytest.mark.full
def test_dtype_check():
    jax_fn = tf2jax.convert_functional(lambda x: x * tf.constant(2.0), SPEC)
    assert jax_fn(X.astype(jnp.bfloat16)).dtype == jnp.float32  # a float32 constant meets it: JAX promotes
    with tf2jax.override_config("strict_dtype_check", True):
        strict = tf2jax.convert_functional(lambda x: x * tf.constant(2.0), SPEC)
    with pytest.raises(DtypeMismatchError, match=r"incompatible input dtype float16 of argument x.*float32"):
        strict(X.astype(np.float16))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda f, s: f(), TypeError),
        (lambda f, s: f(X, X, X), TypeError),
        (lambda f, s: f(X, z=X), TypeError),
        (lambda f, s: tf2jax.get_config("no_such_option"), KeyError),
        (lambda f, s: tf2jax.override_config("no_such_option", 1).__enter__(), KeyError),
        (lambda f, s: tf2jax.update_config("no_such_option", 1), ValueError),
        (lambda f, s: jax.jit(tf2jax.convert_functional(tf.zeros, s))(np.int32([3])), TypeError),
    ],
)
def test_errors_are_also_those_of_tf2jax(call, error):
    """``except`` clauses for errors of tf2jax keep working."""
    jax_fn = tf2jax.convert_functional(lambda x, y: x + y, SPEC, SPEC)
    with pytest.raises(error) as found:
        call(jax_fn, tf.TensorSpec([1], tf.int32))
    assert isinstance(found.value, tf2jax.Tf2JaxError) and not str(found.value).startswith('"')


@pytest.mark.full
def test_results_are_described_with_names_of_nodes():
    def fn(x):
        return {"b": x + 1.0, "a": (x * 2.0, tf.RaggedTensor.from_row_splits(x[:, 0], [0, 2])), "c": x}

    outputs = tf2jax.convert_functional(fn, tf.TensorSpec((2, 3), name="x")).structured_outputs
    concrete = tf.function(fn).get_concrete_function(tf.TensorSpec((2, 3), name="x"))
    names = [t.op.name for t in concrete.outputs]
    assert [outputs["a"][0].name, outputs["b"].name, outputs["c"].name] == [names[0], names[3], names[4]]
    assert outputs["b"] == tf.TensorSpec((2, 3), tf.float32, names[3])


@pytest.mark.full
def test_literals_are_baked_in():
    jax_fn = tf2jax.convert_functional(lambda x, n: x * n, SPEC, 3.0)
    np.testing.assert_allclose(jax_fn(X, 3.0), X * 3)
    np.testing.assert_allclose(jax_fn(X), X * 3)
    with pytest.raises(InputError, match="literal"):
        jax_fn(X, 4.0)
    with pytest.raises(InputError, match="unexpected tracer"):
        jax.jit(jax_fn)(X, 3.0)


@pytest.mark.full
def test_config_is_captured_at_conversion():
    with tf2jax.override_config("force_const_float32_to_bfloat16", True):
        narrow = tf2jax.convert_functional(lambda x: x + tf.constant(1.001), tf.TensorSpec([]))
    assert narrow(jnp.bfloat16(0)).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="options are"):
        tf2jax.update_config("no_such_option", True)
    with pytest.raises(ValueError, match="takes bool"):
        tf2jax.update_config("strict_shape_check", "yes")


@pytest.mark.full
def test_passes_left_out_keep_values_or_raise():

    def fn(x):
        keep = tf.boolean_mask(x, x[:, 0] > 0.0)
        return tf.while_loop(lambda i, y: i < tf.minimum(3, tf.size(x)), lambda i, y: (i + 1, y * 2.0), (0, keep))[1]

    with tf2jax.override_config("passes", "none"):
        converted = tf2jax.convert_functional(fn, SPEC)
    np.testing.assert_array_equal(converted(X), fn(tf.constant(X)))
    with pytest.raises(ConfigError, match="required"):
        tf2jax.update_config("passes", "-functionalize")


def test_override_is_safe_across_threads():
    seen = []
    with tf2jax.override_config("strict_shape_check", False):
        thread = threading.Thread(target=lambda: seen.append(tf2jax.get_config("strict_shape_check")))
        thread.start()
        thread.join()
    assert seen == [True]


@pytest.mark.full
def test_random_functions_need_a_key():
    def fn(x):
        a = tf.random.normal([2], seed=1)
        b = tf.random.normal([2], seed=1)
        return x + a, x + b

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([2]))
    with pytest.raises(MissingKeyError, match="rng="):
        jax_fn(np.zeros(2, np.float32))
    for key in (jax.random.key(0), jax.random.PRNGKey(0)):
        a, b = jax.jit(jax_fn)(np.zeros(2, np.float32), rng=key)
        assert not np.allclose(a, b)  # each node has a key of its own
        np.testing.assert_array_equal(a, jax_fn(np.zeros(2, np.float32), rng=jax.random.key(0))[0])
    with pytest.raises(InputError, match="PRNG key"):
        jax_fn(np.zeros(2, np.float32), rng=3)


@pytest.mark.full
def test_pruning_moves_no_key():
    """A node's key depends on its name and path, not on other nodes."""

    def both(x):
        first = tf.random.normal([2], name="first")
        second = tf.random.normal([2], name="second")
        return x + second, first

    def one(x):
        return (x + tf.random.normal([2], name="second"),)

    x = np.zeros(2, np.float32)
    results = [tf2jax.convert_functional(f, tf.TensorSpec([2]))(x, rng=jax.random.key(3))[0] for f in (both, one)]
    np.testing.assert_array_equal(*results)


@pytest.mark.full
def test_state():
    v = tf.Variable(np.zeros((4, 2), np.float32), name="table")

    @tf.function
    def fn(i, u):
        before = v + 0.0
        v.scatter_nd_add(i[:, None], u)
        v.assign_sub(tf.ones_like(v))
        row = tf.gather(v, i)
        v.assign(v * 2.0)
        return before, row

    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([2], tf.int32), tf.TensorSpec([2, 2]))
    i, u = np.array([1, 3], np.int32), np.ones((2, 2), np.float32) * 5
    (before, row), updated = jax.jit(jax_fn)(params, i, u)
    expected = fn(i, u)
    np.testing.assert_allclose(before, expected[0])
    np.testing.assert_allclose(row, expected[1])
    np.testing.assert_allclose(updated["table"], v.numpy())


@pytest.mark.full
def test_equal_names_are_made_unique_and_shared_variables_are_one():
    a, b = tf.Variable(1.0, name="v"), tf.Variable(2.0, name="v")

    @tf.function
    def fn(x):
        a.assign_add(x)
        return a * 10.0 + b

    jax_fn, params = tf2jax.convert(fn, tf.TensorSpec([]))
    assert set(params) == {"a", "b"}
    out, updated = jax_fn(params, np.float32(1.0))
    assert out == 22.0
    assert sorted(float(v) for v in updated.values()) == [2.0, 2.0]


def test_missing_params_are_named():
    module = Affine()
    jax_fn, params = tf2jax.convert(module.__call__, SPEC)
    params = {k: v for k, v in params.items() if k != "b"}
    with pytest.raises(MissingParamError, match="b"):
        jax_fn(params, X)
    with pytest.raises(InputError, match="first argument is params"):
        jax_fn(X)


def test_functional_with_variables_raises():
    module = Affine()
    with pytest.raises(UnsupportedError, match=r"variable.*convert\(\)"):
        tf2jax.convert_functional(module, SPEC)


@pytest.mark.full
def test_restored(tmp_path):
    module = Affine()
    module.f = tf.function(module.plain, input_signature=[SPEC])
    module.pure = tf.function(lambda x: x * 3.0, input_signature=[SPEC])
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": module.f})
    restored = tf.saved_model.load(str(tmp_path))
    jax_fn, params = tf2jax.convert_from_restored(restored.f)
    np.testing.assert_allclose(jax_fn(params, X)[0], module.plain(X), rtol=1e-6)
    np.testing.assert_allclose(tf2jax.convert_functional_from_restored(restored.pure)(X), X * 3)
    jax_fn, params = tf2jax.convert_saved_model(tmp_path)
    (name,) = inspect.signature(jax_fn).parameters.keys() - {"params", "rng"}
    (value,) = jax_fn(params, **{name: X})[0].values()
    np.testing.assert_allclose(value, module.plain(X), rtol=1e-6)
    jax_fn, params = tf2jax.convert(restored.f, SPEC)
    np.testing.assert_allclose(jax_fn(params, X)[0], module.plain(X), rtol=1e-6)


def test_restored_with_several_signatures_has_to_choose(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: x * 3.0)
    module.f(tf.zeros([2]))
    module.f(tf.zeros([2, 2]))
    tf.saved_model.save(module, str(tmp_path))
    restored = tf.saved_model.load(str(tmp_path))
    with pytest.raises(InputError, match="Found 2 concrete functions"):
        tf2jax.convert_functional_from_restored(restored.f)
    np.testing.assert_allclose(tf2jax.convert_functional(restored.f, tf.TensorSpec([2]))(X[0, :2]), X[0, :2] * 3)


def _frozen():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], "x")
        w = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
        y = tf.matmul(x, w, name="y")
        tf.split(y, 2, axis=1, name="halves")
    return graph.as_graph_def()


@pytest.mark.full
def test_graph_def(tmp_path):
    proto = _frozen()
    (tmp_path / "frozen.pb").write_bytes(proto.SerializeToString())
    expected = X @ np.arange(6, dtype=np.float32).reshape(3, 2)
    for source in (proto, proto.SerializeToString(), tmp_path / "frozen.pb"):
        jax_fn, params = tf2jax.convert_graph_def(source, ["x:0"], ["y:0", "halves:1"])
        assert set(params) == {"w"} and tf2jax.split_params(params)[0].keys() == {"w"}
        y, half = jax.jit(jax_fn)(params, X)[0]
        np.testing.assert_allclose(y, expected)
        np.testing.assert_allclose(half, expected[:, 1:])
    jax_fn, params = tf2jax.convert_graph_def(proto, "x", "y", constants_as_params=False)
    assert params == {}
    np.testing.assert_allclose(jax_fn(params, X)[0], expected)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        (["nope:0"], ["y:0"], "nope"),
        (["x:0"], ["nope:0"], "nope"),
        (["x:0", "x:0"], ["y:0"], "twice"),
        (["x:0"], ["y:7"], "output"),
        (["x:0"], ["y:z"], "not a tensor name"),
    ],
)
def test_graph_def_with_wrong_names(inputs, outputs, message):
    with pytest.raises(InvalidModelError, match=message):
        tf2jax.convert_graph_def(_frozen(), inputs, outputs)


@pytest.mark.parametrize("names", [None, 3, b"x", [3], ["x", None], {"x": "y"}, [tf.constant(1)]])
def test_graph_def_with_invalid_names_raises(names):
    with pytest.raises(InputError, match="inputs are names"):
        tf2jax.convert_graph_def(_frozen(), names, ["y"])
    with pytest.raises(InputError, match="outputs are names"):
        tf2jax.convert_graph_def(_frozen(), ["x"], names)


def test_graph_def_inputs_with_names_of_our_own():
    graph = tf.Graph()
    with graph.as_default():
        a, b = (tf.compat.v1.placeholder(tf.float32, [2], name) for name in ("params", "rng"))
        tf.subtract(a, b, name="y")
    jax_fn, params = tf2jax.convert_graph_def(graph.as_graph_def(), ["params", "rng"], "y")
    np.testing.assert_array_equal(jax_fn(params, X[0, :2], rng=X[1, :2])[0], X[0, :2] - X[1, :2])


def test_saved_model_without_a_path():
    with pytest.raises(InputError, match="path is the directory"):
        tf2jax.convert_saved_model(None)  # type: ignore[call-overload]


@pytest.mark.parametrize("source", [b"", b"\xff\xff\xff not a proto", "/no/such/file.pb", 3])
def test_hostile_graph_defs(source):
    with pytest.raises(InvalidModelError):
        tf2jax.convert_graph_def(source, ["x"], ["y"])


@pytest.mark.full
def test_unsupported_ops_are_listed_at_once():
    @tf.function
    def inner(x):
        return tf.strings.to_number(tf.strings.as_string(x))

    def fn(x):
        if tf.reduce_sum(x) > 0:
            x = inner(x)
        return tf.raw_ops.DecodeRaw(bytes=tf.io.serialize_tensor(x), out_type=tf.float32)

    with pytest.raises(UnsupportedOpsError) as caught:
        tf2jax.convert_functional(fn, SPEC)
    assert {"DecodeRaw", "SerializeTensor", "StringToNumber"} <= set(caught.value.ops)
    functions = {function for op, _, function in caught.value.nodes if op == "StringToNumber"}
    assert all("inner" in f for f in functions) and functions
    assert "register_op" in str(caught.value)


@pytest.mark.full
def test_users_add_and_override_ops():
    with tf2jax.override_op("Sin", lambda x: x * 100.0):
        jax_fn = tf2jax.convert_functional(tf.sin, SPEC)
    np.testing.assert_allclose(jax_fn(X), X * 100)
    np.testing.assert_allclose(tf2jax.convert_functional(tf.sin, SPEC)(X), np.sin(X), rtol=1e-6)


def test_tensorflow_errors_while_tracing_are_ours():
    with pytest.raises(InputError, match="could not trace"):
        tf2jax.convert_functional(lambda x: tf.matmul(x, x), tf.TensorSpec([2, 3]))
    with pytest.raises(InputError, match="callable"):
        tf2jax.convert(3)


@pytest.mark.full
def test_errors_inside_the_graph_name_the_node():
    def fn(x, shape):
        return tf.reshape(x, shape, name="the_reshape")

    jax_fn = tf2jax.convert_functional(fn, tf.TensorSpec([6]), tf.TensorSpec([2], tf.int32))
    np.testing.assert_allclose(jax_fn(np.arange(6, dtype=np.float32), np.array([2, 3])).shape, (2, 3))
    with pytest.raises(ValueError, match=r"the_reshape.*must be known while tracing"):
        jax.jit(jax_fn)(np.arange(6, dtype=np.float32), np.array([2, 3]))


@pytest.mark.full
def test_a_function_that_a_gradient_was_taken_through():
    """Its graph then also returns what the gradient needs, after its own results."""

    @tf.function
    def fn(x):
        y = tf.nn.softmax(tf.sin(x) * x)
        return y, tf.tanh(y)

    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(fn(x)[1])
    tape.gradient(loss, x)
    results = tf2jax.convert_functional(fn, tf.TensorSpec([2]))(x.numpy())
    assert len(results) == 2
    np.testing.assert_allclose(results[1], fn(x)[1], rtol=1e-6)


@pytest.mark.full
def test_an_argument_that_is_a_function():
    """TensorFlow does not record it; it is baked in, any value passes."""

    def fn(x, activation=tf.nn.relu):
        return activation(x)

    x = np.array([-1.0, 2.0], np.float32)
    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([2]))
    np.testing.assert_array_equal(jax_fn(x), [0.0, 2.0])
    jax_fn = tf2jax.convert_functional(tf.function(fn), tf.TensorSpec([2]), tf.abs)
    np.testing.assert_array_equal(jax_fn(x, tf.abs), [1.0, 2.0])
    with pytest.raises(InputError, match="unexpected literal value, an array"):
        jax_fn(x, x)


@pytest.mark.full
@pytest.mark.parametrize("strict", [False, True])
def test_an_argument_s_default_has_the_dtype_of_its_spec(strict):
    """NumPy's 5.0 is a float64: TensorFlow casts it, as it does a Python number."""

    five, pair = np.array(5.0), np.array([1, 2])

    @tf.function(input_signature=[tf.TensorSpec([]), tf.TensorSpec([2], tf.bfloat16)])
    def fn(x=five, y=pair):
        return x, y

    with tf2jax.override_config("strict_dtype_check", strict), jax.enable_x64(True):
        converted = tf2jax.convert_functional(fn)
        for found, expected in zip(converted(), fn(), strict=True):
            assert found.dtype == expected.dtype.as_numpy_dtype
            np.testing.assert_array_equal(found, expected)
