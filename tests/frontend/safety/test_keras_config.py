"""Keras files with code raise before Keras, or tf_keras, would run it."""

import inspect
import json
import zipfile

import h5py
import numpy as np
import pytest

import tf2jax_lite
from tf2jax_lite.errors import InvalidModelError, LimitError, UntrustedError
from tf2jax_lite.frontend.safety import keras_names
from tf2jax_lite.frontend.safety.keras_config import reject_code
from tf2jax_lite.pipeline import model_files
from tf2jax_lite.support import limits


def lambda_model(tmp_path, library, suffix):
    """Return a model whose Lambda layer makes a file when loaded or built.

    The library itself writes the model.
    """
    keras = pytest.importorskip(library)
    marker = tmp_path / "ran"
    text = str(marker)
    run = eval(f"lambda x: (open({text!r}, 'w').close(), x)[1]")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(run)])
    path = tmp_path / f"model{suffix}"
    model.save(path)
    marker.unlink(missing_ok=True)
    return path, marker


@pytest.mark.parametrize(("library", "suffix"), [("keras", ".keras"), ("keras", ".h5"), ("tf_keras", ".h5")])
def test_layers_that_hold_code_are_refused(tmp_path, library, suffix):
    path, marker = lambda_model(tmp_path, library, suffix)
    with pytest.raises(UntrustedError, match="Lambda"):
        model_files.convert_file(path)
    assert not marker.exists()


def test_trusted_layer_reaches_keras(tmp_path):
    path, _ = lambda_model(tmp_path, "tf_keras", ".h5")
    with tf2jax_lite.override_config("trusted", "Lambda"):
        reject_code(path)


def test_code_is_found_at_any_depth_and_other_layers_pass(tmp_path):
    path = tmp_path / "m.keras"
    for name, refused in (("Dense", False), ("builtins>Lambda", True), ("TorchModuleWrapper", True)):
        config = {"class_name": name, "config": {}}
        for _ in range(20):
            config = {"class_name": "Model", "config": {"layers": [config]}}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", json.dumps(config))
        if refused:
            with pytest.raises(UntrustedError):
                reject_code(path)
        else:
            reject_code(path)


def keras_file(path, config):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "2.15.0", "date_saved": ""}))
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("model.weights.h5", b"")
    return path


def named(module, name, config=None, **more):
    return {"module": module, "class_name": name, "config": {} if config is None else config, **more}


@pytest.mark.parametrize(
    ("inner", "match"),
    [
        (named("evil_module", "Payload"), "evil_module: would be imported"),
        (named("evil_module", "function", "call"), "evil_module: would be imported"),
        (named("os.path", "Payload", registered_name="x>Payload"), "os.path: would be imported"),
        (named("builtins", "function", "eval"), r"builtins.eval"),
        (named("builtins", "Dense"), "builtins: would be imported"),
        (named("keras.utils", "get_file"), r"keras.utils.get_file: is neither a layer"),
        (named("tf_keras.src.utils.generic_utils", "function", "func_load"), "func_load: is no function that"),
        (named("tf_keras.src.layers", "core.Lambda"), "Lambda: layers of this class"),
        (named("tf_keras.layers", "Nothing", registered_name="Lambda"), "Lambda: layers of this class"),
        (named("keras.layers", "TFSMLayer", {"filepath": "/x"}), "TFSMLayer"),
        (named("evil_module", "__typespec__", spec_name="Spec"), "evil_module: would be imported"),
        (named("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}), "/etc/passwd: is a file"),
        (
            {"class_name": "ResidualWrapper", "config": {"residual_fn_type": "lambda"}},
            "Lambda: .residual_fn. holds code",
        ),
    ],
)
def test_objects_outside_keras_raise(tmp_path, monkeypatch, inner, match):
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = keras_file(tmp_path / "m.keras", named("keras", "Sequential", {"name": "s", "layers": [inner]}))
    with pytest.raises(UntrustedError, match=match):
        model_files.convert_file(path)
    assert not (tmp_path / "ran").exists()


def test_registered_objects_and_functions_of_keras_pass(tmp_path):
    keras = pytest.importorskip("keras")

    @keras.saving.register_keras_serializable("mine")
    class Doubled(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, "gelu"), Doubled()])
    model.compile("adam", "mse")
    model.save(tmp_path / "m.keras")
    reject_code(tmp_path / "m.keras")
    try:
        keras.saving.get_custom_objects().pop("mine>Doubled")
        with pytest.raises(UntrustedError, match="would be imported, for 'Doubled'"):
            reject_code(tmp_path / "m.keras")
    finally:
        keras.saving.get_custom_objects()["mine>Doubled"] = Doubled


