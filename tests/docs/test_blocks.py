"""The Python code of every page of docs/, and of notebooks, runs.

A page's blocks run in order, in one namespace and an empty directory. ``SETUPS`` has the files and names that pages
take for granted.
"""

import json
import re
import shutil
import sys
import types

import numpy as np
import pytest

from tests.docs.blocks import ROOT, blocks, pages, run
from tf2jax_lite.ops import registry

# Pages whose code another test runs, with what they show compared.
ELSEWHERE = {
    "architecture": "tests/pipeline/test_architecture_page.py",
    "errors": "tests/test_errors.py",
    "exported-source": "tests/export/codegen/test_docs.py",
    "finetuning-tutorial": "tests/finetuning/test_tutorial.py",
    "flower": "tests/federated/test_docs.py",  # .ci/flower runs it where flwr is installed
    "notebooks/fedjax_models": "tests/federated/test_notebooks.py",
    "notebooks/tff_composing_learning_algorithms": "tests/federated/test_notebooks.py",
    "notebooks/tff_jax": "tests/federated/test_notebooks.py",
    "xla-cpu": "tests/xla_cpu/test_transform.py",
}
LIBRARIES = {"federated-core": "federated_language"}
# Pages in the default tier: no other test there runs what they show.
DEFAULT = ["adding-an-op", "control-flow"]


def digits_artifact(monkeypatch):
    """``OUT``: an untrained model of digits, converted from a Keras file."""
    import tensorflow as tf

    import tf2jax_lite as tf2jax
    from tf2jax_lite.pipeline.model_files import convert_file

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([8, 8, 1], name="image"), layers.Flatten(), layers.Dense(10)])
    model.save("model.keras")
    tf2jax.export_functions(convert_file("model.keras"), "OUT")
    return {"image": np.ones((2, 8, 8, 1), np.float32)}


def artifacts(monkeypatch):
    """``OUT``, importable, and a SavedModel that hashes texts."""
    import tensorflow as tf

    names = digits_artifact(monkeypatch)
    monkeypatch.syspath_prepend("OUT")  # as in that directory
    shutil.copy("OUT/params.safetensors", ".")

    class Texts(tf.Module):
        def __init__(self):
            self.table = tf.Variable(tf.ones([10, 4]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def __call__(self, text):
            return {"scores": tf.gather(self.table, tf.strings.to_hash_bucket_fast(text, 10))}

    model = Texts()
    tf.saved_model.save(model, "MODEL", signatures=model.__call__)
    return names


def serving(monkeypatch):
    """``OUT``, and a stand-in for FastAPI, whose decorators return the function."""
    names = digits_artifact(monkeypatch)

    class FastAPI:
        def __init__(self, lifespan):
            self.lifespan = lifespan

        def post(self, path):
            return lambda function: function

    if "fastapi" not in sys.modules:
        monkeypatch.setitem(sys.modules, "fastapi", types.SimpleNamespace(FastAPI=FastAPI))
    return names


def op_tests(monkeypatch):
    """The page's tests stand in tests/ops."""
    return {"__name__": "tests.ops.test_family", "__package__": "tests.ops"}


def sizes(monkeypatch):
    """The page's loss is of some model."""
    import tensorflow as tf

    return {"tf": tf, "model": tf.identity}


def finetuning(monkeypatch):
    """``model``, an artifact with a training mode, and ``train.npz``."""
    trainable_artifact("model")
    rng = np.random.default_rng(0)
    np.savez("train.npz", x=rng.normal(size=(64, 4)).astype(np.float32), y=rng.integers(0, 3, 64))
    return {}


def federated(monkeypatch):
    """``out``, an artifact with a training mode, and the data of two clients."""
    trainable_artifact("out")
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20)) for _ in range(2)]
    return {"clients": data}


def aggregation(monkeypatch):
    """Updates of three clients, and a batch with its predictions."""
    import jax
    import jax.numpy as jnp

    from tf2jax_lite.federated import ClientUpdates

    updates = ClientUpdates({"w": jnp.ones((3, 2))}, jnp.ones(3), jnp.ones(3, bool), jnp.arange(3))
    return {
        "template": {"w": jax.ShapeDtypeStruct((2,), np.float32)},
        "updates": updates,
        "key": jax.random.key(0),
        "batches": [({"y": np.array([0, 1])}, np.eye(2, dtype=np.float32))],
    }


def trainable_artifact(name):
    """Write an artifact of a classifier of 4 features with batch normalization."""
    import tensorflow as tf

    import tf2jax_lite as tf2jax
    from tf2jax_lite.pipeline.model_files import convert_file

    layers = tf.keras.layers
    hidden = [layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(3, "softmax")]
    tf.keras.Sequential([layers.Input([4], name="x"), *hidden]).save("classifier.keras")
    tf2jax.export_functions(convert_file("classifier.keras", train=True), name)


SETUPS = {
    "adding-an-op": op_tests,
    "artifacts": artifacts,
    "federated": federated,
    "federated-aggregation": aggregation,
    "finetuning": finetuning,
    "serving": serving,
    "sizes": sizes,
}


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Remove the ops and modules that pages add; switch back to control flow v2."""
    monkeypatch.delitem(sys.modules, "model", raising=False)
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].compat.v1.enable_control_flow_v2()
    for name in [name for name in registry._registry if name.startswith("My")]:
        del registry._registry[name]
    sys.modules.pop("model", None)


def cases():
    return {name: path for name, path in pages().items() if name not in ELSEWHERE and blocks(path)}


@pytest.mark.default_cases(*DEFAULT)
@pytest.mark.parametrize("name", cases())
def test_blocks_of_a_page_run(name, tmp_path, monkeypatch):
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__", **SETUPS.get(name, lambda _: {})(monkeypatch)}
    for block in blocks(cases()[name]):
        words = block.info.split()
        if not words:
            run(block, namespace, tmp_path)
        elif words == ["raises"]:
            with pytest.raises(Exception) as error:
                run(block, namespace, tmp_path)
            assert block.heading.strip('"') in str(error.value)
        else:
            assert words[0] == "no-test" and len(words) > 2, f"{name}, line {block.line}: no-test needs a reason"


NOTEBOOKS = {name: path for name, path in pages().items() if path.suffix == ".ipynb"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_with_its_results(name):
    """Cells count from 1 in one run; outputs name no folder of a machine."""
    cells = [cell for cell in json.loads(NOTEBOOKS[name].read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= 3
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work)/", json.dumps([cell["outputs"] for cell in cells]))


def test_each_page_that_is_tested_elsewhere_is_there():
    for name, test in ELSEWHERE.items():
        assert name in pages() and (ROOT / test).is_file()
