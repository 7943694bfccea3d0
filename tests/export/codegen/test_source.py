"""Generated source has the function's results, and passes format and lint."""

import importlib.util
import itertools

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

import tf2jax_lite as tf2jax
from tests.export.codegen.checks import check_by_ruff
from tests.models import builders
from tf2jax_lite.errors import ExportError
from tf2jax_lite.export import artifact, codegen, symbolic_dims
from tf2jax_lite.export.codegen import formatter, literals, names
from tools.reliability.strange_protos import FLOAT, X, const, node


def keras_model(build):
    def make():
        model, x = build(keras)
        spec = tf.nest.map_structure(lambda a: tf.TensorSpec([None, *np.shape(a)[1:]], np.asarray(a).dtype), x)
        fn, params = tf2jax.convert(tf.function(lambda inputs: model(inputs, training=False)), spec)
        return fn, params, (x,)

    return make


def control_flow():
    weight = tf.Variable([1.0, -2.0, 0.5], name="weight")
    calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function
    def fn(x, flag):
        calls.assign_add(1)
        y = tf.zeros([3])
        for i in tf.range(5):
            y = y * tf.sin(x) + tf.cast(i, tf.float32) * weight
        while tf.reduce_sum(y) < 100.0:
            y = y * 2.0 + 1.0
        if flag:
            y = tf.nn.relu(y - 1.0)
        return {"y": y, "pair": (x, tf.random.normal([3])), "constant": tf.range(40) ** 2}

    fn, params = tf2jax.convert(fn, tf.TensorSpec([3]), tf.TensorSpec([], tf.bool))
    return fn, params, (np.float32([0.1, 0.2, 0.3]), np.asarray(True))


def loops_of_several_arrays():
    """Markers around dynamic loops have as many results as the loop has arrays."""

    def fn(x, y):
        most = tf.reduce_sum(tf.abs(x))
        while tf.reduce_sum(tf.abs(y)) < most:
            x, y = x + tf.sin(y), 1.5 * y
        return x, y

    fn, params = tf2jax.convert(tf.function(fn), *[tf.TensorSpec([None])] * 2)
    return fn, params, (np.float32([3, 5]), np.float32([0.5, 0.1]))


def bounded_loop():
    """A loop as a scan up to its bound has reverse mode in source."""
    weight = tf.Variable([0.4, 0.7, 0.9], name="weight")

    def fn(x):
        return tf.while_loop(lambda x: tf.reduce_sum(x) > 1.0, lambda x: (x * weight,), (x,), maximum_iterations=10)[0]

    with tf2jax.override_config("loop_bound", "scan"):
        fn, params = tf2jax.convert(tf.function(fn), tf.TensorSpec([3]))
    return fn, params, (np.float32([1, 2, 3]),)


def custom_gradient():
    @tf.custom_gradient
    def clipped(x):
        return tf.identity(x), lambda g: tf.clip_by_norm(g, 0.1)

    @tf.function
    def fn(x, indices):
        return tf.reduce_sum(tf.gather(clipped(x * x), indices)) + tf.reduce_max(tf.sort(x))

    fn, params = tf2jax.convert(fn, tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32))
    return fn, params, (np.float32([3.0, 1.0, 2.0]), np.int32([2, 0]))


def recomputed():
    weights = tf.Variable([1.0, 2.0, 3.0], name="weights")

    @tf.recompute_grad
    def block(x):
        return tf.nn.silu(x * weights) * tf.exp(x)

    fn, params = tf2jax.convert(tf.function(lambda x: block(x * x)), tf.TensorSpec([None, 3]))
    return fn, params, (np.float32([[0.3, 1.0, 0.2], [-0.5, 0.1, 2.0]]),)


def refused():
    @tf.function
    def fn(x):
        return tf.raw_ops.PreventGradient(input=x * x, message='it "is" not wanted, ' + "if you ask, " * 8)

    fn, params = tf2jax.convert(fn, tf.TensorSpec([None]))
    return fn, params, (np.float32([1.0, 3.0]),)


def dropout():
    """Keras 3's seeds are variables: 64-bit counters, carried as pairs of words."""
    layer = keras.layers.Dropout(0.5, seed=3)
    function = tf.function(lambda x: layer(x, training=True) * tf.stack([x, x], -1)[..., 0])
    fn, params = tf2jax.convert(function, tf.TensorSpec([None, 3]))
    return fn, params, (np.float32([[0.3, 1.0, 0.2], [-0.5, 0.1, 2.0]]),)


