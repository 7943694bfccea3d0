"""``convert`` and ``run`` as a user sees them, for every kind of model file."""

import io
import json
import os
import subprocess
import sys

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke
from tf2jax_lite.cli.convert import _npz
from tf2jax_lite.errors import ExportError, InputError, InvalidModelError, MissingLibraryError, Tf2JaxError
from tf2jax_lite.export import execution

from .test_cli import TESTDATA, shell


def keras_model():
    keras.utils.set_random_seed(0)
    layers = [keras.Input((4,), name="features"), keras.layers.Dense(5, activation="relu"), keras.layers.Dropout(0.5)]
    return keras.Sequential([*layers, keras.layers.BatchNormalization(), keras.layers.Dense(2)])


def frozen_graph(path):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        w = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
        tf.nn.softmax(tf.matmul(x, w), name="probabilities")
    path.write_bytes(graph.as_graph_def().SerializeToString())


def arrays(path, **values):
    np.savez(path, **values)
    return path


X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


@pytest.mark.full
def test_saved_model_to_artifact_to_results(tmp_path):
    out = tmp_path / "out"
    result = invoke("convert", TESTDATA / "tf_module", out, "--platforms", "cpu", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["signatures"] == ["serving_default", "repeat"]
    assert set(report["files"]) == {p.name for p in out.iterdir()}
    assert not report["warnings"], "gradients go through the loop of repeat, whose length is an input"
    x = arrays(tmp_path / "x.npz", features=X)
    expected = tf.saved_model.load(str(TESTDATA / "tf_module")).signatures["serving_default"](tf.constant(X))
    for backend in ("stablehlo", "source"):
        y = tmp_path / f"{backend}.npz"
        result = invoke("run", out, "--input", x, "--output", y, "--signature", "serving_default", "--backend", backend)
        assert result.exit_code == 0, result.output
        found = np.load(y)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_what_has_no_derivatives_is_said(tmp_path):
    """The artifact computes values all the same."""
    module = tf.Module()
    module.f = tf.function(lambda x: tf.raw_ops.PreventGradient(input=x * 2.0, message="not wanted"))
    signature = module.f.get_concrete_function(tf.TensorSpec([None], tf.float32, "x"))
    tf.saved_model.save(module, str(tmp_path / "model"), {"serving_default": signature})
    result = invoke("convert", tmp_path / "model", tmp_path / "out", "--platforms", "cpu", "--json")
    assert result.exit_code == 0, result.output
    (warning,) = json.loads(result.output)["warnings"]
    assert "serving_default" in warning and "cannot be differentiated" in warning and "not wanted" in warning
    x = np.float32([1.0, 2.0])
    for backend in ("stablehlo", "source"):
        loaded, params = tf2jax.load(tmp_path / "out", backend=backend)
        assert [v.tolist() for v in jax.tree.leaves(loaded(params, x)[0])] == [[2.0, 4.0]]


@pytest.mark.full
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_keras_files_in_both_modes(tmp_path, suffix):
    model = keras_model()
    model.save(tmp_path / f"model.{suffix}")
    out = tmp_path / "out"
    result = invoke("convert", tmp_path / f"model.{suffix}", out, "--train", "--platforms", "cpu", "--quiet")
    assert result.exit_code == 0 and result.output == ""
    fn, params = tf2jax.load(out, "serving_default")
    np.testing.assert_allclose(fn(params, X)[0], model(X), rtol=1e-5, atol=1e-6)
    train, same = tf2jax.load(out, "train")
    assert list(same) == list(params)
    _, state = train(params, X, rng=__import__("jax").random.key(0))
    changed = {name for name in params if not np.array_equal(state[name], params[name])}
    assert changed and all("moving" in name or "seed" in name for name in changed)


@pytest.mark.full
def test_frozen_graph(tmp_path):
    frozen_graph(tmp_path / "graph.pb")
    result = invoke("convert", tmp_path / "graph.pb", tmp_path / "out", "--platforms", "cpu", "--shapes", "x=n,3")
    assert result.exit_code == 0, result.output
    fn, params = tf2jax.load(tmp_path / "out")
    assert list(params) == ["w"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(fn(params, x)[0][0], tf.nn.softmax(x @ params["w"]), rtol=1e-5)
    assert (
        "(n, 3)" in (tmp_path / "out" / "model.py").read_text()
        or "[n, 3]" in (tmp_path / "out" / "model.py").read_text()
    )


@pytest.mark.full
def test_options(tmp_path):
    out = tmp_path / "out"
    result = invoke(
        "convert", TESTDATA / "keras_export", out, "--signature", "serving_default", "--platforms", "cpu",
        "--dtype", "bfloat16", "--set", "strict_shape_check=false", "--shapes", "2,8,8,2",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    metadata = json.loads((out / "metadata.json").read_text())
    assert metadata["options"]["config"]["strict_shape_check"] is False
    assert {p["dtype"] for p in metadata["params"].values()} <= {"bfloat16", "int32", "int64", "uint32"}
    assert invoke("convert", TESTDATA / "keras_export", out, "--platforms", "cpu", "--force", "--quiet").exit_code == 0


@pytest.mark.full_cases(
    "args4-ExportError-not an artifact",
    "args6-InputError---input and --output go with .pb and .meta",
    "args21-InputError-cuda",
    "args22-InputError-none",
    "args25-InvalidModelError-nope",
)
@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (["nowhere", "OUT"], InvalidModelError, "no such file"),
        (["nowhere", "OUT", "--input", "x"], InvalidModelError, "no such file"),
        ([TESTDATA / "make_saved_models.py", "OUT"], InvalidModelError, "neither"),
        ([TESTDATA / "tf_module", TESTDATA], ExportError, "exists"),
        ([TESTDATA / "tf_module", TESTDATA, "--force"], ExportError, "not an artifact"),
        ([TESTDATA / "tf_module", "OUT", "--train"], InputError, "Keras"),
        ([TESTDATA / "tf_module", "OUT", "--input", "x"], InputError, "--input and --output go with .pb and .meta"),
        ([TESTDATA / "tf_module", "OUT", "--output", "x"], InputError, "--input and --output go with .pb and .meta"),
        ([TESTDATA / "tf_module", "OUT", "--no-constants-as-params"], InputError, "params goes with .pb and .meta"),
        (["model.keras", "OUT", "--input", "x"], InputError, "--input and --output go with .pb and .meta"),
        (["model.keras", "OUT", "--no-constants-as-params"], InputError, "params goes with .pb and .meta"),
        (["model.keras", "OUT", "--tag", "serve"], InputError, "--tag goes with SavedModels"),
        (["graph.pb", "OUT", "--tag", "serve"], InputError, "--tag goes with SavedModels"),
        (["graph.pb", "OUT", "--train"], InputError, "--train needs a Keras file"),
        (["graph.pb", "OUT", "--split-host"], InputError, "--split-host goes with"),
        ([TESTDATA / "tf_module", "OUT", "--dtype", "int8"], InputError, "bfloat16"),
        ([TESTDATA / "tf_module", "OUT", "--set", "colour=red"], Tf2JaxError, "colour"),
        ([TESTDATA / "tf_module", "OUT", "--set", "oops"], InputError, "NAME=VALUE"),
        ([TESTDATA / "tf_module", "OUT", "--set", "max_nodes=--5"], Tf2JaxError, "max_nodes"),
        ([TESTDATA / "tf_module", "OUT", "--set", "max_nodes=\N{SUPERSCRIPT TWO}"], Tf2JaxError, "max_nodes"),
        ([TESTDATA / "tf_module", "OUT", "--set", "max_nodes=" + 5000 * "9"], Tf2JaxError, "max_nodes"),
        ([TESTDATA / "tf_module", "OUT", "--platforms", "gpu"], InputError, "cuda"),
        ([TESTDATA / "tf_module", "OUT", "--platforms", ","], InputError, "none"),
        ([TESTDATA / "tf_module", "OUT", "--shapes", "nope=b,4"], InputError, "nope"),
        ([TESTDATA / "tf_module", TESTDATA / ("x" * 300)], ExportError, "too long"),
        ([TESTDATA / "tf_module", "OUT", "--signature", "nope"], InvalidModelError, "nope"),
    ],
)
def test_refusals(tmp_path, args, error, message):
    args = [tmp_path / "out" if a == "OUT" else a for a in args]
    if args[0] in ("model.keras", "graph.pb"):  # options are looked at before the file
        args[0] = tmp_path / args[0]
        args[0].write_bytes(b"")
    result = invoke("convert", *args)
    assert isinstance(result.exception, error), result.output
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([TESTDATA / "tf_module", "--input", "x"], "only .pb and .meta files take ends="),
        (["model.keras", "--output", "x"], "only .pb and .meta files take ends="),
        (["model.keras", "--tag", "serve"], "only SavedModels take tags="),
        (["graph.pb", "--tag", "serve"], "only SavedModels take tags="),
        ([TESTDATA / "tf_module", "--source"], "--source runs the code of an artifact, but OUT is missing"),
    ],
)
def test_refusals_of_verify(tmp_path, args, message):
    if isinstance(args[0], str):
        args = [tmp_path / args[0], *args[1:]]
        args[0].write_bytes(b"")
    result = invoke("verify", *args)
    assert isinstance(result.exception, InputError), result.output
    assert message in str(result.exception)


