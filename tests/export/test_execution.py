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
def loaded(tmp_path_factory):
    place = tmp_path_factory.mktemp("execution") / "a"
    weights = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)), name="w")
    function = tf.function(lambda x: {"y": tf.matmul(x, weights)})
    tf2jax.export_functions({"f": tf2jax.convert(function, tf.TensorSpec([4, 3], name="x"))}, place, platforms=["cpu"])
    return tf2jax.load(place)


def run(loaded, x):
    (function, params), arrays = loaded, {"x": x}
    with execution.errors_of_xla():
        return execution.compile_function(function, params, arrays, None)(dict(params), arrays, None)


@pytest.mark.full
def test_results(loaded):
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    found = run(loaded, x)
    np.testing.assert_allclose(found["y"], x @ np.arange(6).reshape(3, 2), rtol=1e-5)


def test_more_memory_than_there_is(loaded, monkeypatch):
    def compiling(self):
        raise AssertionError("compiled first")  # which may take XLA for ever

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiling)
    monkeypatch.setattr(execution, "_memory", lambda: 31)  # one byte less than the results take
    with pytest.raises(LimitError, match="takes 32 bytes"):
        run(loaded, np.zeros((4, 3), np.float32))


@pytest.mark.parametrize(
    ("text", "kind"), [("RESOURCE_EXHAUSTED: 2^60 bytes", LimitError), ("INTERNAL: x", tf2jax.errors.ExportError)]
)
def test_what_xla_refuses_is_an_error_of_ours(loaded, monkeypatch, text, kind):
    def refuse(compiled):
        raise jax.errors.JaxRuntimeError(text)

    monkeypatch.setattr(execution, "check_memory", refuse)
    with pytest.raises(kind, match=text.replace("^", ".")):
        run(loaded, np.zeros((4, 3), np.float32))


def test_the_shell_shows_no_traceback(monkeypatch, capsys):
    def refuse():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nmore")

    monkeypatch.setattr("tf2jax_lite.cli.app.app", refuse)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "XLA cannot compile or run this: RESOURCE_EXHAUSTED: out of memory" in capsys.readouterr().err