def shuffled():
    converted = tf2jax.convert(tf.function(lambda x: tf.random.shuffle(x)), tf.TensorSpec([30, 2]))
    return *converted, (np.float32(np.arange(60)).reshape(30, 2),)


def nested_inputs():
    @tf.function
    def fn(batch, scale):
        return [batch["ids"] + 1, (batch["pair"][0] * scale, batch["pair"][1])]

    spec = tf.TensorSpec([None, 2])
    fn, params = tf2jax.convert(fn, {"ids": tf.TensorSpec([None], tf.int32), "pair": (spec, spec)}, tf.TensorSpec([]))
    x = np.ones((3, 2), np.float32)
    return fn, params, ({"ids": np.int32([1, 2]), "pair": (x, 2 * x)}, np.float32(3))


MODELS = {
    "control_flow": control_flow,
    "loops_of_several_arrays": loops_of_several_arrays,
    "bounded_loop": bounded_loop,
    "custom_gradient": custom_gradient,
    "recomputed": recomputed,
    "refused": refused,
    "dropout": dropout,
    "shuffled": shuffled,
    "nested_inputs": nested_inputs,
    "small_cnn": keras_model(builders.small_cnn),
    "tabular": keras_model(builders.tabular),
    "gru": keras_model(lambda K: builders.recurrent(K, "GRU", bidirectional=True)),
    "gpt_like": keras_model(lambda K: builders.transformer(K, causal=True)),
}


def written(fn, params):
    converted = artifact.converted_function(fn)
    staged = symbolic_dims.stage_symbolic(converted, None, params)
    return codegen.write_module(
        [artifact.entry("model", converted, staged, "model")], ["A model."], random="tensorflow"
    )


def nested(params, constants):
    return tf2jax.nest_params({**params, **constants})


def imported(text, path):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("generated", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.default_cases("refused")
@pytest.mark.parametrize("name", MODELS)
def test_source_computes_the_same(name, tmp_path):
    fn, params, args = MODELS[name]()
    text, constants = written(fn, params)
    assert written(fn, params)[0] == text, "source differs from run to run"
    module = imported(text, tmp_path / "model.py")
    rng = {"rng": jax.random.key(0)} if artifact.converted_function(fn).program.random_nodes else {}
    expected = fn(params, *args, **rng)
    full = nested(params, constants)
    for model in (module.model, jax.jit(module.model)):
        results, state = model(full, *args, **rng)
        state = tf2jax.flatten_params(state)
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=2e-5, atol=2e-5), expected[0], results)
        assert jax.tree.structure(results) == jax.tree.structure(expected[0])
        for key, value in expected[1].items():
            np.testing.assert_array_equal(state[key], value)

    inexact = {k: jnp.asarray(v) for k, v in params.items() if jnp.issubdtype(v.dtype, jnp.inexact)}
    if name == "control_flow" or not inexact:  # a written lax.while_loop goes forwards only
        return

    def loss(call, weights):
        leaves = jax.tree.leaves(call({**params, **constants, **weights}, *args, **rng)[0])
        return sum(jnp.sum(jnp.sin(x)) for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact))

    def written_model(flat, *args, **rng):
        return module.model(tf2jax.nest_params(flat), *args, **rng)

    grads = [jax.jit(jax.grad(lambda w, call=call: loss(call, w)))(inexact) for call in (fn, written_model)]
    jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4), *grads)


@pytest.mark.full
def test_inputs_without_gradient_get_none(tmp_path):
    """Zeros instead would be NaN where the forward code has infinite derivatives."""

    @tf.custom_gradient
    def log1pexp(x):
        e = tf.exp(x)
        return tf.math.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    fn, params = tf2jax.convert(tf.function(log1pexp), tf.TensorSpec([2]))
    x = np.float32([100.0, 1.0])
    expected = [1.0, 1 / (1 + np.exp(-1.0))]
    text, constants = written(fn, params)
    module = imported(text, tmp_path / "model.py")
    for call in (lambda x: fn(params, x)[0], lambda x: module.model(nested(params, constants), x)[0]):
        np.testing.assert_allclose(jax.vjp(call, x)[1](np.ones_like(x))[0], expected, rtol=1e-6)


