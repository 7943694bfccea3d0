"""Artifacts: both backends agree; TensorFlow stays out; damage raises."""

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import (
    DtypeMismatchError,
    ExportError,
    InputError,
    LoweringError,
    MissingKeyError,
    MissingParamError,
    ShapeMismatchError,
)
from tf2jax_lite.export import atomic_dir, params_file
from tf2jax_lite.export.reader import call_with_arrays

ROOT = Path(__file__).parent.parent.parent
FILTER = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 3, 2, 1)
DIGITS = ROOT / "tf2jax_lite" / "demo" / "digits_cnn"
X = np.random.default_rng(0).uniform(size=(3, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    fn, params = tf2jax.convert_saved_model(DIGITS)
    path = tmp_path_factory.mktemp("artifacts") / "digits"
    report = tf2jax.export_functions({"serving_default": (fn, params)}, path, platforms=["cpu"])
    assert not report.warnings
    return fn, params, path


def counter():
    weight = tf.Variable(tf.ones([2]), name="weight")
    calls = tf.Variable(0, trainable=False, name="calls")

    @tf.function
    def fn(batch, *, scale):
        calls.assign_add(1)
        noise = tf.random.uniform([2])
        return {"sum": batch["a"] * weight * scale, "noise": (noise, batch["b"] + calls)}

    spec = {"a": tf.TensorSpec([None, 2]), "b": tf.TensorSpec([], tf.int32)}
    return tf2jax.convert(fn, spec, scale=tf.TensorSpec([]))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_backends_agree(digits, backend):
    fn, params, path = digits
    loaded, weights = tf2jax.load(path, backend=backend)
    assert {n: v.trainable for n, v in ((n, n) for n in weights)} == {n: n.trainable for n in params}
    for size in (1, 3):  # the batch is symbolic
        expected, actual = fn(params, X[:size])[0], loaded(weights, X[:size])[0]
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5), expected, actual)
        jax.tree.map(
            lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5),
            expected,
            jax.jit(loaded)(weights, X[:size])[0],
        )
    floats = {k: jnp.asarray(v) for k, v in weights.items() if k.trainable}

    def loss(call):
        return lambda w: sum(jnp.sum(v**2) for v in jax.tree.leaves(call({**weights, **w}, X)[0]))

    expected, actual = (jax.grad(loss(call))(floats) for call in (fn, loaded))
    jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-3, atol=1e-4), expected, actual)
    with pytest.raises(MissingParamError):
        loaded({}, X)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_structures_updates_and_keys(tmp_path, backend):
    fn, params = counter()
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    loaded, weights = tf2jax.load(tmp_path / "out", backend=backend)
    key = jax.random.key(3)
    batch = {"a": np.ones((4, 2), np.float32), "b": np.int32(2)}
    expected, state = fn(params, batch, scale=2.0, rng=key)
    actual, after = loaded(weights, batch, scale=2.0, rng=key)
    jax.tree.map(np.testing.assert_allclose, expected, actual)
    assert jax.tree.structure(expected) == jax.tree.structure(actual)
    assert int(after["calls"]) == int(state["calls"]) == 1
    raw = loaded(weights, batch, scale=2.0, rng=jax.random.key_data(key))[0]
    np.testing.assert_array_equal(raw["noise"][0], actual["noise"][0])
    with pytest.raises(MissingKeyError):
        loaded(weights, batch, scale=2.0)
    with pytest.raises(InputError):
        loaded(weights, {"a": batch["a"]}, scale=2.0, rng=key)


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_arguments_with_the_names_of_params_and_rng(tmp_path, backend):
    fn, params = tf2jax.convert(tf.function(lambda params, rng: params / rng), *[tf.TensorSpec([2])] * 2)
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    loaded, weights = tf2jax.load(tmp_path / "out", backend=backend)
    a, b = np.int32([1, 4]), np.float32([2, 8])  # integers for floats are floats, as in the converted function
    np.testing.assert_array_equal(loaded(weights, a, rng=b)[0], a / b)
    np.testing.assert_array_equal(loaded(weights, params=a, rng=b)[0], a / b)