def test_a_file_that_is_an_archive_and_hdf5_both(tmp_path):
    """zipfile looks at a file's end, HDF5 at its beginning."""
    path, marker = lambda_model(tmp_path, "tf_keras", ".h5")
    good = keras_file(tmp_path / "good.keras", named("keras", "Sequential", {"layers": []}))
    path.write_bytes(path.read_bytes() + good.read_bytes())
    assert zipfile.is_zipfile(path)
    with pytest.raises(UntrustedError, match="Lambda"):
        model_files.convert_file(path)
    assert not marker.exists()


def test_damaged_configurations(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", "[" * 100_000)
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.attrs["model_config"] = np.arange(3)
    for name in ("m.keras", "m.h5"):
        with pytest.raises(InvalidModelError):
            reject_code(tmp_path / name)


@pytest.mark.parametrize(
    "sizes", [{"units": 1 << 31}, {"input_dim": 1 << 20, "output_dim": 1 << 20}, {"num_oov_indices": (1 << 31) - 1}]
)
def test_weights_that_no_memory_holds(tmp_path, sizes):
    """Keras makes a layer's weights before it reads any."""
    layer = {"module": "keras.layers", "class_name": "Dense", "config": {"name": "wide", **sizes}}
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"config": {"layers": [layer]}}))
    with pytest.raises(LimitError, match=r"'wide'.*(max_constant_bytes|max_nodes)"):
        reject_code(tmp_path / "m.keras")


@pytest.mark.default_cases("<lambda>-declares 4398046511104 bytes")
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda group: group.create_dataset("kernel", (1 << 20, 1 << 20), "f4"), "declares 4398046511104 bytes"),
        (lambda group: group.create_dataset("kernel", (4,), "u1", external=[("/etc/passwd", 0, 4)]), "another file"),
        (lambda group: group.__setitem__("kernel", h5py.ExternalLink("/etc/passwd", "/x")), "is a link"),
        (lambda group: group.__setitem__("kernel", h5py.SoftLink("/model_weights/dense")), "is a link"),
    ],
)
def test_weights_that_the_file_does_not_hold(tmp_path, make, match):
    keras = pytest.importorskip("keras")
    path = tmp_path / "m.h5"
    keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="dense")]).save(path)
    reject_code(path)
    with h5py.File(path, "r+") as file:
        file["model_weights/dense/again"] = file["model_weights"]  # a circle
    reject_code(path)
    with h5py.File(path, "r+") as file:
        make(file["model_weights/dense"].create_group("more"))
    with pytest.raises(InvalidModelError, match=match):
        model_files.convert_file(path)


def hdf5_file(path, config, version="2.15.0"):
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(config)
        file.attrs["keras_version"] = version
    return path


def sequential(*layers, shape=(None, 4)):
    first = named("keras.layers", "InputLayer", {"batch_input_shape": list(shape), "name": "in"})
    return named("keras", "Sequential", {"name": "s", "layers": [first, *layers]})


def _bare(config):
    """Return a configuration as old files have it, without modules."""
    if isinstance(config, dict):
        return {key: _bare(value) for key, value in config.items() if key != "module"}
    return [_bare(item) for item in config] if isinstance(config, list) else config


def nested(kind, config):
    layer = named("keras.layers", "TimeDistributed", {"layer": named("keras.layers", kind, config)})
    return sequential(layer, shape=(None, 4, 4))