@pytest.mark.full
def test_products_that_are_nothing(tmp_path):
    def fn(x, y):
        return tf.math.multiply_no_nan(x, y) + tf.raw_ops.SqrtGrad(y=x, dy=y)

    converted, params = tf2jax.convert(tf.function(fn), tf.TensorSpec([3]), tf.TensorSpec([3]))
    text, constants = written(converted, params)
    model = imported(text, tmp_path / "model.py").model
    x, y = np.float32([np.nan, np.inf, 2.0]), np.float32([0.0, 0.0, 3.0])
    constants = tf2jax.nest_params(constants)
    np.testing.assert_array_equal(model(constants, x, y)[0], fn(x, y))
    x = np.float32([1.0, 4.0, 2.0])
    for order in (jax.grad, lambda f: jax.grad(lambda y: jax.grad(f)(y).sum())):
        expected = order(lambda y: (converted(params, x, y)[0] ** 3).sum() + y.sum() ** 2)(y)
        actual = order(lambda y: (model(constants, x, y)[0] ** 3).sum() + y.sum() ** 2)(y)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.full
def test_gradient_of_inputs_with_derivative_rules(tmp_path):
    fn, params, (x, indices) = custom_gradient()
    text, constants = written(fn, params)
    module = imported(text, tmp_path / "model.py")
    assert "@jax.custom_jvp" in text
    expected = jax.grad(lambda x: fn(params, x, indices)[0])(x)
    actual = jax.grad(lambda x: module.model(nested(params, constants), x, indices)[0])(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.full
def test_functions_that_differ_in_their_gradients_alone(tmp_path):
    """Each has its own; identical ones are written once."""

    def scaled(factor):
        return tf.custom_gradient(lambda x: (tf.identity(x), lambda g: g * factor))

    @tf.function
    def fn(x):
        return scaled(3.0)(x) + 2.0 * scaled(5.0)(x) + scaled(3.0)(x)

    fn, params = tf2jax.convert(fn, tf.TensorSpec([None]))
    text, constants = written(fn, params)
    model = imported(text, tmp_path / "model.py").model
    x = np.float32([1.0, 2.0])
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(model(nested(params, constants), x)[0]))(x), [16.0, 16.0])
    assert text.count("@jax.custom_jvp") == 2


@tf.custom_gradient
def _doubled(x):
    """Return a hyperbolic tangent with twice its gradient."""
    y = tf.tanh(x)
    return y, lambda dy: dy * 2.0 * (1.0 - y * y)


@tf.custom_gradient
def _clipped(x):
    return x * x, lambda dy: tf.clip_by_value(dy, -0.5, 0.5)


@tf.custom_gradient
def _offset(x):
    """Its gradient is not 0 where the incoming gradient is."""
    return x * x, lambda dy: dy * 2.0 + x


@tf.custom_gradient
def _constant(x):
    return x * x, lambda dy: tf.ones_like(x) * 7.0


@tf.custom_gradient
def _looped(x):
    """Its gradient is multiplied by 1.5 until the other operand is large."""

    def gradient(dy):
        ends = lambda y, _: tf.reduce_sum(y * y) < 30.0  # noqa: E731
        return tf.while_loop(ends, lambda y, dy: (y + 1.0, dy * 1.5), (x, dy))[1]

    return x + 1.0, gradient