def test_numbers_that_a_module_cannot_take_are_not_cut_off(tmp_path):
    fn, params = tf2jax.convert(tf.function(lambda x: x * 2), tf.TensorSpec([2], tf.int32))
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    loaded, weights = tf2jax.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded(weights, np.int64([1, 2]))[0], [2, 4])
    with pytest.raises(DtypeMismatchError, match="got an array of float32 for int32"):
        loaded(weights, np.float32([1.5, 2]))


@pytest.mark.full
def test_gradients_of_a_data_dependent_loop(tmp_path):
    """Those of the StableHLO, of any batch size."""
    weight = tf.Variable([0.8, 0.5], name="weight")

    @tf.function
    def fn(x):
        while tf.reduce_max(x) > 0.3:
            x = x * weight - 0.01 * tf.sin(x)
        return x

    fn, params = tf2jax.convert(fn, tf.TensorSpec([None, 2]))
    report = tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    assert not report.warnings
    loaded, weights = tf2jax.load(tmp_path / "out", backend="stablehlo")
    for x in (np.float32([[3.0, 1.0]]), np.float32([[0.5, 1.0], [0.1, 7.0], [2.0, 0.2]]), np.float32([[0.2, 0.1]])):
        grads = [
            jax.grad(lambda w, x, call=call: jnp.sum(jnp.cos(call(w, x)[0])), (0, 1))(w, x)
            for call, w in ((fn, params), (loaded, weights))
        ]
        jax.tree.map(lambda e, a: np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6), *grads)


@pytest.mark.full
def test_text_of_the_stablehlo(tmp_path):
    """It is the text of the serialized module, and one of the files with hashes."""
    fn, params = counter()
    functions = {"f": (fn, params)}
    report = tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"], mlir=True)
    serialized = (tmp_path / "out" / "model.stablehlo").read_bytes()
    assert b".py" not in serialized and str(ROOT).encode() not in serialized
    exported = jax.export.deserialize(bytearray(serialized))
    text = (tmp_path / "out" / "model.mlir").read_text()
    assert "stablehlo.add" in text and "func.func public @main" in text and report.files["model.mlir"] == len(text)
    assert text.count("stablehlo.") == exported.mlir_module().count("stablehlo.")
    assert '/mul"' in text and ".py" not in text and str(ROOT) not in text
    tf2jax.from_stablehlo(text.encode())  # parses
    tf2jax.load(tmp_path / "out")
    with pytest.raises(InputError, match="needs stablehlo=True"):
        tf2jax.export_functions(functions, tmp_path / "other", stablehlo=False, mlir=True)


def test_several_functions_share_params(tmp_path):
    weight = tf.Variable([2.0], name="weight")
    pair = {
        name: tf2jax.convert(tf.function(lambda x, k=k: x * weight**k), tf.TensorSpec([None]))
        for name, k in (("first", 1), ("second", 2))
    }
    tf2jax.export_functions(pair, tmp_path / "out", platforms=["cpu"])
    x = np.float32([1, 2])
    for name, expected in (("first", 2 * x), ("second", 4 * x)):
        for backend in ("stablehlo", "source"):
            fn, params = tf2jax.load(tmp_path / "out", name, backend=backend)
            np.testing.assert_allclose(fn(params, x)[0], expected)
    assert list(params) == ["weight"]
    with pytest.raises(ExportError, match="first, second"):
        tf2jax.load(tmp_path / "out")


LONG = "serving_default_of_a_model_with_a_long_name"