CALLS = [
    ("TFOpLambda", {"function": "io.write_file"}, "io.write_file"),
    ("TFOpLambda", {"function": "compat.v1.write_file"}, "compat.v1.write_file"),
    ("TFOpLambda", {"function": "io.gfile.rmtree"}, "io.gfile.rmtree"),
    ("TFOpLambda", {"function": "load_op_library"}, "load_op_library"),
    ("TFOpLambda", {"function": "print"}, "print"),  # with output_stream="file://..."
    ("TFOpLambda", {"function": "raw_ops.WriteFile"}, "raw_ops.WriteFile"),
    ("TFOpLambda", {"function": "keras.utils.get_file"}, "keras.utils.get_file"),
    ("TFOpLambda", {"function": "numpy_function"}, "numpy_function"),
    ("TFOpLambda", {"function": ["io.write_file"]}, "is no function of TensorFlow"),
    ("SlicingOpLambda", {"function": "io.write_file"}, "io.write_file"),
    ("InstanceMethod", {"attr_name": "numpy"}, "numpy"),
    ("InstanceProperty", {"attr_name": "__class__"}, "__class__"),
    ("ClassMethod", {"cls_symbol": "io.TFRecordWriter", "method_name": "write"}, "io.TFRecordWriter.write"),
    ("ClassMethod", {"cls_symbol": "RaggedTensor", "method_name": "__init__"}, "RaggedTensor.__init__"),
    ("TensorFlowOpLayer", {"node_def": {"op": "WriteFile"}}, "WriteFile"),
    ("TensorFlowOpLayer", {"node_def": "\x12\x09WriteFile"}, "WriteFile"),
    ("ResidualWrapper", {"residual_fn": "f", "residual_fn_type": "function", "residual_fn_module": "os"}, "Lambda"),
    ("get_file", {}, "get_file"),
    ("CSVLogger", {"filename": "x.csv"}, "CSVLogger"),
    ("np.save", {}, "np.save"),
    ("StringLookup", {"vocabulary": {"class_name": "__bytes__", "value": "/etc/passwd"}}, "/etc/passwd"),
    ("DenseFeatures", {"feature_columns": [{"class_name": "VocabularyFileCategoricalColumn"}]}, "VocabularyFile"),
]


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(("kind", "config", "match"), CALLS)
def test_names_that_are_not_listed_are_refused_at_any_depth(tmp_path, kind, config, match, old):
    config = nested(kind, config)
    path = hdf5_file(tmp_path / "m.h5", _bare(config)) if old else keras_file(tmp_path / "m.keras", config)
    with pytest.raises((UntrustedError, InvalidModelError), match=match):
        model_files.convert_file(path)


def test_function_of_tensorflow_is_allowed_by_its_name(tmp_path):
    path = hdf5_file(tmp_path / "m.h5", nested("TFOpLambda", {"function": "io.write_file"}))
    with pytest.raises(UntrustedError, match=r"override_config\(.trusted., 'io.write_file'\)"):
        reject_code(path)
    with tf2jax_lite.override_config("trusted", "io.write_file"):
        reject_code(path)


COMPUTING = """
math.multiply compat.v1.nn.conv2d __operators__.getitem reshape keras.backend.sum strings.lower random.normal
keras.activations.relu image.resize linalg.matmul math.special.dawsn
"""


@pytest.mark.parametrize("name", COMPUTING.split())
def test_functions_of_tensorflow_that_compute_pass(tmp_path, name):
    reject_code(hdf5_file(tmp_path / "m.h5", nested("TFOpLambda", {"function": name})))


def functional(layer, node):
    layers = [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 4], "name": "in"}, "inbound_nodes": []},
        {**layer, "inbound_nodes": [node]},
    ]
    for item in layers:
        item["name"] = item["config"]["name"]
    ends = {"input_layers": [["in", 0, 0]], "output_layers": [["op", 0, 0]]}
    return {"class_name": "Functional", "config": {"name": "m", "layers": layers, **ends}}


