"""README's code runs, and the source that it shows is the exporter's."""

import ast
import re

import numpy as np
import pytest

from tests.docs.blocks import ROOT, blocks, run, shell

README = ROOT / "README.md"


def function(source, name):
    """Return the dump of a function without its docstring."""
    (found,) = (node for node in ast.parse(source).body if getattr(node, "name", None) == name)
    if ast.get_docstring(found):
        del found.body[0]
    return ast.dump(found)


def test_readme_code_runs_and_shows_its_source(tmp_path, monkeypatch):
    import tensorflow as tf

    import tf2jax_lite as tf2jax

    monkeypatch.chdir(tmp_path)
    namespace = {}
    found = blocks(README)
    assert len(found) == 2
    for block in found:
        run(block, namespace, tmp_path)
    refine = namespace["refine"]
    converted = tf2jax.convert(refine, tf.TensorSpec([None, 3], tf.float32))
    tf2jax.export_functions({"refine": converted}, "REFINE", stablehlo=False)
    (shown,) = blocks(README, "py")
    assert function(shown.code, "refine") == function((tmp_path / "REFINE" / "model.py").read_text(), "refine")


def test_readme_is_short():
    assert len(README.read_text().splitlines()) <= 112


def test_readme_links_lead_somewhere():
    """Relative links name files of the repository."""
    links = re.findall(r"\]\(([^)]+)\)", README.read_text())
    relative = [link.partition("#")[0] for link in links if "://" not in link]
    assert len(relative) > 15
    assert [link for link in relative if not (ROOT / link).exists()] == []


@pytest.mark.full
def test_readme_commands_run(tmp_path):
    """Those on ``MODEL``; CI runs the installation and the demo."""
    import tensorflow as tf

    from tf2jax_lite.federated.data import SQLiteFederatedDataBuilder

    layers = [tf.keras.layers.Input([4], name="x"), tf.keras.layers.Dropout(0.1), tf.keras.layers.Dense(3, "softmax")]
    tf.keras.Sequential(layers).save(tmp_path / "MODEL.keras")
    data = {"x": np.ones((8, 4), np.float32), "y": np.arange(8) % 3}
    np.savez(tmp_path / "train.npz", **data)
    np.savez(tmp_path / "x.npz", x=data["x"])
    with SQLiteFederatedDataBuilder(tmp_path / "clients.sqlite") as builder:
        for number in range(10):  # the default size of a cohort
            builder.add(f"client {number}", data)
    _, commands = blocks(README, "sh")
    shell(commands.code, tmp_path)
