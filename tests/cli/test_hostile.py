"""Hostile files at the shell: one line, exit code 2, no files outside."""

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tf2jax_lite.cli import main


@dataclasses.dataclass
class Done:
    returncode: int
    stderr: str


@pytest.fixture
def shell(monkeypatch, capsys):
    """Run the command line in this process: new ones would import TensorFlow."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tf2jax-lite", *map(str, arguments)])
        with pytest.raises(SystemExit) as raised:
            main()
        return Done(raised.value.code or 0, capsys.readouterr().err)

    return run


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    concrete = tf.function(lambda x: tf.pad(x, [[0, 1]]) + tf.range(3.0)).get_concrete_function(
        tf.TensorSpec([2], tf.float32)
    )
    path = tmp_path_factory.mktemp("frozen") / "model.pb"
    path.write_bytes(concrete.graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.parametrize(
    ("options", "match"),
    [(["--max-nodes", "2"], "max_nodes allows 2"), (["--max-constant-bytes", "4"], "max_constant_bytes allows 4")],
)
def test_limits_are_options(shell, frozen, tmp_path, options, match):
    done = shell("convert", frozen, tmp_path / "out", *options)
    assert (done.returncode, match in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_writes_files(shell, tmp_path):
    model = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
    def run(x):
        tf.io.write_file(str(tmp_path / "written.txt"), "x")
        return x

    model.run = run
    tf.saved_model.save(model, str(tmp_path / "model"), signatures=run)
    done = shell("convert", tmp_path / "model", tmp_path / "out")
    assert done.returncode == 2
    assert "WriteFile" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]


def test_names_with_paths_in_them_stay_inside_the_artifact(shell, tmp_path):
    """Names like ``../../x`` of signature, input, variable: files have our names."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        w = tf.compat.v1.get_variable("w", initializer=np.ones(2, np.float32), use_resource=True)
        y = x * w
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": y})
    file = tmp_path / "model" / "saved_model.pb"
    proto = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    signatures = proto.meta_graphs[0].signature_def
    for name in ("../../escaped", "/absolute/escaped"):
        signatures[name].CopyFrom(signatures["serving_default"])
        signatures[name].outputs["../../../escaped"].CopyFrom(signatures[name].outputs["y"])
    file.write_bytes(proto.SerializeToString())
    done = shell("convert", tmp_path / "model", tmp_path / "deep" / "er" / "out", "--platforms", "cpu")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*escaped*.stablehlo.*"))
    made = {p.relative_to(tmp_path).parts[:3] for p in tmp_path.rglob("*") if p.is_file() and "model" not in p.parts}
    assert made == {("deep", "er", "out")}


def test_a_file_cut_short(shell, frozen, tmp_path):
    cut = tmp_path / "cut.pb"
    cut.write_bytes(frozen.read_bytes()[:-20])
    assert graph_pb2.GraphDef.FromString(frozen.read_bytes()).node
    done = shell("convert", cut, tmp_path / "out")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "cut.pb" in done.stderr or "GraphDef" in done.stderr


@pytest.mark.default_cases("error0-deeply")
@pytest.mark.parametrize(
    ("error", "match"),
    [(RecursionError("x"), "deeply"), (MemoryError("x"), "memory"), (OSError(28, "disk full"), "full")],
)
def test_what_runs_out_is_one_line(monkeypatch, capsys, error, match):
    """Whatever gets by the limits is still the file's fault and no traceback."""
    from tf2jax_lite import cli
    from tf2jax_lite.cli import app as commands

    def fail():
        raise error

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit) as raised:
        cli.main()
    assert raised.value.code == 2
    assert match in capsys.readouterr().err