@pytest.mark.full
def test_exit_code_and_one_line(tmp_path):
    found = shell("run", tmp_path, "--input", "x.npz", "--output", "y.npz")
    assert found.returncode == 2 and found.stderr.count("\n") == 1, found.stderr
    (tmp_path / "x.npz").write_bytes(b"PK garbage")
    assert invoke("run", tmp_path, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz").exit_code != 0


@pytest.mark.full
def test_run_names_what_is_missing(tmp_path):
    assert invoke("convert", TESTDATA / "tf_module", tmp_path / "out", "--platforms", "cpu", "--quiet").exit_code == 0
    x = arrays(tmp_path / "x.npz", other=X, more=X)
    result = invoke("run", tmp_path / "out", "--input", x, "--output", tmp_path / "y.npz")
    assert isinstance(result.exception, InputError) and "features" in str(result.exception)
    assert not (tmp_path / "y.npz").exists()


@pytest.mark.full
def test_a_result_may_have_any_name(tmp_path):
    fn, params = tf2jax.convert(tf.function(lambda x: {"file": x + 1.0, "a b": x}), tf.TensorSpec([2], name="x"))
    tf2jax.export_functions({"f": (fn, params)}, tmp_path / "out", platforms=["cpu"])
    x = arrays(tmp_path / "x.npz", x=np.float32([1, 2]))
    result = invoke("run", tmp_path / "out", "--input", x, "--output", tmp_path / "y.npz", "--quiet")
    assert result.exit_code == 0, result.output
    found = np.load(tmp_path / "y.npz")
    assert sorted(found.files) == ["a b", "file"]
    np.testing.assert_array_equal(found["file"], [2, 3])


@pytest.mark.full
def test_shapes_by_name_are_of_any_of_the_functions(tmp_path):
    module = tf.Module()
    specs = {name: tf.TensorSpec([None], name=name) for name in "ab"}
    functions = {n: tf.function(lambda x: {"y": x}).get_concrete_function(spec) for n, spec in specs.items()}
    tf.saved_model.save(module, str(tmp_path / "model"), functions)
    result = invoke("convert", tmp_path / "model", tmp_path / "out", "--platforms", "cpu", "--shapes", "a=5")
    assert result.exit_code == 0, result.output
    signatures = json.loads((tmp_path / "out" / "metadata.json").read_text())["signatures"]
    assert {n: [i["shape"] for i in s["inputs"]] for n, s in signatures.items()} == {"a": [[5]], "b": [["batch"]]}


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """Return an artifact with an argument of each kind of numbers."""
    specs = [tf.TensorSpec([None], d, name=d.name) for d in (tf.float32, tf.int64, tf.uint8, tf.complex64)]
    fn, params = tf2jax.convert(
        tf.function(lambda f, i, u, c: {"f": f + f, "i": i + i, "u": u + u, "c": c + c}), *specs
    )
    path = tmp_path_factory.mktemp("artifacts") / "out"
    tf2jax.export_functions({"f": (fn, params)}, path, platforms=["cpu"])
    return path


ONES = {"f": np.ones(1, np.float32), "i": np.ones(1, int), "u": np.uint8([1]), "c": np.ones(1)}


@pytest.mark.default_cases(
    "{'i': array([1.5])}-takes int64-source", "{'u': array([300])}-too large for uint8-stablehlo"
)
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"f": np.ones(1, ">f4")}, [2.0]),  # from big-endian machines
        ({"f": np.ones(1, int)}, [2.0]),
        ({"u": np.int64([100])}, [200]),  # integers of any width, if they fit
        ({"i": np.int64([2**40])}, "int64 becomes without JAX_ENABLE_X64"),  # not 0, as it would come out
        ({"i": np.float64([1.5])}, "takes int64"),
        ({"u": np.int64([300])}, "too large for uint8"),
        ({"f": np.complex64([1j])}, "takes float32"),
        ({"f": np.array(["1.0"])}, "takes float32"),
        ({"f": np.zeros(1, "M8[s]")}, "takes float32"),
        ({"f": np.zeros(1, [("a", "f4")])}, "takes float32"),
    ],
    ids=str,
)
def test_dtypes_of_inputs(twice, tmp_path, backend, given, expected):
    x = arrays(tmp_path / "x.npz", **{**ONES, **given})
    result = invoke("run", twice, "--input", x, "--output", tmp_path / "y.npz", "--backend", backend)
    if isinstance(expected, list):
        assert result.exit_code == 0, result.output
        (name,) = given
        assert np.load(tmp_path / "y.npz")[name].tolist() == expected
    else:
        assert isinstance(result.exception, InputError) and expected in str(result.exception)
        assert not (tmp_path / "y.npz").exists()


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_seeds_of_more_than_64_bits(twice, tmp_path, seed):
    x = arrays(tmp_path / "x.npz", **ONES)
    result = invoke("run", twice, "--input", x, "--output", tmp_path / "y.npz", "--seed", seed)
    assert isinstance(result.exception, InputError) and "--seed" in str(result.exception)