@pytest.mark.default_cases("names1")
@pytest.mark.parametrize(
    "names", [("serve", "Serve"), (f"{LONG}_a", f"{LONG}_b"), ("class", "jnp", "params"), ("1", "!", "?")]
)
def test_names_of_functions_that_python_cannot_tell_apart(tmp_path, names):
    """Names of signatures are any texts; each gets a file and a function of its own."""
    functions = {
        name: tf2jax.convert(tf.function(lambda x, i=i: tf.sin(x) + i), tf.TensorSpec([None]))
        for i, name in enumerate(names)
    }
    report = tf2jax.export_functions(functions, tmp_path / "out", platforms=["cpu"])
    assert not report.warnings
    for backend in ("stablehlo", "source"):
        for i, name in enumerate(names):
            fn, params = tf2jax.load(tmp_path / "out", name, backend=backend)
            np.testing.assert_allclose(fn(params, X[0, 0, :, 0])[0], np.sin(X[0, 0, :, 0]) + i, rtol=1e-5)


@pytest.mark.full
def test_names_of_inputs_that_python_does_not_take(tmp_path):
    """SavedModel inputs have arbitrary names: keywords, modules, duplicates."""
    names = ("class", "jnp", "max", "params_", "x-1", "x_1", "X_1", "kwargs", "b", "batch", "batch_size", "def")
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        inputs = {name: tf.compat.v1.placeholder(tf.float32, [None, None]) for name in names}
        result = tf.add_n([tf.reduce_mean(tf.maximum(x, 0.0)) * (i + 1.0) for i, x in enumerate(inputs.values())])
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "model"), inputs, {"lambda": result})
    fn, params = tf2jax.convert_saved_model(tmp_path / "model")
    tf2jax.export_functions({"serving_default": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    given = {name: np.full((2, 3), i, np.float32) for i, name in enumerate(names)}
    expected = sum(i * (i + 1.0) for i in range(len(names)))
    for call, weights in ((fn, params), *(tf2jax.load(tmp_path / "out", backend=b) for b in ("stablehlo", "source"))):
        np.testing.assert_allclose(call(weights, **given)[0]["lambda"], expected, rtol=1e-6)


@pytest.mark.full
def test_same_input_same_bytes(digits, tmp_path):
    fn, params, path = digits
    tf2jax.export_functions({"serving_default": (fn, params)}, tmp_path / "again", platforms=["cpu"])
    for name in ("model.py", "params.safetensors"):
        assert (path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.full
def test_shapes_and_dtype(tmp_path):
    fn, params = tf2jax.convert_saved_model(DIGITS)
    out = tmp_path / "out"
    tf2jax.export_functions({"f": (fn, params)}, out, platforms=["cpu"], shapes=["2,8,8,1"], dtype="bfloat16")
    metadata = json.loads((out / "metadata.json").read_text())
    assert metadata["signatures"]["f"]["inputs"][0]["shape"] == [2, 8, 8, 1]
    loaded, weights = tf2jax.load(out)
    assert weights["digits/dense/kernel"].dtype == jnp.bfloat16
    assert np.asarray(loaded(weights, X[:2])[0]["output_0"]).shape == (2, 10)
    for shapes, message in (
        (["b,9,8,1"], "contradicts"),
        (["b,8"], "contradicts"),
        ({"y": "b"}, "no argument"),
        (["b;8"], "neither"),
    ):
        with pytest.raises(InputError, match=message):
            tf2jax.export_functions({"f": (fn, params)}, tmp_path / "bad", shapes=shapes)
        assert not (tmp_path / "bad").exists()


@pytest.mark.default_cases("shapes1-source")
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
@pytest.mark.parametrize("shapes", [None, ["b,4*h,4 * w,2"]])
def test_sizes_that_are_multiples(tmp_path, shapes, backend):
    """An image halved twice and doubled needs multiples of 4, as inferred."""

    def hourglass(x):
        half = tf.nn.max_pool2d(x, 2, 2, "VALID")
        quarter = tf.nn.avg_pool2d(half, 2, 2, "VALID")
        half = tf.concat([half, tf.repeat(tf.repeat(quarter, 2, 1), 2, 2)], 3)
        sizes = tf.cast(tf.shape(x)[1:3], tf.float32)
        return tf.repeat(tf.repeat(half, 2, 1), 2, 2) * tf.concat([x, x], 3) * sizes[0]

    function = tf.function(hourglass)
    pair = tf2jax.convert(function, tf.TensorSpec([None, None, None, 2], tf.float32))
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"], shapes=shapes)
    inputs = json.loads((tmp_path / "out" / "metadata.json").read_text())["signatures"]["f"]["inputs"]
    assert inputs[0]["shape"] == (["b", "4*h", "4*w", 2] if shapes else ["b", "4*d1", "4*d2", 2])
    fn, params = tf2jax.load(tmp_path / "out", backend=backend)
    for height, width in ((4, 8), (12, 4)):
        x = np.arange(2 * height * width * 2, dtype=np.float32).reshape(2, height, width, 2) / 8
        np.testing.assert_allclose(fn(params, x)[0], function(x), rtol=1e-5)
    with pytest.raises(InputError, match=r"4\*[hd]"):
        fn(params, x[:, :6])


def translated(text, mask, other, mask_of_other):
    """Two texts of different lengths, with a mask each, of which one is checked."""
    tf.debugging.assert_equal(tf.shape(text), tf.shape(mask))
    text, other = text * mask, other * mask_of_other
    return tf.nn.softmax(text[:, :, None] * other[:, None]), tf.shape(text)[1] + tf.shape(other)[1]


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_sizes_that_must_be_equal_are_found(tmp_path, backend):
    """No other value becomes a scalar: the texts may be of different lengths."""
    function = tf.function(translated, autograph=False)
    pair = tf2jax.convert(function, *[tf.TensorSpec([None, None], tf.float32)] * 4)
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"])
    inputs = json.loads((tmp_path / "out" / "metadata.json").read_text())["signatures"]["f"]["inputs"]
    assert [i["shape"] for i in inputs] == [["b", "d1"], ["b", "d1"], ["b", "d5"], ["b", "d5"]]
    fn, params = tf2jax.load(tmp_path / "out", backend=backend)
    for long, short in ((5, 3), (2, 2), (3, 7)):
        rng = np.random.default_rng(0)
        arrays = [rng.uniform(size=(2, n)).astype(np.float32) for n in (long, long, short, short)]
        jax.tree.map(
            lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-5),
            fn(params, *arrays)[0],
            tuple(function(*arrays)),
        )


@pytest.mark.full
def test_sizes_with_names_stay_apart(tmp_path):
    """Messages about sizes are not changed."""
    pair = tf2jax.convert(tf.function(lambda x, y: x + y), *[tf.TensorSpec([None, None], tf.float32)] * 2)
    with pytest.raises(LoweringError, match=r"AddV2.*\(b, s\), \(b, t\)"):
        tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"], shapes=["b,s", "b,t"])


@pytest.mark.full
@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME") + tf.nn.conv2d(x, tf.ones((3, 3, 2, 2)), 2, "SAME"),
        lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME") + tf.nn.depthwise_conv2d(x, FILTER, [1, 2, 2, 1], "SAME"),
        lambda x: tf.math.top_k(x[..., 0], tf.shape(x)[2] // 2)[0],
        lambda x: tf.nn.atrous_conv2d(x, tf.ones((3, 3, 2, 2)), 2, "VALID"),
    ],
    ids=["largest", "means", "largest half", "dilated"],
)
def test_source_for_images_of_any_size(tmp_path, function):
    """Sizes of pads, slices and selections are expressions of the arguments' sizes."""
    function = tf.function(function)
    pair = tf2jax.convert(function, tf.TensorSpec([None, None, None, 2], tf.float32))
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"])
    inputs = json.loads((tmp_path / "out" / "metadata.json").read_text())["signatures"]["f"]["inputs"]
    assert inputs[0]["shape"] == ["b", "d1", "d2", 2]
    fn, params = tf2jax.load(tmp_path / "out", backend="source")
    for height, width in ((7, 8), (10, 5)):
        x = np.arange(2 * height * width * 2, dtype=np.float32).reshape(2, height, width, 2) / 64
        np.testing.assert_allclose(fn(params, x)[0], function(x), rtol=1e-5)


@pytest.mark.full
def test_loaded_checks_follow_an_override_around_the_call(tmp_path):
    pair = tf2jax.convert(tf.function(lambda x: x + 1.0), tf.TensorSpec([2]))
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"])
    source, params = tf2jax.load(tmp_path / "out", backend="source")
    stablehlo, _ = tf2jax.load(tmp_path / "out")
    x = np.zeros(3, np.float32)
    for fn in (source, stablehlo):
        with pytest.raises(ShapeMismatchError, match="around conversion or call"):
            fn(params, x)
        with tf2jax.override_config("strict_dtype_check", True), pytest.raises(DtypeMismatchError):
            fn(params, np.zeros(2, np.float16))
    with tf2jax.override_config("strict_shape_check", False):
        np.testing.assert_array_equal(source(params, x)[0], [1, 1, 1])


def wide_and_narrow():
    """Return a function of 64-bit arguments, params and results."""
    weight = tf.Variable(np.float64([2.0, 3.0]), name="weight")
    calls = tf.Variable(np.int64(0), trainable=False, name="calls")

    def fn(x, n):
        calls.assign_add(n)
        return {"y": x * weight, "n": n + calls}

    return tf2jax.convert(tf.function(fn), tf.TensorSpec([2], tf.float64), tf.TensorSpec([], tf.int64))


@pytest.mark.full
@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_64_bits_there_and_here(tmp_path, here, there):
    """``jax_enable_x64`` may differ between writing and loading."""
    with jax.enable_x64(there):
        tf2jax.export_functions({"f": wide_and_narrow()}, tmp_path / "out", platforms=["cpu"])
    with jax.enable_x64(here):
        fn, params = tf2jax.load(tmp_path / "out")
        for call in (fn, jax.jit(fn)):
            results, after = call(params, np.float64([1.5, 2.5]), np.int64(3))
            assert results["y"].tolist() == [3.0, 7.5] and results["n"] == 6 and after["calls"] == 3
            assert results["y"].dtype == (np.float64 if here and there else np.float32)
            assert after["calls"].dtype == (np.int64 if here else np.int32)  # as a loop that carries params wants it
            _, after = call(after, np.float64([1.5, 2.5]), np.int64(3))
            assert after["calls"] == 6
        gradient = jax.grad(lambda x: jnp.sum(fn(params, x, np.int64(3))[0]["y"] ** 2))(jnp.asarray([1.5, 2.5]))
        np.testing.assert_allclose(gradient, [2 * 1.5 * 4, 2 * 2.5 * 9])


@pytest.mark.full
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_names_of_arguments_behind_a_star(tmp_path, backend):
    """None takes the name of a keyword."""
    spec = tf.TensorSpec([2])
    pair = tf2jax.convert(tf.function(lambda x, *rest, k: x + 2 * rest[0] + 4 * rest[1] + 8 * k), *(spec,) * 3, k=spec)
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"])
    fn, params = tf2jax.load(tmp_path / "out", backend=backend)
    inputs = json.loads((tmp_path / "out" / "metadata.json").read_text())["signatures"]["f"]["inputs"]
    assert [i["name"] for i in inputs] == ["x", "rest/0", "rest/1", "k"]
    arrays = {i["name"]: np.full(2, 10**n, np.float32) for n, i in enumerate(inputs)}
    assert call_with_arrays(fn, params, arrays)[0].tolist() == [8421, 8421]
    fn = tf.function(lambda *args, k: args[0] + args[1] * k)
    assert tf2jax.verify(fn, args=(spec, spec), kwargs={"k": spec}).ok


@pytest.mark.full
def test_arguments_that_do_not_fit_each_other(tmp_path):
    """Dimensions of one name have one size, of 1 or more."""
    spec = tf.TensorSpec([None, 2])
    pair = tf2jax.convert(tf.function(lambda x, y: x + y), spec, spec)
    shapes = ["b,2", "b,2"]
    tf2jax.export_functions({"f": pair}, tmp_path / "out", platforms=["cpu"], shapes=shapes)
    fn, params = tf2jax.load(tmp_path / "out")
    for sizes, message in (((2, 3), "do"), ((0, 0), "backend='source'")):
        with pytest.raises(InputError, match=f"do not fit the StableHLO.*{message}"):
            fn(params, *(np.ones((n, 2), np.float32) for n in sizes))


@pytest.mark.full
def test_tensorflow_is_not_imported(digits, tmp_path):
    """Neither loading nor running needs it; model.py needs JAX and numpy alone."""
    _, _, path = digits
    np.savez(tmp_path / "x.npz", image=X)
    code = f"""
        import sys
        import numpy as np
        import tf2jax_lite
        for backend in ("stablehlo", "source"):
            fn, params = tf2jax_lite.load({str(path)!r}, backend=backend)
            print(np.asarray(fn(params, np.load({str(tmp_path / "x.npz")!r})["image"])[0]["output_0"]).shape)
        assert "tensorflow" not in sys.modules, "tensorflow was imported"
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=ROOT)
    code = f"""
        import sys

        class Refuse:
            def find_spec(self, name, *_):
                if name.split(".")[0] in ("tensorflow", "tf2jax_lite", "keras"):
                    raise ImportError(name)

        sys.meta_path.insert(0, Refuse())
        sys.path.insert(0, {str(path)!r})
        import model
        import numpy as np
        params, state = (model.load_params({str(path)!r} + f"/{{name}}.safetensors") for name in ("params", "state"))
        outputs, _ = model.serving_default(params, state, np.zeros((2, 8, 8, 1), np.float32))
        assert outputs["output_0"].shape == (2, 10)
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=tmp_path)


