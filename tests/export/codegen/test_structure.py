"""Equal layers as one function, repeated ones as loops, params nested by scope."""

import ast
import collections
import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from safetensors.numpy import save_file

import tf2jax_lite as tf2jax
from tests.export.codegen.checks import check_by_ruff
from tf2jax_lite.export import codegen
from tf2jax_lite.export.codegen.structure import sequences
from tf2jax_lite.export.codegen.structure.folding import fold
from tf2jax_lite.export.codegen.structure.plans import role
from tf2jax_lite.export.codegen.templates import Marks, Ref, Stmt

scope = jax.named_scope


def drawn(shapes):
    rng = np.random.default_rng(0)
    return {name: (0.4 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def dense(params, name, x):
    with scope(name.rsplit("/", 1)[-1]), scope("MatMul"):
        return jnp.tanh(x @ params[f"{name}/kernel"] + params[f"{name}/bias"]) * 2.0


def numbered(name, index):
    return f"{name}_{index}" if index else name


def layer(names, sizes):
    return {k: v for name in names for k, v in ((f"{name}/kernel", sizes), (f"{name}/bias", sizes[1:]))}


def encoder(count=4):
    """Layers with scopes of their own."""
    params = drawn(layer([f"encoder/layer_{i}/{part}" for i in range(count) for part in ("up", "down")], (4, 4)))

    def model(params, x, mask):
        with scope("model"), scope("encoder"):
            for i in range(count):
                with scope(f"layer_{i}"):
                    hidden = dense(params, f"encoder/layer_{i}/up", x)
                    with scope("mul"):
                        hidden = hidden * mask
                    hidden = dense(params, f"encoder/layer_{i}/down", hidden)
                    with scope("add"):
                        x = x + hidden
        return x

    return model, params, drawn({"x": (3, 4), "mask": (3, 4)})


def flat_layers(count=5):
    """Layers whose only names are those that Keras numbers."""
    names = [numbered("dense", i) for i in range(2 * count)]
    params = drawn(layer([*names, "head"], (4, 4)))

    def model(params, x):
        with scope("model"):
            for i in range(count):
                hidden = dense(params, names[2 * i], x)
                hidden = dense(params, names[2 * i + 1], hidden)
                with scope(numbered("add", i)), scope("add"):
                    x = jnp.sin(x + hidden) - hidden
            return dense(params, "head", x)

    return model, params, drawn({"x": (3, 4)})


def stages(counts=(3, 4)):
    """Blocks whose names have one prefix, of different widths."""
    params, width = {}, 4
    for stage, count in enumerate(counts):
        for block in range(count):
            name = f"stage{stage}_block{block}"
            params |= layer([f"{name}_1_dense"], (width, 4 * (stage + 1)))
            width = 4 * (stage + 1)
            params |= layer([f"{name}_2_dense"], (width, width))
    params = drawn(params)

    def model(params, x):
        with scope("model"):
            for stage, count in enumerate(counts):
                for block in range(count):
                    name = f"stage{stage}_block{block}"
                    hidden = dense(params, f"{name}_1_dense", x)
                    hidden = dense(params, f"{name}_2_dense", hidden)
                    with scope(f"{name}_out"), scope("add"):
                        x = jnp.sin(hidden) + hidden
        return x

    return model, params, drawn({"x": (3, 4)})


def skips(count=4):
    """Results of all iterations are used, in reverse order."""
    params = drawn(layer([f"{part}_{i}" for part in ("down", "more", "up") for i in range(count)], (4, 4)))

    def model(params, x):
        kept = []
        with scope("model"):
            for i in range(count):
                x = dense(params, f"down_{i}", x)
                x = dense(params, f"more_{i}", x)
                kept.append(x)
                with scope(f"pool_{i}"), scope("a"):
                    x = jnp.cos(x * 0.5) + 1.0
            for i in range(count):
                x = dense(params, f"up_{i}", x)
                with scope(f"join_{i}"), scope("a"):
                    x = x * kept.pop() + jnp.sin(x)
        return x

    return model, params, drawn({"x": (3, 4)})


def images(strides=(1, 2, 1, 2, 2)):
    """Convolutions that differ in strides, and batch norms of [1, 1, 1, C]."""
    shapes = {}
    for i, _ in enumerate(strides):
        shapes |= {f"conv_{i}/kernel": (3, 3, 2, 2), f"conv_{i}/bias": (2,)}
        shapes |= {f"norm_{i}/{part}": (2,) for part in ("mean", "variance", "gamma", "beta")}
    params = {name: abs(value) + 0.1 for name, value in drawn(shapes).items()}

    def model(params, x):
        for i, stride in enumerate(strides):
            with scope(f"conv_{i}"), scope("a"):
                kernel, numbers = params[f"conv_{i}/kernel"], ("NHWC", "HWIO", "NHWC")
                x = lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=numbers)
                x = x + params[f"conv_{i}/bias"]
            with scope(f"norm_{i}"), scope("a"):
                variance, mean, gamma, beta = (
                    params[f"norm_{i}/{part}"].reshape(1, 1, 1, 2) for part in ("variance", "mean", "gamma", "beta")
                )
                scale = lax.rsqrt(variance + 1e-3) * gamma
                x = x * scale + (beta - mean * scale)
            with scope(f"out_{i}"), scope("a"):
                x = jnp.sin(x) * 2.0 + jnp.cos(x)
        return x

    return model, params, drawn({"x": (1, 16, 16, 2)})


def constants_differ(count=3):
    params = drawn(layer([f"layer_{i}" for i in range(count)], (4, 4)))

    def model(params, x):
        for i, axis in enumerate((0, 1, 0)[:count]):
            with scope(f"layer_{i}"), scope("a"):
                x = jnp.tanh(x @ params[f"layer_{i}/kernel"]) * (0.5 + i**2)
                x = jnp.cumsum(x + params[f"layer_{i}/bias"], axis)
        return x

    return model, params, drawn({"x": (3, 4)})


def in_a_loop(count=6):
    """Layers in the body of a loop, and values that it reads from outside."""
    params = drawn(layer([f"layer_{i}" for i in range(count)], (4, 4)))

    def model(params, x):
        def body(carry, factor):
            for i in range(count):
                carry = dense(params, f"layer_{i}", carry)
                with scope(numbered("mul", i)):
                    carry = carry * factor + x
            return carry, carry.sum()

        carry, sums = jax.lax.scan(body, x * 2.0, jnp.arange(3.0))
        return carry + sums.sum()

    return model, params, drawn({"x": (3, 4)})


def interleaved():
    """Equations of two scopes that alternate."""
    params = drawn(layer(["left", "right"], (4, 4)))

    def model(params, x):
        y = x
        for _ in range(4):
            with scope("left"), scope("a"):
                x = jnp.tanh(x @ params["left/kernel"]) + params["left/bias"]
            with scope("right"), scope("a"):
                y = jnp.tanh(y @ params["right/kernel"]) + params["right/bias"]
        return x - y

    return model, params, drawn({"x": (3, 4)})


def shared(count=3):
    """A value that TensorFlow computes in the first of the scopes that use it."""
    params = drawn(layer([f"tower_{i}" for i in range(count)], (4, 4)))

    def model(params, x):
        with scope("tower_0"), scope("cos"):
            first = jnp.cos(x)
        return sum(jnp.square(dense(params, f"tower_{i}", first)) for i in range(count))

    return model, params, drawn({"x": (3, 4)})


def counted():
    """Blocks whose params have numbers in their names."""
    params = drawn(layer([f"layer_{i}_{part}" for i in range(6) for part in ("up", "down")], (4, 4)))

    def small(params, name, x):
        x = jnp.sin(dense(params, f"{name}_up", x))
        return jnp.cos(dense(params, f"{name}_down", x)) + x

    def model(params, x):
        for i in (0, 4):
            x = jnp.tanh(x @ params[f"layer_{i}_up/kernel"]) @ params[f"layer_{i}_down/kernel"]
            x = jnp.exp(-jnp.square(x)) * params[f"layer_{i}_up/bias"] + params[f"layer_{i}_down/bias"]
            x = small(params, f"layer_{i + 1}", x) * 0.5
        return small(params, "layer_3", small(params, "layer_2", x))

    return model, params, drawn({"x": (3, 4)})


def bare_names():
    """A layer whose name begins those of others."""
    names = ("first", "stem_2", "head_a")
    params = drawn({k: v for n in names for k, v in ((f"{n}/kernel", (4, 4)), (f"{n}_norm/scale", (4,)))})

    def model(params, x):
        for name in names:
            x = jnp.sin(jnp.tanh(x @ params[f"{name}/kernel"]) * params[f"{name}_norm/scale"]) + jnp.cos(x)
            x = jnp.exp(-jnp.square(x)) / (1 + jnp.square(jnp.sin(x)))
        return x

    return model, params, drawn({"x": (3, 4)})


def scopes_that_are_params():
    params = drawn({"w": (4,), "w/m": (4,), "w/m/deep": (4,), "constants": (4,)})

    def model(params, x):
        return x * params["w"] + params["w/m"] * params["w/m/deep"] - params["constants"] @ np.eye(5, 4, 1)[:4]

    return model, params, drawn({"x": (3, 4)})


def constants_in_loops():
    """Functions take a constant, and loop over others of equal shapes."""
    params = drawn({"kernel": (4, 4)})

    def model(params, x):
        for tower, last in enumerate((0.5, 0.25)):
            with scope(f"tower_{tower}"):
                for i, factor in enumerate((1.25, 0.75, 1.5, 0.5)):
                    with scope(f"step_{i}"), scope("a"):
                        y = jnp.cos(jnp.tanh(x @ params["kernel"]) * factor)
                        x = jnp.sin(y * y + x) - jnp.cos(y)
                with scope("scale"):
                    x = x * last
        return x

    return model, params, drawn({"x": (3, 4)})


CASES = {
    f.__name__: f
    for f in (
        encoder,
        flat_layers,
        stages,
        skips,
        constants_differ,
        in_a_loop,
        interleaved,
        images,
        shared,
        counted,
        bare_names,
        scopes_that_are_params,
        constants_in_loops,
    )
}


def written(name, **options):
    model, params, inputs = CASES[name]()
    jaxpr = jax.make_jaxpr(lambda given, x: [model(dict(zip(params, given, strict=True)), *x)])(
        list(params.values()), list(inputs.values())
    )
    arguments = {key: codegen.Result(i) for i, key in enumerate(inputs)}
    block = codegen.from_jaxpr(jaxpr)
    entry = codegen.Entry("model", block, list(params), list(inputs), arguments, False, codegen.Result(0), {}, "It.")
    text, constants = codegen.write_module([entry], ["A model."], **options)
    return model, params, inputs, text, constants


def imported(text, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("generated", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.full
@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, scan_layers, tmp_path):
    model, params, inputs, text, constants = written(name, scan_layers=scan_layers)
    module = imported(text, tmp_path)
    x, *others = inputs.values()

    def source(params, x, *others):
        return module.model(tf2jax.nest_params({**params, **constants}), x, *others)[0]

    def loss(call):
        return lambda params, x: jnp.sum(jnp.sin(call(params, x, *others)))

    expected, actual = (jax.value_and_grad(loss(call), (0, 1))(params, x) for call in (model, source))
    jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6), expected, actual)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_equal_functions_are_one(name):
    """No two functions are equal up to names and constants; loops call layers."""
    text = written(name)[3]
    seen = collections.Counter()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            names = {}
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    inner.id = names.setdefault(inner.id, str(len(names)))
                elif isinstance(inner, ast.arg):
                    inner.arg = names.setdefault(inner.arg, str(len(names)))
                elif isinstance(inner, ast.Constant):
                    inner.value = 0
            node.name = ""
            seen[ast.dump(node)] += 1
    assert max(seen.values()) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder", ["for i in range(4):", 'params["encoder"][f"layer_{i}"]', 'params["up"]']),
        (
            "flat_layers",
            ["def _block(params, x, index):", '_numbered("dense", index)', "_block(params, x, index=2 * i)"],
        ),
        ("stages", ['f"{name}_1_dense"', '"stage1_block3",', "name=name"]),
        ("skips", [".append(", 'params[f"down_{index}"]']),
        ("shared", ["def _tower(params, x):", "cos = jnp.cos(x)\n", "tower = _tower("]),
        ("counted", ["def _block(params, x, index):", 'params[f"layer_{index + 1}_up"]', "index=4)"]),
        ("bare_names", ['params[f"{name}_norm"]["scale"]', 'params[name]["kernel"]', 'for name in ("first", ']),
        ("constants_differ", ["def _layer(params, x, value, axis):", "for i, (value, axis) in enumerate("]),
        ("in_a_loop", ["    for i in range(6):"]),
        ("constants_in_loops", ["def _tower(params, x, value_1):", "for value in (1.25, 0.75, 1.5, 0.5):"]),
        ("images", ["def _conv_norm(params, x, index, strides=(1, 1)):", 'params["variance"]', "(2, 2))):"]),
        ("interleaved", ["for _ in range(4):"]),
        ("scopes_that_are_params", ['params["w/m/deep"]', '"/".join(']),
    ],
)
def test_source_has(name, expected):
    text = written(name)[3]
    for piece in expected:
        assert piece in text, text


