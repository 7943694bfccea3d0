"""Signatures of SavedModels whose values stay in the checkpoint."""

import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tests._support import invoke
from tf2jax_lite.errors import InvalidModelError
from tf2jax_lite.export import params_file
from tf2jax_lite.frontend.concrete import saved_signatures
from tf2jax_lite.frontend.saved import saved_model
from tf2jax_lite.pipeline.convert import signature_converter
from tf2jax_lite.pipeline.model_files import convert_file
from tf2jax_lite.support.stored_array import StoredArray

DATA = Path(__file__).parents[3] / "testdata"
MODELS = ["tf_module", "keras_export", "tf_keras_save", "jax2tf_cnn", "tf1/classifier", "tf1/hub"]


def restored(path, name):
    """Return the values of a signature's variables as TensorFlow restores them."""
    model = saved_model.load(path)
    return {v.name.split(":")[0]: v.numpy() for v in model.signatures[name].graph.variables}


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_stored_values_are_those_that_tensorflow_restores(name):
    found = convert_file(DATA / name, stored=True)
    shared = {}
    for signature, (_, params) in found.items():
        expected = restored(DATA / name, signature)
        assert any(isinstance(value, StoredArray) for value in params.values()) or not expected
        for key, value in params.items():
            assert shared.setdefault(str(key), value) is value  # signatures share values
            if str(key) in expected:
                assert value.dtype == expected[key].dtype and value.shape == expected[key].shape
                np.testing.assert_array_equal(np.asarray(value), expected[key])
        if not name.startswith("tf1"):
            assert set(expected) == set(map(str, params))


@pytest.mark.full
def test_values_are_arrays_by_default():
    _, params = tf2jax_lite.convert_saved_model(DATA / "tf_module")
    assert params and all(isinstance(value, tf2jax_lite.Variable) for value in params.values())


class Model(tf.Module):
    """A dense layer with a counter, a table and state of other kinds on request."""

    def __init__(self, kind):
        super().__init__()
        self.w = tf.Variable(np.float32([[1, 2], [3, 4]]), name="w")
        self.count = tf.Variable(5, dtype=tf.int64, name="count")
        self.slot = tf.Variable([9.0], name="slot")  # no signature reads it
        if kind == "mutable table":
            self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
            self.table.insert([1], [2.0])
        if kind == "table":
            self.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2.0]), 0.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        out = x @ self.w + tf.cast(self.count, tf.float32)
        return out + self.table.lookup(tf.constant([1], self.table.key_dtype)) if hasattr(self, "table") else out


@pytest.mark.default_cases("mutable table")
@pytest.mark.parametrize("kind", ["plain", "table", "mutable table"])
def test_tensorflow_restores_only_what_it_must(kind, tmp_path, monkeypatch):
    model = Model(kind)
    expected = model(tf.ones([1, 2])).numpy()
    tf.saved_model.save(model, str(tmp_path / "m"), signatures=model.__call__)
    loads = []
    load = saved_model.SavedModel.load

    def recorded(model, *, checkpoint=True):
        loads.append((checkpoint, load(model, checkpoint=checkpoint)))
        return loads[-1][1]

    monkeypatch.setattr(saved_model.SavedModel, "load", recorded)
    if kind == "mutable table":
        loader = saved_signatures.signature_loader(tmp_path / "m", None, lambda graph, name: None)
        assert loader._values is None and [checkpoint for checkpoint, _ in loads] == [True]
        return
    fn, params = signature_converter(tmp_path / "m", stored=True)("serving_default")
    assert [checkpoint for checkpoint, _ in loads] == [False]
    handles = [variable.handle for variable in loads[0][1].signatures["serving_default"].graph.variables]
    assert handles and not any(tf.raw_ops.VarIsInitializedOp(resource=handle) for handle in handles)
    assert {str(k): type(v) is StoredArray for k, v in params.items()} == {"w": True, "count": False}
    arrays = {key: np.asarray(value) for key, value in params.items()}
    np.testing.assert_array_equal(jax.tree.leaves(fn(arrays, x=np.ones([1, 2], np.float32))[0])[0], expected)


@pytest.mark.full
def test_convert_of_a_damaged_checkpoint(tmp_path):
    model = Model("plain")
    tf.saved_model.save(model, str(tmp_path / "m"), signatures=model.__call__)
    data = tmp_path / "m" / "variables" / "variables.data-00000-of-00001"
    content = data.read_bytes()
    place = content.index(np.float32([1, 2, 3, 4]).tobytes())
    data.write_bytes(content[:place] + b"\x07" + content[place + 1 :])
    result = invoke("convert", tmp_path / "m", tmp_path / "out")
    assert isinstance(result.exception, InvalidModelError) and "damaged" in str(result.exception)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InvalidModelError, match="damaged"):
        tf2jax_lite.convert_saved_model(tmp_path / "m")
    data.write_bytes(content[: place + 8])
    with pytest.raises(InvalidModelError, match="more than the"):
        tf2jax_lite.convert_saved_model(tmp_path / "m")


@pytest.mark.full
def test_values_stream_from_the_checkpoint_to_the_artifact(tmp_path):
    """Memory does not grow with the variables."""
    count = 6 << 20
    saved = tf.train.Checkpoint(a=tf.Variable(tf.range(count, dtype=tf.float32)), b=tf.Variable([1.0]))
    checkpoint = saved_signatures.Checkpoint(saved.write(str(tmp_path / "point")))
    values = {name: checkpoint.stored((f"{name}/.ATTRIBUTES/VARIABLE_VALUE", "")) for name in "ab"}
    tracemalloc.start()
    try:
        params_file.write_params({**values, "half": values["a"].astype("float16")}, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < values["a"].nbytes  # chunks, and the tables of the checksum
    with np.errstate(over="ignore"):
        half = np.arange(count, dtype=np.float32).astype(np.float16)
    found = params_file.read_tensors(tmp_path / "params.safetensors")
    np.testing.assert_array_equal(found["a"], np.arange(count, dtype=np.float32))
    np.testing.assert_array_equal(found["half"], half)
    np.testing.assert_array_equal(found["b"], [1])
