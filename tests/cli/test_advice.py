"""Errors in the shell name options of the shell."""

import sys

import pytest
import tensorflow as tf

from tf2jax_lite.cli import main
from tf2jax_lite.cli.advice import for_shell

TEXTS = {
    "convert with override_config('dynamic_shape_bound', n)": "convert with --set dynamic_shape_bound=N",
    "tf2jax_lite.override_config('loop_bound', 'scan') at conversion": "--set loop_bound=scan at conversion",
    "override_config('strict_shape_check', False)": "--set strict_shape_check=False",
    'allow it by name: override_config("trusted", "A,B"), or --trust.': "allow it by name: --trust.",
    "Under jax.jit, pass what it depends on as a static argument (jax.jit(..., static_argnums=...)), or more": (
        "Make it a constant of the model, or more"
    ),
    "node 'override_config' (Add)": "node 'override_config' (Add)",
}


@pytest.mark.parametrize("text", TEXTS)
def test_for_shell_replaces_python_calls(text):
    assert for_shell(text) == TEXTS[text]


@pytest.mark.full
def test_convert_of_data_dependent_sizes_advises_set(tmp_path, monkeypatch, capsys):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        tf.reduce_sum(tf.range(tf.cast(x[0], tf.int32)), name="y")
    (tmp_path / "g.pb").write_bytes(graph.as_graph_def().SerializeToString())
    arguments = ["convert", str(tmp_path / "g.pb"), str(tmp_path / "out"), "--output", "y:0", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["tf2jax-lite", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert "--set dynamic_shape_bound=N" in error
    assert "static_argnums" not in error
    assert "override_config" not in error
