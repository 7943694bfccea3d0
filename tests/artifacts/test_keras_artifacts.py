"""Artifacts of Keras files: training as by fit, and parts that raise by name."""

import keras
import numpy as np
import pytest
import tf_keras

from tf2jax_lite.errors import InputError
from tf2jax_lite.export import export_functions
from tf2jax_lite.export.load import load
from tf2jax_lite.finetuning import finetune_artifact
from tf2jax_lite.learning.sources import create_model_from_artifact
from tf2jax_lite.pipeline.model_files import convert_file

LIBRARIES = {"keras": keras, "tf_keras": tf_keras}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 6)).astype(np.float32), RNG.normal(size=(12, 3)).astype(np.float32)
IDS, STEPS = RNG.integers(0, 4, (12, 6)).astype(np.int32), RNG.integers(0, 3, (12, 6)).astype(np.int32)


def dense(K, **options):
    return K.Sequential([K.layers.Input((6,), name="x"), K.layers.Dense(3, name="d", **options)])


def masked(K):
    L = K.layers
    layers = [L.Embedding(4, 3, mask_zero=True), L.GRU(4, return_sequences=True), L.Dense(3, "softmax")]
    return K.Sequential([L.Input((6,), dtype="int32", name="x"), *layers])


def written(net, folder, train=True):
    net.save(folder / "model.keras")
    export_functions(convert_file(folder / "model.keras", train=train), folder / "out", platforms=["cpu"])
    return folder / "out"


def tuned(artifact, out, data=None, **options):
    given = {"loss": "mse", "optimizer": "sgd", "learning_rate": 0.1, "epochs": 2, "batch_size": 12, **options}
    finetune_artifact(artifact, data or {"x": X, "y": Y}, out, **given)
    return {str(name): np.asarray(value) for name, value in load(out, "serving_default")[1].items()}


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["kernel_regularizer", "activity_regularizer"])
def test_added_losses_train_as_in_fit(kind, library, tmp_path):
    K = LIBRARIES[library]
    net = dense(K, **{kind: K.regularizers.L2(0.3)})
    found = tuned(written(net, tmp_path), tmp_path / "tuned")
    net.compile(K.optimizers.SGD(0.1), "mse")
    net.fit(X, Y, batch_size=12, epochs=2, shuffle=False, verbose=0)
    for name, value in zip(("d/kernel", "d/bias"), net.get_weights(), strict=True):
        np.testing.assert_allclose(next(v for n, v in found.items() if n.endswith(name)), value, atol=1e-5)
    results, added = load(tmp_path / "out", "train")[0](load(tmp_path / "out", "train")[1], X)[0]
    assert np.shape(added) == () and np.shape(results) == (12, 3)


@pytest.mark.full
@pytest.mark.parametrize("library", LIBRARIES)
def test_constraints_raise_unless_frozen(library, tmp_path):
    artifact = written(dense(LIBRARIES[library], kernel_constraint="non_neg"), tmp_path)
    with pytest.raises(InputError, match="kernel' has the constraint NonNeg"):
        tuned(artifact, tmp_path / "tuned")
    with pytest.raises(InputError, match="kernel' has the constraint NonNeg"):
        create_model_from_artifact(artifact, "mse")
    assert tuned(artifact, tmp_path / "tuned", freeze=["kernel"])


@pytest.mark.full
def test_masks_raise_unless_labels_say_it(tmp_path):
    artifact, data = written(masked(keras), tmp_path), {"x": IDS, "y": STEPS}
    loss = {"loss": "sparse_categorical_crossentropy"}
    with pytest.raises(InputError, match=r"masks steps .*ignore_label="):
        tuned(artifact, tmp_path / "tuned", data, **loss)
    labels = np.where(IDS == 0, -1, STEPS)
    assert tuned(artifact, tmp_path / "tuned", {"x": IDS, "y": labels}, ignore_label=-1, **loss)


@pytest.mark.full
def test_added_losses_need_the_training_mode(tmp_path):
    artifact = written(dense(keras, kernel_regularizer="l2"), tmp_path, train=False)
    with pytest.raises(InputError, match=r"adds losses .*tf2jax-lite convert --train"):
        tuned(artifact, tmp_path / "tuned")


@pytest.mark.full
def test_artifacts_record_that_examples_are_alone(tmp_path):
    for name, net, alone in (("a", dense(keras), True), ("b", dense(keras, activity_regularizer="l2"), False)):
        (tmp_path / name).mkdir()
        artifact = written(net, tmp_path / name)
        assert load(artifact, "train")[0].independent is alone
        assert load(artifact, "serving_default")[0].independent