@pytest.mark.full
@pytest.mark.parametrize(
    ("fn", "rule"),
    [(_doubled, "jvp"), (tf.nn.silu, None), (_clipped, "vjp"), (_looped, "vjp"), (_offset, "vjp"), (_constant, "vjp")],
)
def test_custom_gradients_in_both_directions(fn, rule, tmp_path):
    """Forward mode for linear gradients, which JAX can transpose once more."""
    own, params = tf2jax.convert(tf.function(lambda x: fn(tf.sin(x))), tf.TensorSpec([3]))
    text, constants = written(own, params)
    assert ("jax.nn.silu" if rule is None else f"@jax.custom_{rule}") in text
    model = imported(text, tmp_path / "model.py").model
    x = np.float32([1.0, 4.0, 2.0])

    def all_of(function):
        loss = lambda x: jnp.sum(jnp.sin(function(x)))  # noqa: E731
        found = [function(x), jax.grad(loss)(x), jax.vmap(jax.grad(loss))(np.stack([x, -x]))]
        if rule != "vjp":
            found += [jax.jvp(function, (x,), (x,))[1], jax.hessian(loss)(x), jax.jacrev(jax.grad(loss))(x)]
        return found

    actual = all_of(lambda x: model(nested(params, constants), x)[0])
    for a, e in zip(actual, all_of(lambda x: own(params, x)[0]), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_derivatives_that_are_refused(tmp_path):
    """The values are written; differentiation raises the reason, as before."""
    fn, params, (x,) = refused()
    text, constants = written(fn, params)
    model = imported(text, tmp_path / "model.py").model
    for derivative in (jax.grad, jax.jacfwd):
        with pytest.raises(ValueError, match='it "is" not wanted'):
            derivative(lambda x: jnp.sum(model(nested(params, constants), x)[0]))(x)


def test_structure_and_names(tmp_path):
    fn, params, _ = control_flow()
    text, constants = written(fn, params)
    assert "lax.scan(" in text and "lax.while_loop(" in text
    assert 'params["weight"]' in text and '"calls": ' in text
    assert "def model(params, x, flag, *, rng):" in text
    assert list(constants) and all(name.startswith("constants/") for name in constants)
    fn, params, _ = MODELS["small_cnn"]()
    text, _ = written(fn, params)
    assert "_conv(" in text and "# f32[" not in text
    assert text.count("@jax.custom_jvp") < 6, "equal functions are written once"


@pytest.mark.parametrize("name", MODELS)
def test_ruff_has_nothing_to_say(name, tmp_path):
    fn, params, _ = MODELS[name]()
    path = tmp_path / "model.py"
    path.write_text(written(fn, params)[0])
    check_by_ruff(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Conv2D", "conv2_d"),
        ("BiasAdd", "bias_add"),
        ("dense_1/MatMul", "dense_1_mat_mul"),
        ("2nd", "n2nd"),
        ("feedforward_intermediate_dense", "feedforward_intermediate_dense"),
        ("a_long_name_" * 5, "a_long_name_a_long_name_a_long_name_a"),
        ("x" * 50, "x" * 40),
        ("--", "value"),
    ],
)
def test_identifiers(text, expected):
    assert names.identifier(text).isidentifier()
    assert names.identifier(text).replace("2_d", "2d") == expected.replace("2_d", "2d")


def test_names_are_handed_out_once():
    given = names.Names()
    assert [given.new("x"), given.new("x"), given.new("x_1"), given.new("lambda")] == ["x", "x_1", "x_1_1", "lambda_1"]


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float32(-3.4028235e38),
        np.float32(np.inf),
        np.float64(1e-300),
        np.int64(2**40),
        np.uint32(2**32 - 1),
        np.int8(-128),
        np.bool_(True),
        np.complex64(1 - 2j),
        jnp.bfloat16(1.5),
        np.arange(7),
        np.full((2, 3), 4.0),
        np.array([[True, False]]),
        np.zeros((0, 2), np.float32),
        np.tri(4, dtype=bool),
        np.tri(40, 50, -3, dtype=np.float32)[None],
        ~np.tri(30, 20, 2, dtype=bool)[None, None],
        np.triu(np.ones((5, 5), np.int32)),
    ],
)
def test_literals_read_back(value):
    found = np.asarray(eval(literals.array(np.asarray(value)), {"np": np, "jnp": jnp}))  # our own text
    assert found.dtype == value.dtype and found.shape == np.shape(value)
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.tri(50, dtype=bool)[None, None], "np.tri(50, dtype=np.bool_)[None, None]"),
        (np.tri(50, 40, -2), "np.tri(50, 40, k=-2, dtype=np.float64)"),
        (~np.tri(50, dtype=bool), "~np.tri(50, dtype=np.bool_)"),
        (np.tri(50, 50, 3, bool), "np.tri(50, k=3, dtype=np.bool_)"),
        (np.tri(50) * 2, ""),
        (np.eye(50), ""),
        (np.stack([np.tri(50)] * 2), ""),
    ],
)
def test_triangles(value, expected):
    assert literals.triangle(value) == expected


