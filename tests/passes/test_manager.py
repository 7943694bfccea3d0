"""The pass list: order, switches, docs and tests of each pass."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite
from tf2jax_lite import ir
from tf2jax_lite.errors import ConfigError
from tf2jax_lite.passes import manager
from tf2jax_lite.passes.manager import NAMES, PASSES, REQUIRED, run_passes
from tf2jax_lite.pipeline.convert import graph_of
from tf2jax_lite.support.config import Config, current_config

ROOT = Path(__file__).parent.parent.parent
X = np.float32([1.0, 3.0, 2.0])
raw = tf.raw_ops


def test_list_agrees_with_the_table_in_the_docs():
    text = (ROOT / "docs/architecture.md").read_text()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    names = {entry.name: entry for entry in PASSES}
    table = [row for row in rows if row[0].strip("`") in names and len(row) == 4]
    assert [row[0].strip("`") for row in table] == list(names)
    for name, effect, reason, required in table:
        entry = names[name.strip("`")]
        assert (effect, reason, required) == (entry.effect, entry.reason, "yes" if entry.required else "no")


@pytest.mark.parametrize("entry", PASSES, ids=lambda entry: entry.name)
def test_pass_is_named_for_its_function_or_module_and_has_a_test_module(entry):
    module = Path(entry.run.__code__.co_filename).relative_to(ROOT / "tf2jax_lite").with_suffix("")
    assert entry.name == (module.name if entry.run.__name__ == "run" else entry.run.__name__)
    test = ROOT / "tests" / module.parent / f"test_{entry.name}.py"
    assert re.search(r"^def test_", test.read_text(), re.MULTILINE), test


@pytest.mark.full
def test_every_function_of_a_graph_and_the_options_is_in_the_list():
    found = set()
    for path in (ROOT / "tf2jax_lite/passes").rglob("*.py"):
        functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        passes = [node.name for node in functions if [a.arg for a in node.args.args] == ["graph", "config"]]
        found |= {path.stem if name == "run" else name for name in passes}
    assert found == {entry.name for entry in PASSES}


@pytest.fixture
def ran(monkeypatch):
    """Return the names of the passes that ran."""
    names = []

    def recording(entry):
        def run(graph, config):
            names.append(entry.name)
            return graph

        return entry._replace(run=run)

    monkeypatch.setattr(manager, "PASSES", tuple(map(recording, PASSES)))
    return names


def _graph():
    return ir.Graph(ir.Function("main", (ir.Argument("x", np.dtype(np.float32)),), (), (ir.TensorRef("x"),)), {})


def test_passes_run_in_order(ran):
    run_passes(_graph(), Config())
    assert ran == [entry.name for entry in PASSES]


def test_only_names_a_subset(ran):
    run_passes(_graph(), Config(), only=("cse", "functionalize"))
    assert ran == ["functionalize", "cse"]


def test_passes_left_out_are_skipped(ran):
    with tf2jax_lite.override_config("passes", "-cse, -fold_clamps"):
        run_passes(_graph(), current_config())
    assert ran == [entry.name for entry in PASSES if entry.name not in ("cse", "fold_clamps")]


@pytest.mark.parametrize(("value", "optional"), [("none", []), ("cse", ["cse"])])
def test_required_passes_always_run(ran, value, optional):
    with tf2jax_lite.override_config("passes", value):
        run_passes(_graph(), current_config())
    assert ran == [entry.name for entry in PASSES if entry.required or entry.name in optional]


@pytest.mark.parametrize(
    ("names", "message"),
    [("-cse,-constant_folding", "no name 'constant_folding'"), (f"-{REQUIRED[0]}", f"'{REQUIRED[0]}'.*required")],
)
def test_leaving_out_an_unknown_or_required_pass_raises(names, message):
    with pytest.raises(ConfigError, match=message):
        tf2jax_lite.update_config("passes", names)


def _stacked(x):
    handle, flow = raw.TensorArrayV3(size=3, dtype=tf.float32)
    flow = raw.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2], value=x, flow_in=flow)
    size = raw.TensorArraySizeV3(handle=handle, flow_in=flow)
    return raw.TensorArrayGatherV3(handle=handle, indices=tf.range(0, size), flow_in=flow, dtype=tf.float32)


def _gradient(x):
    return tf.gradients(tf.scan(lambda h, e: tf.tanh(h * 0.5 + e), x, 0.0), x)[0]


def _bounded(x):
    limit = tf.minimum(3, tf.cast(x[1], tf.int32))
    return tf.while_loop(lambda i, y: i < limit, lambda i, y: (i + 1, y * 2.0), (0, x))[1]


def _relu(x):
    with tf.name_scope("jax2tf/jit_relu_"):
        return tf.maximum(x, tf.constant(0.0))


OPTIONAL = {
    "tensor_array_stack": _stacked,
    "list_element_grads": _gradient,
    "split_loop_bounds": _bounded,
    "fold_clamps": lambda x: tf.zeros(tf.maximum(5, tf.minimum(tf.cast(x[0], tf.int32), 5))),
    "repeat_idiom": lambda x: x + tf.repeat(x, tf.cast(x * 0 + 1, tf.int32)),
    "gather_idiom": lambda x: tf.concat([p for p in tf.split(tf.tile(x, [8]), 24) for _ in range(2)], 0),
    "relu_idiom": _relu,
    "narrow_constants": lambda x: x * tf.constant([2.0, 0.5, 4.0]),
    "cse": lambda x: tf.boolean_mask(x, x > 1.0) - tf.boolean_mask(x * 2.0, x > 1.0),
    "dead_values": lambda x: tf.while_loop(lambda i, *_: i < 3, lambda i, y, z: (i + 1, y * 2.0, z + y), (0, x, x))[1],
}


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in {*REQUIRED, "scan_layers"}]
)  # it is off by default
def test_each_optional_pass_can_be_switched_off(name):
    function = tf.function(OPTIONAL[name], autograph=False)
    function.get_concrete_function(tf.TensorSpec(X.shape))
    graphs = []
    for value in ("all", f"-{name}", "all"):
        narrow = tf2jax_lite.override_config("force_const_float32_to_bfloat16", name == "narrow_constants")
        with narrow, tf2jax_lite.override_config("passes", value):
            converted = tf2jax_lite.convert_functional(function, tf.TensorSpec(X.shape))
        graphs.append(str(graph_of(converted)))
        np.testing.assert_allclose(converted(X), function(X), rtol=1e-4)
    assert graphs[0] == graphs[2] != graphs[1]
