"""Errors in the shell name options of the shell, which work."""

import ast
import builtins
import functools
import pkgutil
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke
from tests.docs.blocks import ROOT
from tf2jax_lite import federated, finetuning
from tf2jax_lite.cli import main
from tf2jax_lite.cli.advice import ARGUMENTS, CLAUSES, for_shell, options
from tf2jax_lite.support.config import Config

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


COMMANDS = (
    *("convert", "demo", "doctor", "export-tf", "federate", "finetune", "inspect", "merge-adapters", "ops", "run"),
    *("serve", "update", "verify"),
)
EXISTING = frozenset.union(*map(options, COMMANDS))


def test_each_option_of_the_table_exists():
    assert {word for option in ARGUMENTS.values() for word in option.split() if word.startswith("--")} <= EXISTING


@functools.cache
def texts():
    """Return the texts of more than a word that are not of the shell."""
    found = set()
    for path in (path for top in ("tf2jax_lite", "ops") for path in (ROOT / top).rglob("*.py")):
        if {"cli", "codegen", "html_page.py"} & set(path.parts):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        parts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        parts |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                found.add("".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                found.add(node.value)
    return frozenset(
        text for text in found if " " in text.strip() and not re.search(r"[<{]/?\w+[ >}]|;$|^import ", text)
    )


def test_no_error_text_mentions_a_clause_that_is_gone():
    """Each clause stands in a text of some module."""
    assert [clause for clause in CLAUSES if not any(clause in text for text in texts())] == []


def test_arguments_that_a_text_names_are_options_where_the_shell_has_them():
    """An argument is advised as ``name=``, with a value or none; ``name=...`` is code."""
    table = {name.split()[-1] for name in ARGUMENTS}
    advice = re.compile(r"\b([a-z_]{2,})=(?=[\s,;)]|\.(?!\.)|$|True|False|'\w+')")
    named = {(name, text) for text in texts() for name in advice.findall(text)}
    options_in_python = [
        (name, text) for name, text in named if f"--{name.replace('_', '-')}" in EXISTING - {"--inputs"}
    ]
    assert [pair for pair in options_in_python if pair[0] not in table] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_a_text_names_exist(command):
    """Python's advice becomes an option of the command, or of one that it names."""
    missing = []
    for text in texts():
        shell = for_shell(text, command)
        assert not re.search(r"override_config\((?!.*in Python)|static_argnums=\.|split_host=True", shell), shell
        for named, option in re.findall(r"(?:tf2jax-lite ([a-z-]+) (?:--\w+ and )?)?(?<![\w-])(--[a-z][a-z-]+)", shell):
            if option in text:  # it is a text of the shell
                known = options(named) if named else EXISTING
            else:
                known = options(named or command)
            missing += [] if {option, option.replace("--no-", "--", 1)} & known else [(option, shell)]
    assert [pair for pair in missing if pair[0] not in ("--upgrade",)] == []  # of pip


def test_names_of_python_that_a_text_names_exist():
    modules = (tf2jax, tf2jax.errors, federated, federated.aggregators, federated.metrics, finetuning, builtins)
    roots = {"tf": "tensorflow", "np": "numpy", "tf2jax": "tf2jax_lite"}
    missing = []
    for text in texts():
        for option in re.findall(r"override_config\(['\"](\w+)", text):
            assert option in Config.__dataclass_fields__, text
        for dotted in re.findall(r"(?<![\w./])((?:jax|tf|np|tf2jax_lite|tf2jax)(?:\.[A-Za-z_]\w*)+)", text):
            root, dot, path = dotted.partition(".")
            if dotted.endswith("X"):  # a part of a name is computed
                continue
            try:
                pkgutil.resolve_name(roots.get(root, root) + dot + path)
            except tf2jax.errors.MissingLibraryError:
                continue
            except (AttributeError, ImportError):
                missing.append((dotted, text))
        for name in re.findall(r"(?:\b(?:[Uu]se|[Cc]all|with|by|or) )([a-z]+(?:_[a-z]+)+)\(", text):
            missing += [] if any(hasattr(module, name) for module in modules) else [(name, text)]
    assert missing == []


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
    np.savez("three.npz", x=np.ones((3, 4), np.float32))
    np.savez("train.npz", x=np.ones((8, 4), np.float32), target=np.arange(8) % 3)
    np.savez("padded.npz", x=np.ones((8, 4), np.float32), y=np.arange(8) % 4 - 1)


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
        (
            [*train[:3], "padded.npz", "--out", "PADDED", *train[6:], "--from-logits"],
            "--ignore-label",
            ["--ignore-label", "-1"],
        ),
    ]:
        code, error = call(monkeypatch, capsys, *failing)
        assert code == 2 and said in error and error.count("\n") == 1, error
        assert "override_config" not in error and "static_argnums" not in error
        code, error = call(monkeypatch, capsys, *failing, *fix)
        if code:
            assert "--from-logits" in error  # the next piece of advice
            code, error = call(monkeypatch, capsys, *failing, *fix, "--from-logits")
        assert code == 0, error
    fixed = ["convert", "logits.keras", "FIXED", "--quiet", "--platforms", "cpu", "--shapes"]
    run = ["run", "FIXED", "--input", "three.npz", "--output", "y.npz"]
    found = call(monkeypatch, capsys, *fixed, "inputs=2,4")
    assert found == (0, ""), found
    code, error = call(monkeypatch, capsys, *run)
    assert code == 2 and "a symbolic dimension with tf2jax-lite convert --shapes" in error
    assert call(monkeypatch, capsys, *fixed, "inputs=b,4", "--force")[0] == 0
    assert call(monkeypatch, capsys, *run)[0] == 0
    refused = invoke("inspect", "reads")
    assert refused.exit_code == 1 and "--trust ReadFile" in " ".join(refused.output.split())
    assert "--trust" not in invoke("inspect", "reads", "--trust", "ReadFile").output