def test_dimensions():
    b, d = jax.export.symbolic_shape("b, d")
    assert eval(literals.dimension((b * 2 + d) // 3), {"b": 5, "d": 1}) == 3
    assert eval(literals.dimension(b % 4), {"b": 7}) == 3
    assert eval(literals.dimension(jax.core.max_dim(b - 3, 0)), {"b": 1, "max": max}) == 0


STATEMENTS = [
    f"({'a' * n}, {'b' * n}), {'c' * n} = lax.scan(body, ({'a' * n}, {'b' * n}), {'c' * n})" for n in (3, 20, 30, 45)
] + [
    f"x = {call}"
    for n in (8, 54, 60)
    for call in (f"f(g({'a' * n}, i) for i in {'b' * 20})", f"[{'a' * n} for i in x]")
]


def test_statements_are_broken_as_ruff_does(tmp_path):
    path = tmp_path / "statements.py"
    path.write_text("\n".join(line for text in STATEMENTS for line in formatter.statement(text, 0)) + "\n")
    check_by_ruff(path, ["format", "--diff"])


def test_long_statements_are_broken():
    text = "value = lax.conv_general_dilated(" + ", ".join(f"argument_{i}" for i in range(12)) + ", padding=((0, 1),))"
    lines = formatter.statement(text, 4)
    assert all(len(line) <= formatter.WIDTH for line in lines)
    assert "".join(lines).replace(" ", "").replace(",)", ")") == text.replace(" ", "").replace(",)", ")")


@pytest.mark.full
@pytest.mark.parametrize("name", ["small_cnn", pytest.param("gpt_like", marks=pytest.mark.full)])
def test_source_written_with_64_bits(name, tmp_path):
    """A bare 0.0 would be a float64 to lax.max then."""
    with jax.enable_x64(True):
        fn, params, args = MODELS[name]()
        text, constants = written(fn, params)
        results, _ = imported(text, tmp_path / "model.py").model(nested(params, constants), *args)
        np.testing.assert_allclose(results, fn(params, *args)[0], rtol=2e-5, atol=2e-5)


STRANGE = ('"', '"' * 3, "'" * 3, "a\nb", "a\0b", "a\\", '\\"', "\u2028", "{x}", "a\rb", "#\n")


LONG_SCOPE = ("Tanh", "Sin", "Cos", "Neg", "Exp", "Sinh", "Abs", "Cosh", "Square", "Atan")
"""Ops of a scope that is long enough for a function of its own."""


@pytest.mark.parametrize("name", STRANGE)
def test_names_never_become_code(name, tmp_path):
    """Names of an untrusted model, also in titles, never become code."""
    attack = f"{name}touched(1)#{name}{chr(34) * 3}\n    touched(1)\n    {chr(34) * 3}{name}"
    nodes = [
        X,
        const(f"w{attack}", np.float32([1, 2])),
        node(f"{attack}/a", "Tanh", "x", T=FLOAT),
        node(f"{attack}/e", "AddV2", f"{attack}/a", f"w{attack}", T=FLOAT),
        *(
            node(f"{attack}/{b}", op, f"{attack}/{a}", T=FLOAT)
            for (a, b), op in zip(itertools.pairwise("efghijklmnb"), LONG_SCOPE, strict=True)
        ),
        node("c/d", "Exp", f"{attack}/b", T=FLOAT),
        node(f"y{attack}", "AddV2", "c/d", f"{attack}/a", T=FLOAT),
    ]
    graph = graph_pb2.GraphDef(node=nodes, versions={"producer": 1882})
    fn, params = tf2jax.convert_graph_def(graph.SerializeToString(), ["x"], [f"y{attack}"])
    converted = artifact.converted_function(fn)
    staged = symbolic_dims.stage_symbolic(converted, None, params)
    text, _ = codegen.write_module([artifact.entry(attack, converted, staged, "model")], [attack, attack])
    assert '"""Compute ' in text
    x = np.float32([0.5, 1])
    actual, _ = imported(text, tmp_path / "model.py").model(tf2jax.nest_params(params), x)
    np.testing.assert_allclose(actual[0], fn(params, x)[0][0], rtol=1e-6)


def nested_loops(levels):
    def nested(x, levels):
        if not levels:
            return tf.tanh(x)
        return tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, nested(v, levels - 1)), [0, x])[1]

    return tf.function(lambda x: nested(x, levels))


