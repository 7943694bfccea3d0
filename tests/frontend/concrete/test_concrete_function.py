"""Arguments follow their structure; variables share TensorFlow's memory."""

import collections

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

import tf2jax_lite
from tf2jax_lite.errors import MissingParamError
from tf2jax_lite.frontend.concrete import variable_values

A, B, C = np.float32([1, 2]), np.float32([3, 5, 7]), np.float32([11])


def _converted(value, dtype):
    variable = tf.Variable(tf.cast(value, dtype), name="w")
    _, params = tf2jax_lite.convert(tf.function(lambda x: x * variable), tf.TensorSpec([], dtype))
    return variable, params["w"]


@pytest.mark.default_cases("shape2-dtype3")
@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_values_and_dtypes(dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1
    variable, found = _converted(value, dtype)
    expected = ml_dtypes.bfloat16 if dtype == tf.bfloat16 else dtype.as_numpy_dtype
    assert found.dtype == expected and found.shape == shape
    np.testing.assert_array_equal(np.asarray(found), variable.numpy())


@pytest.mark.full
def test_later_assignments_do_not_show():
    variable, found = _converted(np.ones(4), tf.float32)
    variable.assign_add(tf.ones(4))
    tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=[0], updates=[5.0])
    variable.assign(tf.zeros(4))
    np.testing.assert_array_equal(np.asarray(found), np.ones(4))


@pytest.mark.full
def test_weights_are_not_copied():
    # A second copy of a large model's weights is what a conversion can least afford.
    _, found = _converted(np.ones((256, 256)), tf.float32)
    base = found
    while getattr(base, "base", None) is not None:
        base = base.base
    assert not isinstance(base, np.ndarray) or not base.flags.owndata


def test_generators_that_move_on_do_not_show():
    # This kernel writes the new state in place, even if the buffer has other references.
    generator = tf.random.Generator.from_seed(3)
    _, params = tf2jax_lite.convert(tf.function(lambda: generator.normal([2])))
    before = {name: np.array(value) for name, value in params.items()}
    arguments = {"algorithm": tf.constant(1, tf.int64), "shape": [5], "counts": 10.0, "probs": 0.5}
    tf.raw_ops.StatefulRandomBinomial(resource=generator.state.handle, dtype=tf.int32, **arguments)
    for name, value in before.items():
        np.testing.assert_array_equal(np.asarray(params[name]), value)


@pytest.mark.full
def test_variables_of_many_types_are_read_together():
    types = (tf.float32, tf.bfloat16, tf.int64, tf.bool, tf.complex64, tf.uint8)
    variables = [tf.Variable(tf.cast([0, i], dtype), name=f"v{i}") for i, dtype in enumerate(types)]
    _, params = tf2jax_lite.convert(tf.function(lambda: [v + v if v.dtype != tf.bool else v for v in variables]))
    assert set(params) == {v.name.split(":")[0] for v in variables}
    for variable in variables:
        found = params[variable.name.split(":")[0]]
        assert found.dtype == variable.dtype.as_numpy_dtype
        np.testing.assert_array_equal(np.asarray(found), variable.numpy())


def test_variables_that_cannot_be_read_together_are_left_to_be_read_alone():
    handles = [tf.Variable([1.0, 2.0]).handle, tf.Variable([3.0]).handle]
    assert variable_values.read_values(handles, [tf.float32, tf.int32]) is None  # TensorFlow refuses the second
    first, second = variable_values.read_values(handles, [tf.float32] * 2)
    np.testing.assert_array_equal(first, [1.0, 2.0])
    np.testing.assert_array_equal(second, [3.0])


@pytest.mark.full
def test_critical_sections_need_no_lock():
    section, total = tf.CriticalSection(), tf.Variable(1.0)

    @tf.function(autograph=False)
    def fn(x):
        def step(value):
            def body():
                total.assign_add(value)
                return total.read_value() * 2

            return section.execute(body)

        return tf.map_fn(step, x)

    x = np.array([2.0, 3.0], np.float32)
    call, params = tf2jax_lite.convert(fn, x)
    (name,) = params
    for found, after in (call(params, x), jax.jit(call)(params, x)):
        np.testing.assert_array_equal(found, [6, 12])
        assert after[name] == 6
    np.testing.assert_array_equal(fn(x), [6, 12])


def _spec(value, name=None):
    return tf.TensorSpec(value.shape, tf.float32, name=name)


def _ends(*args, **kwargs):
    return [tf.reduce_sum(x) * (i + 1) for i, x in enumerate(tf.nest.flatten((args, kwargs)))]


