"""Source as flax.nnx modules: classes, layers, attributes, updates."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import tf2jax_lite as tf2jax
from tests.export.codegen import test_structure as structure
from tests.export.codegen.checks import check_by_ruff
from tests.export.codegen.test_structure import drawn, encoder, imported, layer, scope
from tf2jax_lite.export import codegen
from tf2jax_lite.export.codegen.nnx.members import MODULE_ATTRIBUTES
from tf2jax_lite.export.codegen.nnx.variables import variables_function


def tied(count=3):
    """A table that is read twice, and scopes named like methods."""
    params = drawn(
        {"train/table": (6, 4), "eval/kernel": (4, 4), **layer([f"layer_{i}" for i in range(count)], (4, 4))}
    )

    def model(params, x):
        with scope("embed"):
            x = params["train/table"][:3] + x
        for i in range(count):
            with scope(f"layer_{i}"), scope("a"):
                x = jnp.tanh(x @ params[f"layer_{i}/kernel"] + params[f"layer_{i}/bias"])
        with scope("eval"), scope("a"):
            x = x @ params["eval/kernel"]
        return x @ params["train/table"].T

    return model, params, drawn({"x": (3, 4)})


def shared_table():
    """A table that embeds in one scope, and projects in another."""
    params = drawn({"tokens/embeddings": (6, 4), "head/bias": (6,)})

    def model(params, x):
        ids = jnp.abs(x).astype(np.int32)
        with scope("embed"), scope("a"):
            y = jnp.take(params["tokens/embeddings"], ids, axis=0, mode="fill", fill_value=0)
            y = jnp.tanh(y) * 2.0 + jnp.cos(y)
            y = jnp.sin(y) + jnp.cos(y * 3.0)
        with scope("head"), scope("a"):
            y = jnp.tanh(jnp.sin(y) + jnp.cos(y)) @ params["tokens/embeddings"].T + params["head/bias"]
            return jnp.tanh(y) * jnp.cos(y)

    return model, params, drawn({"x": (2, 3)})


def convolutions():
    params = drawn({"a/kernel": (3, 3, 2, 4), "a/bias": (4,), "b/kernel": (3, 3, 2, 4), "c/kernel": (2, 2, 4, 5)})

    def conv(x, kernel, strides, padding, dilation=(1, 1), groups=1):
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, kernel, strides, padding, None, dilation, dimension_numbers=numbers, feature_group_count=groups
        )

    def model(params, x):
        with scope("a"), scope("conv"):
            x = conv(x, params["a/kernel"], (1, 1), "SAME") + params["a/bias"]
        with scope("b"), scope("conv"):
            x = conv(x, params["b/kernel"], (2, 1), ((1, 0), (2, 2)), (1, 2), groups=2)
        with scope("c"), scope("conv"):
            return conv(x, params["c/kernel"], (1, 1), "VALID")

    return model, params, drawn({"x": (2, 6, 6, 2)})


def heads():
    params = drawn(
        {"q/kernel": (4, 2, 3), "q/bias": (2, 3), "o/kernel": (2, 3, 4), "o/bias": (4,), "k/kernel": (4, 2, 3)}
    )

    def model(params, x):
        with scope("q"), scope("a"):
            q = jnp.einsum("bta,ahd->bthd", x, params["q/kernel"]) + params["q/bias"]
        with scope("k"), scope("a"):
            q = q * jnp.einsum("bta,ahd->bthd", x, params["k/kernel"])
        with scope("o"), scope("a"):
            return jnp.einsum("bthd,hda->bta", q, params["o/kernel"]) + params["o/bias"]

    return model, params, drawn({"x": (2, 3, 4)})


def widths(sizes=(3, 5, 4, 6, 2)):
    """Equal blocks of layers of different sizes."""
    pairs = list(itertools.pairwise(sizes))
    shapes = {}
    for i, (before, after) in enumerate(pairs):
        shapes |= {f"block_{i}/a/kernel": (before, after), f"block_{i}/a/bias": (after,)}
        shapes |= {f"block_{i}/b/kernel": (after, after), f"block_{i}/b/bias": (after,)}
    params = drawn(shapes)

    def model(params, x):
        for i in range(len(pairs)):
            for name in ("a", "b"):
                with scope(f"block_{i}"), scope(name), scope("op"):
                    x = jnp.tanh(x @ params[f"block_{i}/{name}/kernel"] + params[f"block_{i}/{name}/bias"]) * 2.0
        return x

    return model, params, drawn({"x": (2, 3)})


CASES = {**structure.CASES, **{f.__name__: f for f in (tied, shared_table, convolutions, heads, widths)}}


def entry(name, function, params, inputs, *, updates=(), rng=False):
    """An entry of a function that returns its result and the values of updated params."""
    key = [jax.random.key(0)] if rng else []
    jaxpr = jax.make_jaxpr(lambda given, x, key: function(dict(zip(params, given, strict=True)), *x, *key))(
        list(params.values()), list(inputs.values()), key
    )
    arguments = {argument: codegen.Result(i) for i, argument in enumerate(inputs)}
    indices = {update: i + 1 for i, update in enumerate(updates)}
    block = codegen.from_jaxpr(jaxpr)
    return codegen.Entry(name, block, list(params), list(inputs), arguments, rng, codegen.Result(0), indices, "It.")


def written(entries, kinds=None):
    every = {name: "Param" for one in entries for name in one.variables} if kinds is None else kinds
    return codegen.write_module(entries, ["Models."], writer=codegen.classes_writer(every))


def model_of(name):
    model, params, inputs = CASES[name]()
    text, constants = written([entry("Model", lambda *args: [model(*args)], params, inputs)])
    return model, params, inputs, text, constants


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, tmp_path):
    """Also after splitting and merging, and with respect to nnx.Param."""
    model, params, inputs, text, constants = model_of(name)
    x, *others = inputs.values()

    def loss(params, x):
        return jnp.sum(jnp.sin(model(params, x, *others)))

    module, own = _variables(text, tmp_path, params, constants)
    expected = jax.value_and_grad(loss)(params, x)
    graph, state = nnx.split(module)
    value, grads = jax.value_and_grad(lambda state: jnp.sum(jnp.sin(nnx.merge(graph, state)(x, *others))))(state)
    nnx.update(module, grads)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    for key, gradient in expected[1].items():
        np.testing.assert_allclose(own[key][...], gradient, rtol=1e-5, atol=1e-6, err_msg=key)


def _variables(text, tmp_path, params, constants):
    """The model, and its variables by name."""
    source = imported(text, tmp_path)
    variables = source.to_variables(tf2jax.nest_params({**params, **constants}))
    return source.Model.from_params(variables), tf2jax.flatten_params(variables)


@pytest.mark.default_cases("encoder", "convolutions")
@pytest.mark.parametrize("name", CASES)
def test_ruff_has_nothing_to_say(name, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(model_of(name)[3])
    check_by_ruff(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder", ["self.linear = nnx.Linear(4, 4, rngs=rngs)", "nnx.List(", "for layer in self.layers:"]),
        ("tied", ["self.train_table = nnx.Param(", "self.eval_1 = nnx.Linear(4, 4, use_bias=False, rngs=rngs)"]),
        ("convolutions", ["nnx.Conv(2, 4, (3, 3), rngs=rngs)", "kernel_dilation=(1, 2)", "feature_group_count=2"]),
        (
            "heads",
            ["nnx.LinearGeneral(4, (2, 3), rngs=rngs)", "nnx.LinearGeneral((2, 3), 4, axis=(-2, -1), rngs=rngs)"],
        ),
        ("constants_differ", ["self.axis = axis", "enumerate("]),
        ("widths", ["def __init__(self, in_features, features, *, rngs):", "for in_features, features in ("]),
    ],
)
def test_source_has(name, expected):
    text = model_of(name)[3]
    for piece in expected:
        assert piece in text, text


@pytest.mark.parametrize("name", ["tied", "shared_table"])
def test_tied_params_are_one_variable(name, tmp_path):
    """Also of a new model."""
    _, params, _, text, constants = model_of(name)
    module, own = _variables(text, tmp_path, params, constants)
    new = imported(text, tmp_path).Model(rngs=nnx.Rngs(0))
    for made in (module, new):
        assert len(jax.tree.leaves(nnx.state(made))) == len(params) == len(own)


def test_names_of_classes():
    names = {"a": "serving_default", "b": "x_1", "c": "x1", "d": "exception", "e": "non_trainable"}
    assert list(codegen.class_names(names).values()) == [
        "ServingDefault",
        "X1",
        "X11",
        "ExceptionModule",
        "NonTrainable1",
    ]


def test_integers_are_multiplied_without_a_layer(tmp_path):
    params, inputs = {"kernel": np.arange(6, dtype=np.int32).reshape(2, 3)}, {"x": np.ones((4, 2), np.int32)}
    text, _ = written([entry("Model", lambda p, x: [x @ p["kernel"]], params, inputs)])
    module, _ = _variables(text, tmp_path, params, {})
    result = module(**inputs)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, inputs["x"] @ params["kernel"])


def test_methods_of_modules_are_no_attributes():
    assert {name for name in dir(nnx.Module) if not name.startswith("_")} <= MODULE_ATTRIBUTES


def _first(params, x):
    with scope("norm"), scope("a"):
        mean = x.mean(0)
        new = params["norm/mean"] * 0.9 + mean * 0.1
        y = (x - mean) * params["norm/gamma"]
    return [y, new]


def _read_later(params, x):
    return [x * params["norm/mean"] + params["norm/gamma"], x.mean(0) + params["norm/mean"]]


def _returned(params, x):
    return [params["norm/mean"], x.mean(0) + params["norm/gamma"]]


def _number(params, x):
    return [x * params["norm/mean"], jnp.zeros(4) + 2.0]


@pytest.mark.default_cases("_returned")
@pytest.mark.parametrize("function", [_first, _read_later, _returned, _number])
def test_updates_are_assigned(function, tmp_path):
    params, inputs = drawn({"norm/mean": (4,), "norm/gamma": (4,)}), drawn({"x": (3, 4)})
    kinds = {"norm/mean": "BatchStat", "norm/gamma": "Param"}
    text, constants = written([entry("Model", function, params, inputs, updates=["norm/mean"])], kinds)
    module, own = _variables(text, tmp_path, params, constants)
    assert type(own["norm/mean"]) is nnx.BatchStat and type(own["norm/gamma"]) is nnx.Param
    result, new = function({k: jnp.asarray(v) for k, v in params.items()}, inputs["x"])
    np.testing.assert_allclose(nnx.jit(lambda module, x: module(x))(module, inputs["x"]), result, rtol=1e-6)
    np.testing.assert_allclose(own["norm/mean"][...], new, rtol=1e-6)


def test_variables_that_are_exchanged(tmp_path):
    params, inputs = drawn({"a": (4,), "b": (4,)}), drawn({"x": (4,)})
    exchange = entry("Model", lambda p, x: [x + p["a"], p["b"], p["a"]], params, inputs, updates=["a", "b"])
    module, own = _variables(*written([exchange])[:1], tmp_path, params, {})
    np.testing.assert_allclose(module(inputs["x"]), inputs["x"] + params["a"], rtol=1e-6)
    np.testing.assert_array_equal(own["a"][...], params["b"])
    np.testing.assert_array_equal(own["b"][...], params["a"])


@pytest.mark.full
def test_signatures_share_classes_and_variables(tmp_path):
    model, params, inputs = encoder()
    params = {**params, "calls": np.float32(0)}

    def counted(params, x, mask):
        return [model(params, x * 2.0, mask), params["calls"] + 1.0]

    entries = [
        entry("Plain", lambda *args: [model(*args)], params, inputs),
        entry("Counted", counted, params, inputs, updates=["calls"]),
    ]
    text, _ = written(entries, {**dict.fromkeys(params, "Param"), "calls": "NonTrainable"})
    assert text.count("class Layer(") == 1
    source = imported(text, tmp_path)
    variables = source.to_variables(tf2jax.nest_params(params))
    plain, count = source.Plain.from_params(variables), source.Counted.from_params(variables)
    np.testing.assert_allclose(count(**inputs), plain(inputs["x"] * 2.0, inputs["mask"]), rtol=1e-6)
    assert variables["calls"][...] == 1 and isinstance(variables["calls"], source.NonTrainable)


@pytest.mark.full
def test_keys_are_drawn_from_rngs(tmp_path):
    params, inputs = drawn({"scale": (4,)}), drawn({"x": (3, 4)})

    def noisy(params, x, key):
        return [x * params["scale"] + jax.random.normal(key, (3, 4))]

    text, _ = written([entry("Model", noisy, params, inputs, rng=True)])
    module, _ = _variables(text, tmp_path, params, {})
    key = jax.random.key(3)
    np.testing.assert_allclose(module(**inputs, rngs=key), noisy(params, inputs["x"], key)[0], rtol=1e-6)
    rngs = nnx.Rngs(dropout=0)
    assert not np.allclose(module(**inputs, rngs=rngs), module(**inputs, rngs=rngs))


@pytest.mark.full_cases("kinds5")
@pytest.mark.parametrize(
    "kinds",
    [
        {"a/w": "Param", "b/w": "Param"},
        {"a/w": "NonTrainable", "b/w": "NonTrainable"},
        {"a/w": "Param", "a/mean": "BatchStat", "b/mean": "BatchStat"},
        {"base/x/w": "NonTrainable", "base/y/w": "NonTrainable", "head/w": "Param", "base/x/mean": "BatchStat"},
        {"base/x/w": "NonTrainable", "base/y/w": "Param", "base/y/a_long_name_of_a_param": "NonTrainable"},
        {"w": "Param", "v": "NonTrainable"},
    ],
)
def test_kinds_of_variables(kinds):
    namespace = {"jax": jax, "jnp": jnp, "nnx": nnx, "NonTrainable": type("NonTrainable", (nnx.Variable,), {})}
    exec(variables_function(kinds), namespace)
    params = tf2jax.nest_params({name: np.zeros(1, np.float32) for name in kinds})
    found = tf2jax.flatten_params(namespace["to_variables"](params))
    assert {name: type(variable).__name__ for name, variable in found.items()} == kinds
