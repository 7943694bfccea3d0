"""The page with a model's whole source shows what is written for it."""

import ast
import re
import sys
from pathlib import Path

import jax
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.model_files import convert_file

PAGE = Path(__file__).parents[3] / "docs" / "exported-source.md"


def blocks(language="python"):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def write(folder, monkeypatch, name="OUT", **options):
    """Write an artifact of the page's model; return its source."""
    monkeypatch.chdir(folder)
    exec(compile(blocks()[0], PAGE.name, "exec"), {})
    functions = convert_file(folder / "encoder.keras")
    options = {"stablehlo": False, "platforms": ["cpu"], **options}
    tf2jax.export_functions(functions, folder / name, title="encoder.keras, converted from TensorFlow.", **options)
    return (folder / name / "model.py").read_text()


@pytest.mark.full
def test_page_shows_the_source(tmp_path, monkeypatch):
    """Sources of other releases of JAX may differ."""
    if f"JAX {jax.__version__}" not in PAGE.read_text():
        pytest.skip(f"the page was not written with JAX {jax.__version__}")
    shown, written = (ast.dump(ast.parse(text)) for text in (blocks()[1], write(tmp_path, monkeypatch)))
    assert shown == written  # but for line breaks


@pytest.mark.full
def test_stacked_params_are_shown(tmp_path, monkeypatch):
    assert "lax.scan(" in write(tmp_path, monkeypatch, "SCAN", scan_layers=True, stablehlo=True)
    namespace = {}
    for block in (blocks()[2], blocks()[0], blocks()[3]):
        exec(compile(block, PAGE.name, "exec"), namespace)


@pytest.mark.full
def test_modules_are_shown_and_run(tmp_path, monkeypatch):
    """The class is part of the source, and the page's code for it runs."""
    written = write(tmp_path, monkeypatch, "NNX", framework="nnx")
    if f"JAX {jax.__version__}" in PAGE.read_text():
        page, text = ("".join(source.split()) for source in (blocks("py")[0], written))  # but for line breaks
        assert page in text
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {}
    for block in blocks()[4:]:
        exec(compile(block, PAGE.name, "exec"), namespace)
    for name in ("NNX", "NNX.model"):
        monkeypatch.delitem(sys.modules, name)
