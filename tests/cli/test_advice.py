"""Errors in the shell name options of the shell, which work."""

import ast
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests._support import invoke
from tests.docs.blocks import ROOT
from tf2jax_lite.cli import main
from tf2jax_lite.cli.advice import ARGUMENTS, CLAUSES, for_shell, options

BOUND = "convert with override_config('dynamic_shape_bound', n)"
TRUST = 'allow it by name: override_config("trusted", "A,B").'
SHAPE = (
    "Convert with None for dimensions that vary, or switch the check off with override_config('strict_shape_check', "
)
SHAPE += "False) around conversion or call."
# The command, the text in Python, and that in the shell.
TEXTS = [
    ("convert", BOUND, "convert with --set dynamic_shape_bound=N"),
    ("run", BOUND, "convert with tf2jax-lite convert --set dynamic_shape_bound=N"),
    (
        "convert",
        "tf2jax_lite.override_config('loop_bound', 'scan') at conversion",
        "--set loop_bound=scan at conversion",
    ),
    ("inspect", TRUST, "allow it by name: --trust A --trust B."),
    ("run", 'do without: override_config("trusted", "B").', 'do without: override_config("trusted", "B") in Python.'),
    ("run", SHAPE, "Convert with names for dimensions that vary (tf2jax-lite convert --shapes)."),
    ("run", "load it with backend='source'", "load it with --backend source"),
    ("verify", "load it with backend='source'", "load it with --source"),
    ("verify", "in TensorFlow with split_host=True.", "in TensorFlow with --split-host."),
    ("inspect", "in TensorFlow with split_host=True.", "in TensorFlow with tf2jax-lite convert --split-host."),
    ("verify", "which bisect=False leaves out", "which --no-bisect leaves out"),
    ("verify", "only SavedModels take tags=", "only SavedModels take --tag"),
    ("finetune", "-1 to 2. They are named by ignore_label=.", "-1 to 2. They are named by --ignore-label."),
    ("federate", "-1 to 2. They are named by ignore_label=.", "-1 to 2. They are named by --ignore-label."),
    ("federate", "Use build_unweighted_fed_avg, or client_weighting='uniform'.", "Use --algorithm unweighted_fed_avg."),
    (
        "convert",
        "align_corners=True and node 'override_config' (Add)",
        "align_corners=True and node 'override_config' (Add)",
    ),
]


@pytest.mark.parametrize(("command", "python", "shell"), TEXTS)
def test_for_shell_replaces_python_calls(command, python, shell):
    assert for_shell(python, command) == shell


def test_each_option_of_the_table_exists():
    commands = ("convert", "verify", "run", "finetune", "federate", "export-tf", "inspect", "merge-adapters", "serve")
    existing = frozenset.union(*map(options, commands))
    assert {word for option in ARGUMENTS.values() for word in option.split() if word.startswith("--")} <= existing


def test_no_error_text_mentions_a_clause_that_is_gone():
    """Each clause stands in a string of some module beside the table's own."""
    modules = [path for top in ("tf2jax_lite", "ops") for path in (ROOT / top).rglob("*.py")]
    nodes = [node for path in modules if path.name != "advice.py" for node in ast.walk(ast.parse(path.read_text()))]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [clause for clause in CLAUSES if not any(clause in text for text in texts)] == []


def call(monkeypatch, capsys, *arguments):
    """Run a command in this process; return its exit code and what it wrote to stderr."""
    monkeypatch.setattr(sys, "argv", ["tf2jax-lite", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return end.code or 0, capsys.readouterr().err
    return 0, capsys.readouterr().err


def write_models():
    """Write models and data, each with something that an error advises on."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [4], name="x")
        tf.reduce_sum(tf.range(tf.minimum(tf.cast(x[0], tf.int32), 8)), name="y")
        tf.reduce_sum(tf.range(tf.cast(x[0], tf.int32)), name="z")
    with open("g.pb", "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())
    reads = tf.Module()
    reads.read = tf.function(lambda: tf.strings.length(tf.io.read_file("x.npz")), input_signature=[])
    tf.saved_model.save(reads, "reads", signatures=reads.read)
    layers = [tf.keras.layers.Input([4], name="x"), tf.keras.layers.Dense(3)]
    tf.keras.Sequential(layers).save("logits.keras")
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    np.savez("train.npz", x=np.ones((8, 4), np.float32), target=np.arange(8) % 3)


@pytest.mark.full
def test_advice_of_an_error_works(tmp_path, monkeypatch, capsys):
    """Each command fails, says an option, and works with it."""
    monkeypatch.chdir(tmp_path)
    write_models()
    convert = ["convert", "logits.keras", "OUT", "--quiet", "--platforms", "cpu"]
    assert call(monkeypatch, capsys, *convert)[0] == 0
    train = ["finetune", "OUT", "--data", "train.npz", "--out", "TUNED", "--epochs", "1", "--quiet"]
    for failing, said, fix in [
        (
            ["convert", "g.pb", "BOUND", "--output", "z:0", "--quiet"],
            "--set dynamic_shape_bound=N",
            ["--set", "dynamic_shape_bound=8"],
        ),
        (convert, "--force", ["--force"]),
        (train, "--label", ["--label", "target"]),
    ]:
        code, error = call(monkeypatch, capsys, *failing)
        assert code == 2 and said in error and error.count("\n") == 1, error
        assert "override_config" not in error and "static_argnums" not in error
        code, error = call(monkeypatch, capsys, *failing, *fix)
        if code:
            assert "--from-logits" in error  # the next piece of advice
            code, error = call(monkeypatch, capsys, *failing, *fix, "--from-logits")
        assert code == 0, error
    refused = invoke("inspect", "reads")
    assert refused.exit_code == 1 and "--trust ReadFile" in " ".join(refused.output.split())
    assert "--trust" not in invoke("inspect", "reads", "--trust", "ReadFile").output
