"""The Python code of pages of docs/ and of notebooks runs.

A page's blocks run in order, in one namespace and an empty directory. ``SETUPS`` has the files and names that pages
take for granted.
"""

import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tests.docs.blocks import ROOT, blocks, pages
from tf2jax_lite.ops import registry

# Pages whose code another test runs, with what they show compared.
ELSEWHERE = {
    "adding-an-op": "tests/test_readme.py",
    "architecture": "tests/pipeline/test_architecture_page.py",
    "control-flow": "tests/test_readme.py",
    "exported-source": "tests/export/codegen/test_docs.py",
    "federated-core": "tests/federated/test_docs.py",
    "federated-data": "tests/federated/test_docs.py",
    "federated-migration": "tests/federated/test_docs.py",
    "flower": "tests/federated/test_docs.py",
    "stablehlo": "tests/test_readme.py",
}
# Pages whose blocks use names of the reader's own model or data. No test runs them.
FRAGMENTS = {"federated", "federated-aggregation", "finetuning", "sizes", "xla-cpu"}


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


SETUPS = {"artifacts": artifacts, "serving": serving}


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Remove the ops and modules that pages add."""
    monkeypatch.delitem(sys.modules, "model", raising=False)
    yield
    for name in [name for name in registry._registry if name.startswith("My")]:
        del registry._registry[name]
    sys.modules.pop("model", None)


def cases():
    return {name: path for name, path in pages().items() if name not in {*ELSEWHERE, *FRAGMENTS} and blocks(path)}


@pytest.mark.full
@pytest.mark.parametrize("name", cases())
def test_blocks_of_a_page_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__", **SETUPS.get(name, lambda _: {})(monkeypatch)}
    for block in blocks(cases()[name]):
        words = block.info.split()
        file = tmp_path / f"{Path(name).name}_line_{block.line}.py"
        file.write_text("\n" * (block.line - 1) + block.code)  # AutoGraph reads the source
        code = compile(file.read_text(), str(file), "exec")
        if not words:
            exec(code, namespace)
        elif words == ["raises"]:
            with pytest.raises(Exception) as error:
                exec(code, namespace)
            assert block.heading.strip('"') in str(error.value)
        else:
            assert words[0] == "no-test" and len(words) > 2, f"{name}, line {block.line}: no-test needs a reason"


@pytest.mark.full
def test_pages_without_a_case_exist():
    assert set(pages()) >= FRAGMENTS
    for name, test in ELSEWHERE.items():
        assert name in pages() and (ROOT / test).is_file()