@pytest.mark.default_cases("args4-kwargs4")
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((_spec(A, "x"), _spec(B, "x")), {}),
        ((_spec(A, "x_1"), _spec(B, "x"), _spec(C, "x")), {}),
        ((_spec(A, "b"), _spec(B, "a")), {}),
        (({"z": _spec(A, "m"), "y": _spec(B, "m")}, [_spec(C, "m")]), {}),
        (({"z": _spec(A), "y": _spec(B)}, _spec(C, "args_0_1")), {}),
        ((), {"z": _spec(A, "a"), "a": _spec(B, "z")}),
        ((), {"z": _spec(A, "n"), "a": _spec(B, "n"), "k": {"y": _spec(C, "n")}}),
    ],
)
def test_names_of_specs_do_not_say_which_argument_is_meant(args, kwargs, tmp_path):
    # TensorFlow makes equal names different in the graph, but not in its description of the arguments.
    by_shape = {a.shape: a for a in (A, B, C)}
    data_args, data_kwargs = tf.nest.map_structure(lambda spec: by_shape[tuple(spec.shape)], (args, kwargs))
    module = tf.Module()
    module.f = tf.function(_ends)
    expected = module.f(*data_args, **data_kwargs)
    jax_fn, params = tf2jax_lite.convert(module.f, *args, **kwargs)
    np.testing.assert_allclose(jax_fn(params, *data_args, **data_kwargs)[0], expected)

    module = tf.Module()
    module.f = tf.function(_ends)
    module.f.get_concrete_function(*args, **kwargs)
    tf.saved_model.save(module, str(tmp_path))
    jax_fn = tf2jax_lite.convert_functional_from_restored(tf.saved_model.load(str(tmp_path)).f)
    np.testing.assert_allclose(jax_fn(*data_args, **data_kwargs), expected)


def _wrapped():
    def fn(a, b):
        scale = tf.compat.v1.get_variable("scale", initializer=2.0)
        return tf.identity(a * scale, name="half_way") - 3 * tf.reduce_sum(b), b

    return tf.compat.v1.wrap_function(fn, [_spec(A), _spec(B)])


@pytest.mark.full
def test_pruned_functions():
    wrapped = _wrapped()
    a, b = wrapped.inputs[:2]
    first = wrapped.structured_outputs[0]
    for feeds, fetches, args in (
        ([a, b], first, (A, B)),
        ([b, a], first, (B, A)),
        ({"z": a, "y": b}, first, (B, A)),  # TensorFlow takes feeds in the order of sorted keys
        (a, {"inner": "half_way:0"}, (A,)),
        (["half_way:0", b], [first, {"b": b}], (A, B)),
    ):
        pruned = wrapped.prune(feeds, fetches)
        expected = pruned(*map(tf.constant, args))
        jax_fn, params = tf2jax_lite.convert(pruned)
        tf.nest.map_structure(np.testing.assert_allclose, jax_fn(params, *args)[0], expected)
    named = dict(zip(jax_fn.signature.parameters, args, strict=True))
    tf.nest.map_structure(np.testing.assert_allclose, jax_fn(params, **named)[0], expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: collections.defaultdict(list, z=x, a=2 * x),
        lambda x: collections.OrderedDict(z=x, a=2 * x),
        lambda x: {"z": x, "a": collections.defaultdict(lambda: 0, b=x + 1)},
    ],
)
def test_results_in_dicts_of_other_types(make):
    results = tf2jax_lite.convert_functional(tf.function(make), _spec(A))(A)
    tf.nest.map_structure(np.testing.assert_allclose, dict(results), dict(make(A)))
    assert list(results) == list(make(A))


def test_variables_without_a_value():
    variable = resource_variable_ops.UninitializedVariable(shape=[2], dtype=tf.float32, name="late")

    @tf.function
    def assigned(x):
        variable.assign(x * 2)
        return x + variable

    jax_fn, params = tf2jax_lite.convert(assigned, _spec(A))
    assert params["late"].shape == (2,)
    results, updated = jax_fn(params, A)
    np.testing.assert_array_equal(results, A * 3)
    np.testing.assert_array_equal(updated["late"], A * 2)
    jax_fn, params = tf2jax_lite.convert(tf.function(lambda x: x + variable), _spec(A))
    with pytest.raises(MissingParamError, match="'late' is read before it has a value"):
        jax_fn(params, A)


@pytest.mark.full
def test_captured_text_is_a_result():
    """One string is bytes for NumPy, which JAX was given as an array of them."""
    one, several = tf.constant("path"), tf.constant(["a", "bc"])
    fn = tf.function(lambda x: (x, one, several))
    converted = tf2jax_lite.convert_functional(fn, tf.TensorSpec([2]))
    _, first, rest = converted(np.ones(2, np.float32))
    assert first.item() == b"path"
    assert rest.tolist() == [b"a", b"bc"]


@pytest.mark.full
def test_variables_that_only_raw_ops_see_have_their_names():
    """Optimizer slots are no variables of the function; their handles have names."""
    weight, slot = tf.Variable([1.0, 2.0], name="w"), tf.Variable([0.0, 0.0], name="w/m")
    handle = slot.handle

    @tf.function(autograph=False)
    def step(grad):
        tf.raw_ops.ResourceApplyMomentum(var=weight.handle, accum=handle, lr=0.1, grad=grad, momentum=0.9)

    _, params = tf2jax_lite.convert(step, tf.TensorSpec([2]))
    assert params.keys() == {"w", "w/m"}
