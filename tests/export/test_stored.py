"""Artifacts, checkpoints and inputs of earlier versions load as recorded.

`testdata/make_stored.py` wrote them.
"""

import shutil
from importlib import metadata
from pathlib import Path

import jax
import numpy as np
import pytest
from packaging.version import Version

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import CheckpointError, InputError, MissingKeyError
from tf2jax_lite.finetuning import federate_artifact, finetune_artifact
from tf2jax_lite.learning.data.client_files import open_clients

STORED = Path(__file__).parent.parent.parent / "testdata" / "stored"
VERSIONS = sorted(path.name for path in STORED.iterdir())
MODELS = ["tf1", "tf2"]
BACKENDS = ["stablehlo", "source"]
# As in the script: a checkpoint is of one training.
FINETUNE = {"loss": "sparse_categorical_crossentropy", "from_logits": True, "batch_size": 16, "learning_rate": 0.02}
FEDERATE = {
    "loss": "sparse_categorical_crossentropy",
    "from_logits": True,
    "algorithm": "scaffold",
    "clients_per_round": 2,
    "batch_size": 8,
}


@pytest.fixture(scope="module", params=VERSIONS)
def stored(request):
    """The folder of a version, and its values by name."""
    with np.load(STORED / request.param / "values.npz") as data:
        return STORED / request.param, dict(data)


def recorded(values, model):
    """Return the inputs and the results of a model by name."""
    parts = ({}, {})
    for key, value in values.items():
        owner, _, rest = key.partition("/")
        if owner == model:
            kind, _, name = rest.partition("/")
            parts[kind == "out"][name] = value
    return parts


def agrees(found, expected, rtol=1e-5):
    """Check values; without 64-bit types JAX has int32 for TensorFlow's int64."""
    found = np.asarray(found)
    assert found.shape == expected.shape and found.dtype.kind == expected.dtype.kind
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-5)


def all_agree(fn, params, inputs, expected):
    """Check a model's results, and its count of calls if it has one."""
    results, updated = jax.jit(fn)(params, **inputs)
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        agrees(results[name], value)
    assert "calls" not in params or int(updated["calls"]) == 1


def test_this_release_is_stored():
    version = Version(metadata.version("tf2jax-lite"))
    assert version.is_devrelease or str(version) in VERSIONS, "run: python testdata/make_stored.py"


@pytest.mark.full
@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_converts(stored, model):
    pytest.importorskip("tensorflow")
    folder, values = stored
    all_agree(*tf2jax.convert_saved_model(folder / model), *recorded(values, model))


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", MODELS)
def test_an_artifact_loads(stored, model, backend):
    folder, values = stored
    all_agree(*tf2jax.load(folder / f"artifact_{model}", backend=backend), *recorded(values, model))


@pytest.mark.full
def test_an_artifact_has_its_derivatives(stored):
    """The custom gradient is half of the incoming one, clipped or not."""
    pytest.importorskip("tensorflow")
    folder, values = stored
    inputs, _ = recorded(values, "tf2")

    def gradients(fn, params):
        trainable, other = tf2jax.split_params(params)

        def loss(trainable):
            return fn(tf2jax.merge_params(trainable, other), **inputs)[0]["probabilities"][:, 0].sum()

        return jax.grad(loss)(trainable)

    expected = gradients(*tf2jax.convert_saved_model(folder / "tf2"))
    for backend in BACKENDS:
        found = gradients(*tf2jax.load(folder / "artifact_tf2", backend=backend))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.default_cases("0.1.0.dev0-stablehlo")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_of_nested_arguments_with_an_update(stored, backend):
    folder, values = stored
    fn, params = tf2jax.load(folder / "functions", "scores", backend=backend)
    inputs = {"mask": values["mask"], "ids": values["ids"]}
    results, updated = fn(params, inputs, values["scale"], negate=True)
    agrees(results["state"], values["state"])
    agrees(results["best"][0], values["best"])
    assert int(results["best"][1]) == int(updated["calls"]) == 1
    assert {name: name.trainable for name in params} == {"table": True, "weights": True, "calls": False}


