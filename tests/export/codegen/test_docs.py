"""The page with a model's whole source shows what is written for it."""

import re
from pathlib import Path

import jax
import pytest

import tf2jax_lite as tf2jax
from tf2jax_lite.pipeline.model_files import convert_file

PAGE = Path(__file__).parents[3] / "docs" / "exported-source.md"


def write(folder, monkeypatch):
    """Returns the page's source, and the one that is written for the page's model."""
    definition, source = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    exec(compile(definition, PAGE.name, "exec"), {})
    functions = convert_file(folder / "encoder.keras")
    tf2jax.export_functions(
        functions, folder / "out", stablehlo=False, title="encoder.keras, converted from TensorFlow."
    )
    return source, (folder / "out" / "model.py").read_text()


@pytest.mark.full
def test_page_shows_the_source(tmp_path, monkeypatch):
    """Sources of other releases of JAX may differ."""
    if f"JAX {jax.__version__}" not in PAGE.read_text():
        pytest.skip(f"the page was not written with JAX {jax.__version__}")
    shown, written = write(tmp_path, monkeypatch)
    assert shown == written
