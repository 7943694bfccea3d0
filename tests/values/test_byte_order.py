"""Arrays of users in big-endian byte order, at each entry."""

import jax
import ml_dtypes
import numpy as np
import optax
import pytest
import tensorflow as tf

import tf2jax_lite
import tf2jax_lite.federated as fed
from tf2jax_lite.errors import DtypeMismatchError, InputError
from tf2jax_lite.export import export_functions, load
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.learning.sources import create_model_from_fn
from tf2jax_lite.support.byte_order import native

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 4)).astype(np.float32)
LABELS = np.arange(16) % 3


def big(tree):
    return jax.tree.map(lambda v: np.asarray(v).astype(np.asarray(v).dtype.newbyteorder(">")), tree)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i8", ">u2", ">c8", "?", "S3", ">U3", "O", ">M8[D]", "bfloat16"])
def test_native(dtype):
    array = np.ones(3, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    found = native(array)
    assert found.dtype.isnative and found.tolist() == array.tolist()
    assert (found is array) == array.dtype.isnative


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    kernel = tf.Variable(RNG.normal(size=(4, 3)).astype(np.float32), name="kernel")
    function = tf.function(lambda x, n: {"y": x @ kernel + tf.cast(n, tf.float32)}, autograph=False)
    converted = tf2jax_lite.convert(function, tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([3], tf.int64))
    path = tmp_path_factory.mktemp("artifact") / "model"
    export_functions({"f": converted}, path, platforms=["cpu"])
    return converted, path


@pytest.mark.parametrize("kind", ["converted", "stablehlo", "source"])
def test_calls(artifact, kind):
    fn, params = artifact[0] if kind == "converted" else load(artifact[1], "f", backend=kind)
    n = np.array([1, 2, 3])
    expected = fn(params, X, n)[0]["y"]
    for given in ((big(params), X, n), (params, big(X), big(n)), (big(params), big(X), big(n))):
        np.testing.assert_array_equal(fn(*given)[0]["y"], expected)
    with pytest.raises(DtypeMismatchError, match="JAX does not support"):
        fn(params, np.zeros(2, [("a", ">f4")]), n)


def classifier(params):
    loss = fed.named_loss("sparse_categorical_crossentropy", from_logits=True)
    return create_model_from_fn(params, lambda p, b: b["x"] @ p["w"], loss)


@pytest.mark.default_cases("rows", "compressed")
@pytest.mark.parametrize("form", ["arrays", "rows", "npz", "shards", "compressed"])
def test_central_training(form, tmp_path):
    pytest.importorskip("grain")

    def trained(data, params):
        if form == "rows":
            data = [{name: value[i] for name, value in data.items()} for i in range(16)]
        elif form != "arrays":
            (tmp_path / "d").mkdir(exist_ok=True)
            (np.savez_compressed if form == "compressed" else np.savez)(tmp_path / "d" / "a.npz", **data)
            data = tmp_path / "d" / "a.npz" if form == "npz" else tmp_path / "d"
        weights, _ = finetune(classifier(params), data, epochs=1, batch_size=8, optimizer=optax.sgd(0.1))
        return weights.trainable["w"]

    data, params = {"x": X, "y": LABELS}, {"w": np.ones((4, 3), np.float32)}
    np.testing.assert_array_equal(trained(big(data), big(params)), trained(data, params))


def test_records_do_not_train():
    data = {"x": np.zeros(16, [("a", ">f4")]), "y": LABELS}
    with pytest.raises(InputError, match="does not take the first batch"):
        finetune(classifier({"w": np.ones((4, 3), np.float32)}), data, epochs=1, batch_size=8, optimizer=optax.sgd(0.1))


def test_clients():
    model = classifier({"w": np.ones((4, 3), np.float32)})
    data = {"x": X, "y": LABELS}
    clients = fed.InMemoryFederatedData({"a": big(data), "b": {**big(data), "s": np.array(["é"] * 16, ">U1")}})
    assert all(v.dtype.isnative for _, client in clients.clients() for v in client.raw_examples.values())
    weights = model.init(jax.random.key(0))
    expected = fed.evaluate_model(model, weights, [data])["loss"]
    for batches in ([big(data)], clients.get_client("a").padded_batch(batch_size=16)):
        np.testing.assert_allclose(fed.evaluate_model(model, weights, batches)["loss"], expected, rtol=1e-6)