@pytest.mark.full
def test_symbolic_dimensions_take_other_sizes(stored):
    folder, values = stored
    ids, mask = np.arange(18, dtype=np.int32).reshape(3, 6) % 6, np.eye(3, dtype=bool)
    found = []
    for backend in BACKENDS:
        fn, params = tf2jax.load(folder / "functions", "scores", backend=backend)
        found.append(fn(params, {"ids": ids, "mask": mask}, values["scale"], negate=True)[0])
        with pytest.raises(InputError, match=r"2\*n"):
            fn(params, {"ids": ids[:, :5], "mask": mask}, values["scale"], negate=True)
    agrees(found[0]["state"], np.asarray(found[1]["state"]))
    agrees(found[0]["best"][0], np.asarray(found[1]["best"][0]))


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_are_those_of_the_key(stored, backend):
    folder, values = stored
    fn, params = tf2jax.load(folder / "functions", "draw", backend=backend)
    noisy, numbers = fn(params, values["x"], rng=jax.random.key(7))[0]
    agrees(noisy, values["noisy"])
    agrees(numbers, values["numbers"])
    with pytest.raises(MissingKeyError):
        fn(params, values["x"])


@pytest.mark.default_cases("0.1.0.dev0-source")
@pytest.mark.parametrize("backend", BACKENDS)
def test_signatures_share_params_and_have_their_dtype(stored, backend):
    folder, values = stored
    fn, params = tf2jax.load(folder / "functions", "half", backend=backend)
    agrees(fn(params, values["x"])[0], values["half"])
    narrow, params = tf2jax.load(folder / "narrow", backend=backend)
    found = narrow(params, values["x"].astype(jax.numpy.bfloat16))[0]
    assert found.dtype == params["weights"].dtype == jax.numpy.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), values["half"], rtol=0.05)


@pytest.mark.full
def test_params_are_in_shards_and_in_a_checkpoint_of_orbax(stored):
    ocp = pytest.importorskip("orbax.checkpoint")
    folder, _ = stored
    assert len(list((folder / "functions").glob("params*.safetensors"))) > 1
    _, params = tf2jax.load(folder / "functions", "scores")
    found = ocp.StandardCheckpointer().restore((folder / "functions" / "checkpoint").absolute())
    assert found.keys() == params.keys()
    for name, value in params.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.full
def test_a_model_with_a_training_mode(stored):
    folder, values = stored
    fn, params = tf2jax.load(folder / "keras")
    agrees(fn(params, values["features"])[0], values["keras"])
    train, params = tf2jax.load(folder / "keras", "train")
    # Dropout takes a key, or draws from Keras's seed generators, which are params.
    key = {"rng": jax.random.key(0)} if train.needs_key else {}
    _, updated = train(params, values["features"], **key)
    assert any(not np.array_equal(updated[name], value) for name, value in params.items() if not name.trainable)


def _params_are(artifact, values, kind):
    for name, value in tf2jax.load(artifact)[1].items():
        agrees(value, values[f"{kind}/{name}"], rtol=1e-3)


@pytest.mark.full
def test_fine_tuning_goes_on(stored, tmp_path):
    folder, values = stored
    shutil.copytree(folder / "finetune", tmp_path / "state")
    data = {name: values[name] for name in ("features", "y")}
    options = {**FINETUNE, "checkpoint_dir": tmp_path / "state"}
    report = finetune_artifact(folder / "keras", data, tmp_path / "out", epochs=2, **options)
    assert report.history.records[-1]["epoch"] == 2
    _params_are(tmp_path / "out", values, "tuned")
    with pytest.raises(CheckpointError, match="learning_rate"):
        options["learning_rate"] = 0.1
        finetune_artifact(folder / "keras", data, tmp_path / "other", epochs=2, **options)


@pytest.mark.full
def test_federated_training_goes_on(stored, tmp_path):
    folder, values = stored
    np.savez(tmp_path / "clients.npz", **{name: values[name] for name in ("features", "y", "client_id")})
    shutil.copytree(folder / "federate", tmp_path / "state")
    clients = open_clients(tmp_path / "clients.npz")
    options = {**FEDERATE, "checkpoint_dir": tmp_path / "state"}
    federate_artifact(folder / "keras", clients, tmp_path / "out", rounds=2, **options)
    _params_are(tmp_path / "out", values, "federated")