@pytest.mark.full
def test_deeply_nested_loops(tmp_path):
    converted, params = tf2jax.convert(nested_loops(16), tf.TensorSpec([2], tf.float32))
    report = tf2jax.export_functions({"f": (converted, params)}, tmp_path / "out", platforms=["cpu"])
    assert not report.warnings
    assert "lax." in (tmp_path / "out" / "model.py").read_text()


def test_a_primitive_that_cannot_be_read(tmp_path, monkeypatch):
    """There is no source then; without StableHLO, there is no artifact."""

    def refuse(jaxpr):
        raise KeyError("jaxpr of a primitive that is not known")

    monkeypatch.setattr(artifact.codegen, "from_jaxpr", refuse)
    made = tf2jax.convert(nested_loops(2), tf.TensorSpec([2], tf.float32))
    report = tf2jax.export_functions({"f": made}, tmp_path / "out", platforms=["cpu"])
    assert any("no source: f: KeyError: 'jaxpr of a primitive" in warning for warning in report.warnings)
    assert not (tmp_path / "out" / "model.py").exists()
    loaded, params = tf2jax.load(tmp_path / "out")
    np.testing.assert_allclose(loaded(params, np.ones(2))[0], made[0](made[1], np.ones(2))[0])
    with pytest.raises(ExportError, match="no way to run 'f': no source"):
        tf2jax.export_functions({"f": made}, tmp_path / "nothing", stablehlo=False)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("name", ["linear_solve", "scatter_apply", "unheard_of"])
def test_a_primitive_without_source_form(name):
    """Reading accepts it, as its module may be usable; writing raises."""
    primitive = jex.Primitive(name)
    primitive.def_abstract_eval(lambda x: x)
    block = codegen.from_jaxpr(jax.make_jaxpr(primitive.bind)(np.float32(1)))
    entry = codegen.Entry("f", block, [], ["x"], {"x": codegen.Result(0)}, False, codegen.Result(0), {}, [])
    with pytest.raises(ExportError, match=f"{name!r} cannot be written as source"):
        codegen.write_module([entry], ["A model."])


def pooled():
    model = keras.Sequential(
        [keras.Input((None, None, 3)), keras.layers.MaxPool2D(), keras.layers.GlobalAveragePooling2D()]
    )
    return model, [None, None, None, 3]


def recurrent():
    return keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4)]), [None, None, 3]


def of_sizes():
    def fn(x):
        n, m = tf.unstack(tf.shape(x))
        padded = tf.pad(x, [[0, 1], [1, n]])
        return tf.reshape(x, [n * m]), tf.range(n, dtype=tf.float32), padded, tf.one_hot(tf.argmax(x, 1), m), x[: n - 1]

    return fn, [None, None]


@pytest.mark.full
@pytest.mark.parametrize("build", [pooled, recurrent, of_sizes])
def test_source_is_exported_again_for_all_sizes(build, tmp_path):
    """Sizes are symbolic dimensions then, which NumPy cannot make numbers of."""
    model, shape = build()
    fn, params = tf2jax.convert(tf.function(model, autograph=False), tf.TensorSpec(shape))
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", stablehlo=False)
    loaded, params = tf2jax.load(tmp_path / "out", backend="source")
    names = [d if d else f"d{i}" for i, d in enumerate(shape)]
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape(", ".join(map(str, names))), np.float32)
    exported = jax.export.export(jax.jit(lambda params, x: loaded(params, x)[0]))(params, spec)
    x = np.random.default_rng(0).normal(size=[d or 5 for d in shape]).astype(np.float32)
    found, wanted = (jax.tree.leaves(out) for out in (exported.call(params, x), loaded(params, x)[0]))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_code_nested_deeper_than_python_reads(tmp_path, monkeypatch):
    """There is no source then. A loop takes one level of a hundred."""

    def refuse(text):
        raise IndentationError("too many levels of indentation")

    monkeypatch.setattr("tf2jax_lite.export.codegen.module.ast.parse", refuse)
    converted, params = tf2jax.convert(nested_loops(2), tf.TensorSpec([2], tf.float32))
    report = tf2jax.export_functions({"f": (converted, params)}, tmp_path / "out", platforms=["cpu"])
    assert any("no source: loops and branches are nested deeper" in warning for warning in report.warnings)
    assert not (tmp_path / "out" / "model.py").exists()