def damage(path, how):
    metadata = path / "metadata.json"
    data = json.loads(metadata.read_text())
    if how == "flipped byte":
        content = bytearray((path / "model.stablehlo").read_bytes())
        content[len(content) // 2] ^= 1
        (path / "model.stablehlo").write_bytes(content)
    elif how == "missing file":
        (path / "params.safetensors").unlink()
    elif how == "cut short":
        metadata.write_text(metadata.read_text()[:-200])
    elif how == "path trick":
        _outside(path, data, "../elsewhere")
        metadata.write_text(json.dumps(data))
    elif how == "absolute path":
        _outside(path, data, str(path.parent / "elsewhere"))
        metadata.write_text(json.dumps(data))
    elif how == "link":
        (path / "params.safetensors").rename(path.parent / "elsewhere")
        (path / "params.safetensors").symlink_to(path.parent / "elsewhere")
    elif how == "wrong shape":
        data["params"]["digits/dense/kernel"]["shape"] = [1]
        metadata.write_text(json.dumps(data))
    elif how == "newer format":
        data["format_version"] = 99
        metadata.write_text(json.dumps(data))
    elif how == "another format":
        metadata.write_text('{"format": "something"}')
    elif how == "damaged interface":
        data["signatures"]["serving_default"]["interface"]["args"] = [{"tensor": {}}]
        metadata.write_text(json.dumps(data))
    elif how in ("variables", "updates", "inputs"):
        data["signatures"]["serving_default"][how].append(data["signatures"]["serving_default"]["inputs"][0])
        metadata.write_text(json.dumps(data))
    elif how == "a result that is not there":
        data["signatures"]["serving_default"]["interface"]["results"] = {"result": 7}
        metadata.write_text(json.dumps(data))
    elif how == "no metadata":
        metadata.unlink()


def _outside(path, data, name):
    """Move the weights out of the artifact and names them there: all else fits."""
    (path / "params.safetensors").rename(path.parent / "elsewhere")
    data["files"][name] = data["files"].pop("params.safetensors")
    for entry in data["params"].values():
        entry["file"] = name


DAMAGES = [
    "flipped byte",
    "missing file",
    "cut short",
    "path trick",
    "absolute path",
    "link",
    "wrong shape",
    "newer format",
    "another format",
    "damaged interface",
    "no metadata",
    "variables",
    "updates",
    "inputs",
    "a result that is not there",
]


@pytest.mark.full_cases("flipped byte")
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_artifacts_are_refused(digits, tmp_path, how):
    path = tmp_path / "copy"
    shutil.copytree(digits[2], path)
    damage(path, how)
    with pytest.raises(ExportError) as caught:
        tf2jax.load(path)
    assert "\n" not in str(caught.value).strip()


def test_garbage_behind_right_hashes(digits, tmp_path):
    """Hashes only guard against accidents: the hashed files may still be garbage."""
    for file in ("model.stablehlo", "params.safetensors"):
        path = tmp_path / file
        shutil.copytree(digits[2], path)
        (path / file).write_bytes(b"\x80\x04K\x01." * 20)
        data = json.loads((path / "metadata.json").read_text())
        data["files"][file]["sha256"] = atomic_dir.sha256(path / file)
        (path / "metadata.json").write_text(json.dumps(data))
        with pytest.raises(ExportError):
            tf2jax.load(path)


def test_a_module_that_has_no_main(digits, tmp_path):
    """It reads well, and JAX looks for the function when it is called."""
    path = tmp_path / "artifact"
    shutil.copytree(digits[2], path)
    file = path / "model.stablehlo"
    head, main, tail = file.read_bytes().rpartition(b"\0main\0")
    assert main
    file.write_bytes(head + b"\0mbin\0" + tail)
    data = json.loads((path / "metadata.json").read_text())
    data["files"][file.name]["sha256"] = atomic_dir.sha256(file)
    (path / "metadata.json").write_text(json.dumps(data))
    with pytest.raises(ExportError, match=r"model\.stablehlo: the StableHLO module has no function 'main'"):
        tf2jax.load(path)


def test_what_is_there_is_not_overwritten(digits, tmp_path):
    fn, params, _ = digits
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ExportError):
            tf2jax.export_functions({"f": (fn, params)}, out, overwrite=overwrite, stablehlo=False)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "notes.txt"]