@pytest.mark.default_cases("stages-False", "flat_layers-True", "constants_differ-False")
@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_ruff_has_nothing_to_say(name, scan_layers, tmp_path):
    path = tmp_path / "model.py"
    path.write_text(written(name, scan_layers=scan_layers)[3])
    check_by_ruff(path)


def test_layers_as_a_scan():
    """Loops over layers of one shape become scans; those of other shapes stay loops."""
    text = written("encoder", scan_layers=True)[3]
    assert text.count("lax.scan(") == 1 and "_stacked(" in text and "for i in range(4)]" in text
    assert "lax.scan(" not in written("skips", scan_layers=True)[3]


def tied():
    """Layers of which one is read once more, so that they are not stacked first."""
    model, params, inputs = encoder()

    def both(params, x, mask):
        return model(params, x, mask) @ params["encoder/layer_1/up/kernel"][:, :4]

    return both, params, inputs


@pytest.mark.full
@pytest.mark.parametrize("name", ["encoder", "flat_layers"])
def test_layers_may_be_stacked_before_a_call(name, tmp_path):
    _, params, inputs, text, constants = written(name, scan_layers=True)
    module = imported(text, tmp_path)
    nested = tf2jax.nest_params({**params, **constants})
    stacked = module.stack_layers(nested)
    assert jax.tree.structure(nested) == jax.tree.structure(tf2jax.nest_params({**params, **constants}))
    assert len(jax.tree.leaves(stacked)) < len(jax.tree.leaves(nested)) / 2
    save_file({n: np.asarray(v) for n, v in {**params, **constants}.items()}, tmp_path / "params.safetensors")
    jax.tree.map(np.testing.assert_array_equal, module.load_params(tmp_path / "params.safetensors"), stacked)

    def run(params):
        return jnp.sum(jnp.sin(module.model(params, **inputs)[0]))

    (expected, gradients), (actual, found) = (jax.value_and_grad(run)(given) for given in (nested, stacked))
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    near = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    jax.tree.map(near, found, module.stack_layers(gradients))


