"""README's code runs, and the source that it shows is the exporter's."""

import ast

from tests.docs.blocks import ROOT, blocks, run

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
    assert len(README.read_text().splitlines()) <= 120