def test_failing_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), atomic_dir.new_directory(tmp_path / "out", overwrite=False) as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def write_metadata(folder, kind, files):
    content = {"format": "tf2jax_lite artefact", "kind": kind, "files": {name: {} for name in files}}
    (folder / "metadata.json").write_text(json.dumps(content))


def write_slowly(out):
    names = [f"part{i}" for i in range(40)]
    with atomic_dir.new_directory(out, overwrite=True) as folder:
        for name in names:
            (folder / name).write_text("new")
            time.sleep(0.002)
        write_metadata(folder, "new", names)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_killing_never_leaves_a_broken_directory(tmp_path):
    out = tmp_path / "out"
    rng = random.Random(0)
    for attempt in range(20):
        shutil.rmtree(out, ignore_errors=True)
        if attempt % 2:
            out.mkdir()
            write_metadata(out, "old", [])
        child = os.fork()
        if child == 0:
            write_slowly(out)
            os._exit(0)
        time.sleep(rng.uniform(0.0, 0.13))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if out.exists():
            found = {p.name for p in out.iterdir()}
            kind = json.loads((out / "metadata.json").read_text())["kind"]
            assert (kind == "old" and found == {"metadata.json"}) or (kind == "new" and len(found) == 41)
    # Leftovers of killed runs are removed by the next.
    with atomic_dir.new_directory(out, overwrite=True) as folder:
        write_metadata(folder, "last", [])
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_float8_is_read_back_with_what_is_beside_it(dtype, tmp_path):
    """Safetensors writes it for numpy, and does not read it."""
    kinds = [dtype, "bfloat16", "float16", "float64", "int8", "uint32", "bool"]
    values = {kind: np.asarray([[1, 0], [2, 4]]).astype(jnp.dtype(kind)) for kind in kinds}
    values["complex64"], values["scalar"] = np.complex64([1 + 2j]), np.asarray(2, jnp.dtype(dtype))
    params_file.write_params(values, tmp_path)
    found = params_file.read_tensors(tmp_path / "params.safetensors")
    for name, value in values.items():
        read = params_file.as_complex(found[name], value.dtype.name)
        assert read.dtype == value.dtype and read.shape == value.shape
        np.testing.assert_array_equal(read.astype(complex), value.astype(complex))