@pytest.mark.full
def test_layers_that_are_read_apart_are_not_stacked_before_a_call(tmp_path, monkeypatch):
    monkeypatch.setitem(CASES, "tied", tied)
    model, params, inputs, text, _ = written("tied", scan_layers=True)
    assert "_stacked(" in text and "def stack_layers" not in text
    actual = imported(text, tmp_path).model(tf2jax.nest_params(params), **inputs)[0]
    np.testing.assert_allclose(actual, model(params, **inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.default_cases("0")
@pytest.mark.parametrize("step", [0, 1])
def test_constants_of_one_shape_are_stacked(step, tmp_path, monkeypatch):
    """Layers have tables that are constants, too large for the source."""
    tables = [np.random.default_rng(i).normal(size=(20 + step * i, 4)).astype(np.float32) for i in range(4)]
    params = drawn({f"layer_{i}/kernel": (4, 4) for i in range(4)})

    def model(params, x, index):
        for i, table in enumerate(tables):
            with scope(f"layer_{i}"):
                x = jnp.sin(x @ params[f"layer_{i}/kernel"]) * 0.5 + jnp.asarray(table)[index]
        return x

    given = model, params, {"x": np.ones((3, 4), np.float32), "index": np.int32([0, 5, 7])}
    monkeypatch.setitem(CASES, "tables", lambda: given)
    _, _, inputs, text, constants = written("tables", scan_layers=True)
    assert len(constants) == 4 and ("lax.scan(" in text) == (step == 0)
    module = imported(text, tmp_path)
    nested = tf2jax.nest_params({**params, **constants})
    for form in [nested, *([module.stack_layers(nested)] if step == 0 else [])]:
        np.testing.assert_allclose(module.model(form, **inputs)[0], model(params, **inputs), rtol=1e-5, atol=1e-6)


def test_shape_comments():
    assert "# f32[3, 4]" not in written("encoder")[3]
    text = written("encoder", shape_comments=True)[3]
    assert "# f32[3, 4]" in text
    assert '"""Compute layer (layer_0): f32[3, 4], f32[3, 4] -> f32[3, 4]."""' in text


@pytest.mark.parametrize("name", ["encoder", "scopes_that_are_params"])
def test_load_params(name, tmp_path):
    _, params, _, text, constants = written(name)
    names = [*params, *constants]
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({n: np.asarray({**params, **constants}[n]) for n in part}, tmp_path / f"{number}.safetensors")
    loaded = imported(text, tmp_path).load_params(*sorted(tmp_path.glob("*.safetensors")))
    expected = tf2jax.nest_params({**params, **constants})
    jax.tree.map(np.testing.assert_array_equal, loaded, expected)
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)


def test_complex_params_are_loaded(tmp_path):
    value = np.complex64([1 + 2j, 3])
    jaxpr = jax.make_jaxpr(lambda given, x: [given[0] * x[0]])([value], [np.float32(2)])
    block = codegen.from_jaxpr(jaxpr)
    entry = codegen.Entry("model", block, ["a/w"], ["x"], {"x": codegen.Result(0)}, False, codegen.Result(0), {})
    text, _ = codegen.write_module([entry], ["A model."])
    save_file({"a/w": value[..., None].view(np.float32)}, tmp_path / "params.safetensors")
    module = imported(text, tmp_path)
    np.testing.assert_array_equal(module.model(module.load_params(tmp_path / "params.safetensors"), 2.0)[0], 2 * value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layer_0_up", "up"),
        ("conv2_block1_1_conv", "conv"),
        ("block_3_expand_relu_2", "expand_relu"),
        ("encoder/layer.11.output", "output"),
        ("dense_12", "dense"),
        ("conv2d_transpose_1", "conv2d_transpose"),
        ("resnet50_v2", "resnet50_v2"),
        ("l2_normalize", "l2_normalize"),
        ("stage_1_x", "stage_1_x"),
        ("42", "n42"),
    ],
)
def test_role(name, expected):
    """Names are roles: without the numbers of layers."""
    assert role(name) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["layer_0", "layer_1", "layer_2"], 'f"layer_{i}"'),
        (["a3_x", "a5_x", "a7_x"], 'f"a{2 * i + 3}_x"'),
        (["dense", "dense_1", "dense_2"], '_numbered("dense", i)'),
        (["dense", "dense_3", "dense_6"], '_numbered("dense", 3 * i)'),
        (['{"', '{"_1', '{"_2'], '_numbered("{\\"", i)'),
        (["dense_4", "dense_2", "dense"], '_numbered("dense", -2 * i + 4)'),
        (["dense", "dense_01"], None),
        (["dense", "other_1"], None),
        (["a", "c", "b"], None),
        (["a01", "a02", "a03"], None),
        (["x1", "x2", "x4"], None),
    ],
)
def test_names_by_index(words, expected):
    found = sequences.by_index(words, quoted=True)
    assert found == expected
    if found is not None:
        given = {"_numbered": numbered}
        assert [eval(found, {**given, "i": i}) for i in range(len(words))] == words  # our own text


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("x * y",), "{} + z", "x * y + z"),
        (("x + y",), "{} * z", "(x + y) * z"),
        (("x + y",), "z - {}", "z - (x + y)"),
        (("x * y",), "z / {}", "z / (x * y)"),
        (("x - y",), "{} - z", "x - y - z"),
        (("x < y",), "{} == z", "(x < y) == z"),
        (("-x",), "{} ** z", "(-x) ** z"),
        (("x + y",), "f({}, z)", "f(x + y, z)"),
        (("x @ y",), "{}.T", "(x @ y).T"),
        (("x, y",), "f({})", "f((x, y))"),
        (("f(x)",), "{}[0]", "f(x)[0]"),
    ],
)
def test_folded_expressions(first, second, expected):
    """Parentheses keep the order of operations."""
    before, after = second.split("{}")
    nodes = [Stmt((Ref(0), " = ", *first), (0,)), Stmt((Ref(1), f" = {before}", Ref(0), after), (1,))]
    marks = Marks()
    marks.hints = ["x", "y"]
    (found,) = fold(nodes, marks)
    assert "".join(str(p) for p in found.parts[1:]) == f" = {expected}"
    assert ast.dump(ast.parse(expected)) == ast.dump(ast.parse(second.format(f"({first[0]})")))


