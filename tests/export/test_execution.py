"""A loaded artifact runs only if its memory is there; XLA would end the process."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite import cli
from tf2jax_lite.errors import LimitError
from tf2jax_lite.export import execution


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    place = tmp_path_factory.mktemp("execution") / "a"
    weights = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)), name="w")
    function = tf.function(lambda x: {"y": tf.matmul(x, weights)})
    tf2jax.export_functions({"f": tf2jax.convert(function, tf.TensorSpec([4, 3], name="x"))}, place, platforms=["cpu"])
    return place


@pytest.mark.full
def test_results(stored):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    found = execution.run_artifact(stored, {"x": x}, cache=False)
    np.testing.assert_allclose(found["y"], x @ np.arange(6).reshape(3, 2), rtol=1e-5)


def test_more_memory_than_there_is(stored, monkeypatch):
    def compiling(self):
        raise AssertionError("compiled first")  # which may take XLA for ever

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiling)
    monkeypatch.setattr(execution, "_memory", lambda: 31)  # one byte less than the results take
    with pytest.raises(LimitError, match="takes 32 bytes"):
        execution.run_artifact(stored, {"x": np.zeros((4, 3), np.float32)}, cache=False)


@pytest.mark.parametrize(
    ("text", "kind"), [("RESOURCE_EXHAUSTED: 2^60 bytes", LimitError), ("INTERNAL: x", tf2jax.errors.ExportError)]
)
def test_what_xla_refuses_is_an_error_of_ours(stored, monkeypatch, text, kind):
    def refuse(compiled):
        raise jax.errors.JaxRuntimeError(text)

    monkeypatch.setattr(execution, "check_memory", refuse)
    with pytest.raises(kind, match=text.replace("^", ".")):
        execution.run_artifact(stored, {"x": np.zeros((4, 3), np.float32)}, cache=False)


def test_the_shell_shows_no_traceback(monkeypatch, capsys):
    def refuse():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nmore")

    monkeypatch.setattr("tf2jax_lite.cli.app.app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "XLA cannot compile or run this: RESOURCE_EXHAUSTED: out of memory" in capsys.readouterr().err