def test_an_empty_batch_is_for_the_source(twice, tmp_path):
    x = arrays(tmp_path / "x.npz", **{n: v[:0] for n, v in ONES.items()})
    result = invoke("run", twice, "--input", x, "--output", tmp_path / "y.npz")
    assert isinstance(result.exception, InputError) and "backend='source'" in str(result.exception)
    assert invoke("run", twice, "--input", x, "--output", tmp_path / "y.npz", "--backend", "source").exit_code == 0
    assert [v.shape for v in np.load(tmp_path / "y.npz").values()] == [(0,)] * 4


def test_results_into_a_pipe(twice, tmp_path):
    """``--output /dev/stdout`` writes to the pipe, and does not replace it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    try:
        x = arrays(tmp_path / "x.npz", **ONES)
        result = invoke("run", twice, "--input", x, "--output", pipe, "--quiet")
        assert result.exit_code == 0, result.output
        assert pipe.is_fifo()
        content, _ = reader.communicate(timeout=30)
    finally:
        reader.kill()
    assert np.load(io.BytesIO(content))["f"].tolist() == [2.0]


@pytest.mark.full
def test_results_into_what_a_link_leads_to(twice, tmp_path):
    """The link stays, also one to an open file (``/dev/stdout > y.npz``)."""
    x = arrays(tmp_path / "x.npz", **ONES)
    with (tmp_path / "open.npz").open("wb") as file:
        opened = tmp_path / "opened"
        opened.symlink_to(f"/proc/self/fd/{file.fileno()}")
        plain = tmp_path / "plain"
        plain.symlink_to("new.npz")
        for link, target in ((opened, "open.npz"), (plain, "new.npz")):
            for _ in range(2):
                result = invoke("run", twice, "--input", x, "--output", link, "--quiet")
                assert result.exit_code == 0, result.output
            assert link.is_symlink()
            assert np.load(tmp_path / target)["f"].tolist() == [2.0]
    circle = tmp_path / "circle"
    circle.symlink_to("circle")
    assert invoke("run", twice, "--input", x, "--output", circle, "--quiet").exit_code == 0
    assert np.load(circle)["f"].tolist() == [2.0]


@pytest.mark.full
def test_a_name_that_is_too_long_for_results(twice, tmp_path):
    x = arrays(tmp_path / "x.npz", **ONES)
    result = invoke("run", twice, "--input", x, "--output", tmp_path / ("y" * 256))
    assert isinstance(result.exception, ExportError) and "too long" in str(result.exception)


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """Return an artifact of one tensor, in a list, with another name."""
    fn, params = tf2jax.convert(tf.function(lambda inputs: inputs[0] * 2), [tf.TensorSpec([None, 4], name="input_1")])
    path = tmp_path_factory.mktemp("artifacts") / "out"
    tf2jax.export_functions({"f": (fn, params)}, path, platforms=["cpu"])
    return path


@pytest.mark.full
@pytest.mark.parametrize("name", ["inputs/0", "input_1", "anything"])
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_run_one_input_takes_any_name(nested, tmp_path, backend, name):
    x = arrays(tmp_path / "x.npz", **{name: np.ones((2, 4), np.float32)})
    result = invoke("run", nested, "--input", x, "--output", tmp_path / "y.npz", "--backend", backend)
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "y.npz")["output_0"].tolist() == np.full((2, 4), 2.0).tolist()


def test_run_unknown_names_error_lists_accepted_names(nested, tmp_path):
    x = arrays(tmp_path / "x.npz", a=np.ones((2, 4), np.float32), b=np.ones(3))
    result = invoke("run", nested, "--input", x, "--output", tmp_path / "y.npz")
    assert isinstance(result.exception, InputError)
    assert "no array 'inputs/0' or 'input_1' or '0' among a, b" in str(result.exception)


@pytest.mark.full
@pytest.mark.parametrize("jits", [True, False])
def test_run_source_is_jitted_where_it_can_be(nested, tmp_path, monkeypatch, jits):
    traced = []

    def loaded(*args, **options):
        fn, params = load(*args, **options)

        def call(*args, **kwargs):
            traced.append(isinstance(args[1][0], jax.core.Tracer))
            results, state = fn(*args, **kwargs)
            return (results if jits else results[results > 0]), state

        call.__dict__.update(fn.__dict__)
        return call, params

    load = execution.load
    monkeypatch.setattr(execution, "load", loaded)
    x = arrays(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    result = invoke("run", nested, "--input", x, "--output", tmp_path / "y.npz", "--backend", "source")
    assert result.exit_code == 0, result.output
    assert traced == ([True] if jits else [True, False])
    assert np.load(tmp_path / "y.npz")["output_0"].shape == ((2, 4) if jits else (8,))


@pytest.mark.full
def test_saved_model_pb_names_its_directory(tmp_path):
    path = TESTDATA / "tf_module" / "saved_model.pb"
    result = invoke("convert", path, tmp_path / "out", "--signature", "serving_default", "--platforms", "cpu", "--json")
    assert result.exit_code == 0 and json.loads(result.output)["signatures"] == ["serving_default"]
    result = invoke("inspect", path, "--json")
    assert result.exit_code == 0 and json.loads(result.output)["kind"] == "SavedModel"


def test_frozen_graph_of_iterator_error_lists_candidates(tmp_path):
    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.from_tensors((tf.ones([2, 3]), tf.zeros([2])))
        x, y = tf.compat.v1.data.make_one_shot_iterator(data).get_next()
        training = tf.compat.v1.placeholder_with_default(False, [], "training")
        scale = tf.compat.v1.placeholder(tf.float32, [], "unused")  # noqa: F841
        z = tf.identity(x, name="img") * tf.cast(training, tf.float32)
        tf.add(z, y[:, None], name="result")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    ends = ("--output", "result", "--json")
    for command in (("convert", path, tmp_path / "out"), ("inspect", path), ("verify", path)):
        result = invoke(*command, *ends)
        assert isinstance(result.exception, InvalidModelError), command
        assert "--input img --input IteratorGetNext:1 --input training (in Python" in str(result.exception)
    inputs = [text for name in ("img", "IteratorGetNext:1") for text in ("--input", name)]
    for command in (("inspect", path), ("convert", path, tmp_path / "out"), ("verify", path)):
        result = invoke(*command, *inputs, *ends)
        assert result.exit_code == 0, (result.output, result.exception)
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_text())
    assert [i["shape"] for i in metadata["signatures"]["serving_default"]["inputs"]] == [[2, 3], [2]]


@pytest.mark.full
def test_frozen_graph_of_named_inputs_finds_its_outputs(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.square(tf.constant([1.0, 2.0], name="x"), name="y")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    result = invoke("inspect", path, "--input", "x", "--json")
    assert result.exit_code == 0, result.output
    assert [o["name"] for o in json.loads(result.output)["signatures"][0]["outputs"]] == ["y"]


@pytest.mark.parametrize("name", ["x" * 70_000, "a\0b", "\ud800"])
def test_names_that_an_npz_cannot_hold(name):
    with pytest.raises(InputError, match="npz cannot hold"):
        _npz({"y": np.zeros(1), name: np.zeros(1)})
    names = ["x" * 65_531, "file", "é/ü"]
    assert np.load(io.BytesIO(_npz({name: np.zeros(1) for name in names}))).files == names


def _signatures(path, **functions):
    """Write a SavedModel with functions of a vector."""
    module = tf.Module()
    specs = [tf.TensorSpec([None], tf.float32, "x")]
    module.made = {name: tf.function(function, input_signature=specs) for name, function in functions.items()}
    tf.saved_model.save(module, str(path), signatures=module.made)
    return path


def _text(x):
    return {"words": tf.strings.as_string(x)}


def _matrix(x):
    return {"y": tf.linalg.diag(x, k=tf.shape(x)[0])}


def test_signatures_that_cannot_be_converted_are_left_out(tmp_path):
    model = _signatures(tmp_path / "model", double=lambda x: {"y": 2 * x}, text=_text, matrix=_matrix)
    out = tmp_path / "out"
    result = invoke("convert", model, out, "--platforms", "cpu", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["signatures"] == ["double"] and set(report["left_out"]) == {"text", "matrix"}
    metadata = json.loads((out / "metadata.json").read_text())
    assert list(metadata["signatures"]) == ["double"]
    for name, reason in (("text", "AsString"), ("matrix", "MatrixDiag")):
        (warning,) = [w for w in metadata["warnings"] if w.startswith(f"{name} is left out: ")]
        assert reason in warning and "--signature" in warning
    fn, params = tf2jax.load(out)
    np.testing.assert_array_equal(fn(params, X[0])[0]["y"], 2 * X[0])
    shown = invoke("convert", model, tmp_path / "shown", "--platforms", "cpu")
    assert "text is left out" in " ".join(shown.output.split())


@pytest.mark.parametrize("signatures", [["text"], ["double", "text"], ["double", "matrix"], []])
def test_signatures_that_have_to_convert(tmp_path, signatures):
    """These are the named ones, and one of all."""
    functions = {"double": lambda x: {"y": 2 * x}} if signatures else {}
    model = _signatures(tmp_path / "model", text=_text, matrix=_matrix, **functions)
    asked = [part for name in signatures for part in ("--signature", name)]
    result = invoke("convert", model, tmp_path / "out", *asked)
    assert isinstance(result.exception, Tf2JaxError) and not (tmp_path / "out").exists()


_NEED_A_DEVICE = {
    "convert": ["model.keras", "out"],
    "run": ["artifact", "--input", "x.npz", "--output", "out"],
    "verify": ["model.keras"],
    "finetune": ["artifact", "--data", "x.npz", "--out", "out", "--loss", "mse"],
    "federate": ["artifact", "--data", "x.npz", "--out", "out", "--loss", "mse"],
    "merge-adapters": ["artifact", "adapters.safetensors", "--out", "out"],
    "demo": [],
}


@pytest.mark.parametrize("command", _NEED_A_DEVICE)
def test_a_platform_that_jax_lacks_is_the_first_error(command, tmp_path, monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax, "devices", fail)
    result = invoke(command, *_NEED_A_DEVICE[command])
    assert isinstance(result.exception, InputError), result.exception
    assert "cannot use the platform" in str(result.exception) and "JAX_PLATFORMS" in str(result.exception)
    assert "Installed are: cpu" in str(result.exception) and not list(tmp_path.iterdir())


def test_a_missing_extra_is_said_before_the_conversion(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    result = invoke("convert", tmp_path / "no-such.keras", tmp_path / "out", "--checkpoint")
    assert isinstance(result.exception, MissingLibraryError) and "[checkpoint]" in str(result.exception)


def test_run_writes_an_npz_only(tmp_path):
    result = invoke("run", tmp_path, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.csv")
    assert isinstance(result.exception, InputError) and ".npz" in str(result.exception)


@pytest.mark.parametrize("command", ["finetune", "federate"])
def test_an_output_that_exists_is_said_before_data_are_read(command, tmp_path):
    result = invoke(command, tmp_path, "--data", tmp_path / "no-such.npz", "--out", tmp_path)
    assert isinstance(result.exception, ExportError) and "exists" in str(result.exception)