@pytest.mark.full
def test_signatures_share_functions(tmp_path):
    """Functions of two signatures are written once; updates are nested in params."""
    model, params, inputs = encoder()
    params = {**params, "state/calls": np.float32(0), "state/seen/last": np.zeros((3, 4), np.float32)}
    arguments = {key: codegen.Result(i) for i, key in enumerate(inputs)}

    def entry(name, function):
        jaxpr = jax.make_jaxpr(lambda given, x: function(dict(zip(params, given, strict=True)), *x))(
            list(params.values()), list(inputs.values())
        )
        updates = {"state/calls": 1, "state/seen/last": 2}
        block = codegen.from_jaxpr(jaxpr)
        return codegen.Entry(name, block, list(params), list(inputs), arguments, False, [codegen.Result(0)], updates)

    def first(params, x, mask):
        return [model(params, x, mask), params["state/calls"] + 1.0, x]

    def second(params, x, mask):
        return [model(params, x * 2.0, mask) + 1.0, params["state/calls"] - 1.0, mask]

    text, _ = codegen.write_module([entry("first", first), entry("second", second)], ["Two."])
    assert text.count("def _layer(") == 1 and text.count("_layer(params") == 3, text
    module = imported(text, tmp_path)
    for function, found in ((first, module.first), (second, module.second)):
        expected = function(params, **inputs)
        (result,), after = found(tf2jax.nest_params(params), **inputs)
        np.testing.assert_allclose(result, expected[0], rtol=1e-6)
        flat = tf2jax.flatten_params(after)
        assert flat.keys() == params.keys()
        np.testing.assert_array_equal(flat["state/calls"], expected[1])
        np.testing.assert_array_equal(flat["state/seen/last"], expected[2])
        np.testing.assert_array_equal(flat["encoder/layer_0/up/kernel"], params["encoder/layer_0/up/kernel"])
