"""The Python code and the commands of every page of docs/, and of notebooks, run.

A page's blocks run in order, in one namespace and an empty directory. ``SETUPS`` has the files and names that pages
take for granted. Of a page that does one of the ``JOBS`` of new users, the outcome is compared.
"""

import itertools
import json
import os
import re
import sys

import numpy as np
import pytest

from tests.docs.blocks import DOCS, ROOT, blocks, links, pages, run
from tests.docs.jobs import JOBS
from tf2jax_lite.ops import registry
from tf2jax_lite.support.errors import entry_address

# Pages whose code another test runs, with what they show compared.
ELSEWHERE = {
    "architecture": "tests/pipeline/test_architecture_page.py",
    "exported-source": "tests/export/codegen/test_docs.py",
    "finetuning-tutorial": "tests/artifacts/test_tutorial.py",
    "flower": "tests/federated/test_docs.py",  # .ci/flower runs it where flwr is installed
    "notebooks/fedjax_models": "tests/federated/test_notebooks.py",
    "notebooks/tff_composing_learning_algorithms": "tests/federated/test_notebooks.py",
    "notebooks/tff_jax": "tests/federated/test_notebooks.py",
    "xla-cpu": "tests/xla_cpu/test_transform.py",
}
LIBRARIES = {
    "errors": ["federated_language"],
    "federated-core": ["federated_language"],
    "serving": ["starlette", "uvicorn", "prometheus_client"],
}
RUN = "python|sh"  # the languages of blocks that run
# Pages in the default tier: no other test there runs what they show.
DEFAULT = ["adding-an-op", "control-flow", "testing"]


def digits(monkeypatch):
    """``model.keras``, a model of digits; ``MODEL``, its SavedModel; ``x.npz``."""
    import tensorflow as tf

    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input([8, 8, 1], name="image"), layers.Flatten(), layers.Dense(10)])
    model.save("model.keras")
    model.export("MODEL", verbose=False)
    np.savez("x.npz", image=np.ones((2, 8, 8, 1), np.float32))
    monkeypatch.syspath_prepend(".")
    return {}


def serving(monkeypatch):
    """The files of `digits`; child processes import this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return digits(monkeypatch)


def op_tests(monkeypatch):
    """The page's tests stand in tests/ops."""
    return {"__name__": "tests.ops.test_family", "__package__": "tests.ops"}


def finetuning(monkeypatch):
    """``model.keras``, a classifier, and its data: files and ``shards``."""
    classifier("model.keras")
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(64, 4)).astype(np.float32), "y": rng.integers(0, 3, 64)}
    os.mkdir("shards")
    for file in ("train.npz", "test.npz", "shards/0.npz", "shards/1.npz"):
        np.savez(file, **data)
    np.savez("x.npz", x=data["x"])
    return {}


def new_classes(monkeypatch):
    """``model.keras``, a classifier of three classes, and data of five."""
    classifier("model.keras")
    rng = np.random.default_rng(0)
    np.savez("new.npz", x=rng.normal(size=(64, 4)).astype(np.float32), y=rng.integers(0, 5, 64))
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    return {}


def federated(monkeypatch):
    """``OUT``, an artifact with a training mode; ``clients`` and their SQLite file."""
    import tf2jax_lite as tf2jax
    from tf2jax_lite.federated import SQLiteFederatedDataBuilder
    from tf2jax_lite.pipeline.model_files import convert_file

    classifier("model.keras")
    tf2jax.export_functions(convert_file("model.keras", train=True), "OUT")
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, 20)) for _ in range(2)]
    with SQLiteFederatedDataBuilder("clients.sqlite") as builder:
        for number, (x, y) in enumerate(data):
            builder.add(f"client {number}", {"x": x, "y": y})
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


def classifier(path):
    """Save a classifier of 4 features with batch normalization."""
    import tensorflow as tf

    layers = tf.keras.layers
    hidden = [layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(4, "softmax", name="head")]
    tf.keras.Sequential([layers.Input([4], name="x"), *hidden]).save(path)


SETUPS = {
    "testing": op_tests,
    "artifacts": digits,
    "federated": federated,
    "federated-aggregation": aggregation,
    "finetuning": finetuning,
    "guides/new-classes": new_classes,
    "serving": serving,
}


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Remove the ops and modules that pages add; switch back to control flow v2."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].compat.v1.enable_control_flow_v2()
    for name in [name for name in registry._registry if name.startswith("My")]:
        del registry._registry[name]
    for name in ("OUT", "OUT.model"):
        sys.modules.pop(name, None)


def cases():
    return {name: path for name, path in pages().items() if name not in ELSEWHERE and blocks(path, RUN)}


@pytest.mark.default_cases(*DEFAULT)
@pytest.mark.parametrize("name", cases())
def test_blocks_of_a_page_run(name, tmp_path, monkeypatch, capfd):
    if name in LIBRARIES:
        for library in LIBRARIES[name]:
            pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__", **SETUPS.get(name, lambda _: {})(monkeypatch)}
    for block in blocks(cases()[name], RUN):
        words = block.info.split()
        if not words:
            run(block, namespace, tmp_path)
        elif words == ["raises"]:
            with pytest.raises(Exception) as error:
                run(block, namespace, tmp_path)
            assert block.heading.strip('"') in str(error.value)
            assert not block.label or entry_address(type(error.value)).endswith(f"#{block.label}")
        else:
            assert words[0] == "no-test" and len(words) > 2, f"{name}, line {block.line}: no-test needs a reason"
    printed = capfd.readouterr().out
    for job in (job for job in JOBS.values() if job.way[-1] == name):
        assert [pattern for pattern in job.prints if not re.search(pattern, printed)] == []
        assert [file for file in job.writes if not (tmp_path / file).is_file()] == []
        assert eval(job.holds, namespace)


@pytest.mark.parametrize("job", JOBS)
def test_links_lead_to_the_page_of_a_job(job):
    way = JOBS[job].way
    assert way[0] in ("README", "index")
    for page, following in itertools.pairwise(way):
        assert following in links(page)


NOTEBOOKS = {name: path for name, path in pages().items() if path.suffix == ".ipynb"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_with_its_results(name):
    """Cells count from 1 in one run; outputs name no folder of a machine."""
    cells = [cell for cell in json.loads(NOTEBOOKS[name].read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= 3
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work)/", json.dumps([cell["outputs"] for cell in cells]))


GUIDES = [
    os.path.normpath(f"{folder}/{link}")
    for folder in ("guides", "federated")
    for link in re.findall(r"\]\(([^)#]+)\.md\)", (DOCS / folder / "index.md").read_text())
]


@pytest.mark.parametrize("name", GUIDES)
def test_guide_opens_with_code(name):
    first = next(block for block in blocks(pages()[name], RUN) if not block.info)
    assert first.line <= 20


def test_each_page_that_is_tested_elsewhere_is_there():
    for name, test in ELSEWHERE.items():
        assert name in pages() and (ROOT / test).is_file()