@pytest.mark.parametrize(
    ("node", "calls"),
    [
        (["_CONSTANT_VALUE", -1, [100_000, 100_000], {}], False),
        (["_CONSTANT_VALUE", -1, ["in", 0, 0], {"name": "x"}], False),
        (["_CONSTANT_VALUE", -1, 1.0, {"y": {"class_name": "__tuple__", "items": ["in", 0, 0]}}], False),
        ({"args": [3], "kwargs": {}}, False),
        ({"args": [{"class_name": "Dense", "config": {"x": {"class_name": "__keras_tensor__"}}}], "kwargs": {}}, False),
        (["_CONSTANT_VALUE", -1, 1.0, {"y": ["in", 0, 0]}], True),
        ([["in", 0, 0, {}]], True),
        ({"args": [[{"class_name": "__keras_tensor__", "config": {}}]], "kwargs": {}}, True),
    ],
)
def test_layer_called_on_constants_alone_is_refused(tmp_path, node, calls):
    layer = {"class_name": "TFOpLambda", "config": {"name": "op", "function": "zeros"}}
    path = hdf5_file(tmp_path / "m.h5", functional(layer, node))
    if calls:
        reject_code(path)
    else:
        with pytest.raises(InvalidModelError, match="'op' is called on no result"):
            model_files.convert_file(path)


@pytest.mark.parametrize(
    "node",
    [
        [["op", 0, 0, {}]],
        [["in", 0, 0, {}], ["op", 1, 0, {}]],
        [["other", 1, 0, {}]],
        [["other", None, 0, {}], ["in", 0, 0, {}]],
        [["in", 0, 0, {"y": ["other", 0, 0]}]],
    ],
)
def test_calls_that_wait_for_each_other_end(tmp_path, node):
    config = functional({"class_name": "Add", "config": {"name": "op"}}, node)
    other = {"class_name": "Add", "config": {"name": "other"}, "name": "other", "inbound_nodes": [[["op", 0, 0, {}]]]}
    config["config"]["layers"].append(other)
    with pytest.raises(InvalidModelError, match=r"is called on (a|no) result"):
        model_files.convert_file(hdf5_file(tmp_path / "m.h5", config))


def test_shared_and_nested_layers_are_no_calls_that_wait(tmp_path):
    keras = pytest.importorskip("tf_keras")
    x, y = keras.Input((3,)), keras.Input((3,))
    shared = keras.layers.Dense(3)
    inner = keras.Model(x, shared(shared(x)))
    sequential = keras.Sequential([keras.layers.Dense(3)])
    built = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    result = built(built(sequential(sequential(inner(inner(y))))))
    attended = keras.layers.MultiHeadAttention(1, 2)(x[:, None], value=result[:, None])
    keras.Model([x, y], attended).save(tmp_path / "m.h5")
    model_files.load_keras(tmp_path / "m.h5")


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_every_layer_and_named_object_of_keras_is_accepted(library):
    keras = pytest.importorskip(library)
    classes = {name for name, found in vars(keras.layers).items() if inspect.isclass(found)}
    refused = {name for name in classes if not keras_names.is_class(name, None)}
    assert refused <= keras_names.CODE
    for namespace in ("activations", "constraints", "initializers", "losses", "metrics", "regularizers"):
        for name, found in vars(getattr(keras, namespace)).items():
            if callable(found) and name not in ("deserialize", "get", "serialize") and not name.startswith("_"):
                accepted = keras_names.is_class if inspect.isclass(found) else keras_names.is_function
                assert accepted(name, f"{library}.{namespace}"), name
                assert keras_names.is_identifier(name), name


def test_listed_functions_of_tensorflow_exist_and_no_class_is_among_them():
    from tensorflow.python.util import tf_export

    pytest.importorskip("tf_keras")
    for name in keras_names._TENSORFLOW_NAMES:
        found = [tf_export.get_symbol_from_name(prefix + name) for prefix in ("", "compat.v1.")]
        assert any(found), name
        assert not any(inspect.isclass(symbol) for symbol in found), name


def test_layer_of_a_new_release_is_refused_until_it_is_listed(tmp_path, monkeypatch):
    keras = pytest.importorskip("keras")
    monkeypatch.setattr(keras.layers, "Downloader", keras.layers.Dense, raising=False)
    for config in (sequential(named("keras.layers", "Downloader")), _bare(sequential(named("", "Downloader")))):
        with pytest.raises(UntrustedError, match="Downloader: is neither a layer"):
            reject_code(keras_file(tmp_path / "m.keras", config))