@pytest.mark.parametrize("names", [["a", 'b"\\\u00e9', "c/d"], []])
def test_files_of_params_are_those_of_the_library(names, tmp_path):
    kinds = [*"fdeilhbqIBHQ?", "bfloat16", "float8_e5m2", "float8_e4m3fn"]
    values = {f"{name}{kind}": np.ones((2, 3), jnp.dtype(kind)) for name in names for kind in kinds}
    params_file.write_params(values, tmp_path)
    ours = (tmp_path / "params.safetensors").read_bytes()
    safetensors.numpy.save_file(values, str(tmp_path / "library"))
    theirs = (tmp_path / "library").read_bytes()
    length = struct.unpack("<Q", ours[:8])[0]
    headers = [json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]]) for data in (ours, theirs)]
    assert length % 8 == 0 and len(ours) == len(theirs)
    found, expected = ({n: (e["dtype"], e["shape"]) for n, e in header.items()} for header in headers)
    assert found == expected
    for name, (_, entry) in zip(headers[0], headers[0].items(), strict=True):
        begin, end = (8 + length + at for at in entry["data_offsets"])
        assert ours[begin:end] == values[name].tobytes()


def test_tensors_are_split_and_read_back(tmp_path):
    values = {
        "a/b:0": np.arange(6.0).reshape(2, 3).T,  # not in C order
        "c": np.ones((4,), jnp.bfloat16),
        "d": np.complex64([1 + 2j]),
        "e": np.complex128(3 - 1j),
        "f": np.zeros((0, 3), np.int8),
        "g": np.asarray(True),
    }
    placed = params_file.write_params(values, tmp_path, shard_bytes=60)
    assert len(set(placed.values())) > 1
    for name, value in values.items():
        found = params_file.read_tensors(tmp_path / placed[name])[name]
        found = params_file.as_complex(found, value.dtype.name)
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value)
    with pytest.raises(ExportError, match="safetensors"):
        params_file.write_params({"x": np.ones(2, jnp.int4)}, tmp_path)