GROWING = {
    "dense": [named("keras.layers", "Dense", {"name": "a", "units": 40_000})] * 2,
    "convolution": [
        named("keras.layers", "Reshape", {"target_shape": [2, 2, 1]}),
        named("keras.layers", "Conv2D", {"filters": 90, "kernel_size": [6000, 6000], "padding": "same"}),
    ],
    "recurrent": [
        named("keras.layers", "Reshape", {"target_shape": [2, 2]}),
        named("keras.layers", "GRU", {"units": 40_000}),
    ],
    "axes": [
        named("keras.layers", "RepeatVector", {"n": 1_000_000_000}),
        named("keras.layers", "LayerNormalization", {"axis": [1, 2]}),
    ],
    "initializer": [
        named("keras.layers", "RepeatVector", {"n": 40_000}),
        named("keras.layers", "Flatten"),
        named("keras.layers", "Dense", {"units": 40_000, "kernel_initializer": "orthogonal"}),
    ],
    "together": [named("keras.layers", "Dense", {"units": 4_000})] * 10,
}


@pytest.mark.default_cases("2.15.0-dense", "3.0.0-together")
@pytest.mark.parametrize("layers", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("version", ["2.15.0", "3.0.0"])
def test_weights_are_counted_before_they_are_made(tmp_path, layers, version):
    """Sizes of kernels, of axes of inputs, and of all layers together."""
    pytest.importorskip("keras" if version == "3.0.0" else "tf_keras")
    config = sequential(*({**layer, "config": {**layer["config"], "name": f"l{i}"}} for i, layer in enumerate(layers)))
    path = hdf5_file(tmp_path / "m.h5", config, version)
    with (
        tf2jax_lite.override_config("max_constant_bytes", 1 << 28),
        pytest.raises(LimitError, match="max_constant_bytes"),
    ):
        model_files.convert_file(path)


def test_shapes_of_several_inputs_are_counted_one_by_one(tmp_path):
    keras = pytest.importorskip("keras")
    x = keras.Input((16, 16, 256))
    keras.Model(x, keras.layers.Add()([x, keras.layers.ReLU()(x)])).save(tmp_path / "m.keras")
    reject_code(tmp_path / "m.keras")


def test_weights_that_the_file_holds_are_within_the_limit(tmp_path):
    keras = pytest.importorskip("keras")
    path = tmp_path / "m.keras"
    keras.Sequential([keras.Input((100,)), keras.layers.Dense(100)]).save(path)
    with tf2jax_lite.override_config("max_constant_bytes", 1000):
        model_files.load_keras(path)


@pytest.mark.parametrize("member", ["config.json", "metadata.json"])
def test_long_json_is_refused_before_it_is_unpacked(tmp_path, member):
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, b" " * (limits.MAX_JSON_BYTES + 1))
    with pytest.raises(InvalidModelError, match=f"{member}: .* bytes"):
        reject_code(path)


def test_strings_that_are_all_the_same_in_the_file_are_refused(tmp_path):
    path = hdf5_file(tmp_path / "m.h5", _bare(sequential()))
    with h5py.File(path, "r+") as file:
        file.attrs["layer_names"] = ["x" * 1000] * 2000
    with (
        tf2jax_lite.override_config("max_constant_bytes", 1 << 20),
        pytest.raises(LimitError, match="strings of variable length in /: layer_names"),
    ):
        reject_code(path)


def test_arrays_of_an_archive_are_checked_as_those_of_hdf5(tmp_path):
    keras = pytest.importorskip("keras")
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")]).save(tmp_path / "good.keras")
    with zipfile.ZipFile(tmp_path / "good.keras") as archive, zipfile.ZipFile(tmp_path / "m.keras", "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            if name.endswith(".h5"):
                (tmp_path / "w.h5").write_bytes(data)
                with h5py.File(tmp_path / "w.h5", "r+") as file:
                    file.create_dataset("more", (1 << 20, 1 << 20), "f4")
                data = (tmp_path / "w.h5").read_bytes()
            other.writestr(name, data)
    with pytest.raises(InvalidModelError, match="declares 4398046511104 bytes"):
        model_files.convert_file(tmp_path / "m.keras")