@pytest.mark.default_cases("uint2")
@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4"])
def test_params_of_dtypes_that_no_file_has(dtype, tmp_path):
    """JAX's serialization knows some of them not, safetensors others."""
    variable = tf.Variable(np.ones(3, np.float32), name="v")
    fn, _ = tf2jax.convert(tf.function(lambda x: x * variable, autograph=False), tf.TensorSpec([3]))
    params = {"v": np.ones(3, getattr(ml_dtypes, dtype))}
    with pytest.raises(ExportError, match=dtype):
        tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_checkpoint(digits, tmp_path):
    fn, params, _ = digits
    arguments = ({"f": (fn, params)}, tmp_path / "out")
    try:
        import orbax.checkpoint as orbax
    except ImportError:
        with pytest.raises(ExportError, match="checkpoint"):
            tf2jax.export_functions(*arguments, checkpoint=True, stablehlo=False)
        assert not (tmp_path / "out").exists()
        return
    tf2jax.export_functions(*arguments, checkpoint=True, stablehlo=False)
    with orbax.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "out" / "checkpoint")
    trainable, other = tf2jax.split_params(params)
    for part, expected in (("params", trainable), ("state", other)):
        jax.tree.map(np.testing.assert_array_equal, found[part], tf2jax.nest_params(expected))
    assert tf2jax.load(tmp_path / "out", backend="source")[1].keys() == params.keys()
