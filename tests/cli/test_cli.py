"""The command line: output, exit codes, and one clear line per error."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from typer.testing import CliRunner

import tf2jax_lite as tf2jax
from tests._support import invoke
from tf2jax_lite.cli.app import app
from tf2jax_lite.errors import Tf2JaxError

ROOT = Path(__file__).parent.parent.parent
TESTDATA = ROOT / "testdata"
MODELS = sorted(p.name for p in TESTDATA.iterdir() if (p / "saved_model.pb").exists())


def shell(*args, **kwargs):
    """Run the command in a process of its own, with a minimal environment."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    code = "from tf2jax_lite.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, env=environment, **kwargs
    )


def bash(line):
    """Run a line of the shell that begins with a command and its arguments."""
    return subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tf2jax_lite {line}"], capture_output=True, text=True, cwd=ROOT
    )


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_verify_holds_on_every_model(name):
    result = invoke("verify", TESTDATA / name, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["ok"] and all(s["outputs"] for s in found["signatures"])


@pytest.mark.full
def test_verify_with_inputs_and_signature(tmp_path):
    np.savez(tmp_path / "x.npz", features=np.ones((5, 4), np.float32), steps=np.int32(3))
    result = invoke("verify", TESTDATA / "tf_module", "--signature", "repeat", "--inputs", tmp_path / "x.npz")
    assert result.exit_code == 0, result.output
    assert "agrees" in result.output and "[5, 4]" in result.output


def test_verify_says_no():
    with tf2jax.override_op("Softmax", lambda logits: logits * 1.01):
        result = invoke("verify", TESTDATA / "tf_module", "--signature", "serving_default", "--json")
    assert result.exit_code == 1
    assert not json.loads(result.output)["ok"]


def test_inspect():
    result = invoke("inspect", TESTDATA / "tf_module", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert [s["name"] for s in found["signatures"]] == ["repeat", "serving_default"]
    assert found["signatures"][1]["inputs"] == [{"name": "features", "dtype": "float32", "shape": [None, 4]}]
    assert {v["name"] for v in found["variables"]} == {"w", "b", "seen"}
    assert found["trainable"] == 2 and found["supported"]
    assert {"StatelessWhile", "StatelessIf"} <= set(found["signatures"][0]["ops"])
    text = invoke("inspect", TESTDATA / "tf_module")
    assert "every op is supported" in text.output and "serving_default" in text.output


@pytest.mark.full
def test_inspect_of_a_model_that_does_not_convert_exits_with_1(tmp_path):
    graph = graph_pb2.GraphDef(node=[node_def_pb2.NodeDef(name="x", op="StringUpper", input=["y"])])
    graph.node.add(name="y", op="Placeholder").attr["dtype"].type = types_pb2.DT_STRING
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    for option in ((), ("--json",)):
        result = invoke("inspect", tmp_path / "g.pb", *option)
        assert result.exit_code == 1 and "StringUpper" in result.output


def test_inspect_writes_a_page(tmp_path):
    result = invoke("inspect", TESTDATA / "tf_module", "--html", tmp_path / "new" / "page.html", "--json")
    assert result.exit_code == 0 and json.loads(result.output)["supported"]
    text = (tmp_path / "new" / "page.html").read_text()
    page = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>"))
    assert [title.text.strip() for title in page.findall(".//h2")] == ["repeat", "serving_default", "Variables"]
    assert len(page.findall(".//div[@class='bars']")) == 3  # ops of two signatures, variables by scope
    assert "every op is supported" in text and "StatelessWhile" in text and not re.search("<script|https?:", text)


def test_version():
    """The installed one, whichever way it is asked for."""
    version = importlib.metadata.version("tf2jax-lite")
    assert tf2jax.__version__ == version
    assert invoke("--version").output == f"tf2jax-lite {version}\n"
    asked = subprocess.run([sys.executable, "-m", "tf2jax_lite", "--version"], capture_output=True, text=True)
    assert (asked.returncode, asked.stdout) == (0, f"tf2jax-lite {version}\n")


def test_ops():
    result = invoke("ops", "--json")
    assert result.exit_code == 0
    found = json.loads(result.output)
    assert {o["name"]: o["status"] for o in found["ops"]}["Conv2D"] == "supported"
    assert "XlaSend" in invoke("ops", "--missing").output


@pytest.fixture
def broken(tmp_path):
    def make(kind):
        target = tmp_path / kind
        shutil.copytree(TESTDATA / "tf_module", target)
        file = target / "saved_model.pb"
        if kind == "empty":
            file.write_bytes(b"")
        elif kind == "truncated":
            file.write_bytes(file.read_bytes()[:1000])
        elif kind == "garbage":
            file.write_bytes(b"\xff\xfe not a proto" * 50)
        elif kind == "no_pb":
            file.unlink()
        elif kind == "no_variables":
            shutil.rmtree(target / "variables")
        elif kind == "truncated_variables":
            data = next((target / "variables").glob("*.data*"))
            data.write_bytes(data.read_bytes()[:10])
        return target

    return make


BROKEN = ["empty", "truncated", "garbage", "no_pb", "no_variables"]


@pytest.mark.default_cases("empty", "garbage", "no_pb", "no_variables")
@pytest.mark.parametrize("kind", [*BROKEN, "truncated_variables"])
def test_broken_models_are_refused(broken, kind):
    path = broken(kind)
    for command in ["verify"] if kind == "truncated_variables" else ["inspect", "verify"]:
        result = invoke(command, path)
        assert isinstance(result.exception, Tf2JaxError), (command, result.output, result.exception)
        assert str(path) in str(result.exception)
        assert "\n" not in str(result.exception)


def test_inspect_of_a_damaged_keras_file_says_so(tmp_path):
    file = tmp_path / "model.keras"
    file.write_bytes(b"PK")
    with pytest.raises(Tf2JaxError, match=r"model\.keras: not a model that Keras loads"):
        raise invoke("inspect", file).exception


def test_unknown_signature_and_tag():
    for args, text in ((("--signature", "nope"), "serving_default"), (("--tag", "nope"), "serve")):
        result = invoke("verify", TESTDATA / "tf_module", *args)
        assert isinstance(result.exception, Tf2JaxError)
        assert "nope" in str(result.exception) and text in str(result.exception)


def test_errors_are_one_line_and_exit_code_2(tmp_path):
    result = shell("inspect", tmp_path / "nothing")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.strip().count("\n") == 0 and result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr
    assert re.search(r"[^.]\. See https://\S+/errors\.html#invalidmodelerror$", result.stderr.strip())


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "code"),
    [pytest.param("inspect {model}", 0, marks=pytest.mark.full), ("inspect {model}/nothing", 2)],
)
def test_without_stderr(command, code):
    """Without stderr, as under some supervisors, the next file opened is stderr."""
    done = bash(f"{command.format(model=TESTDATA / 'tf_module')} 2>&-")
    assert (done.returncode, "every op is supported" in done.stdout) == (code, code == 0)


@pytest.mark.full
def test_a_reader_that_goes_is_no_error():
    done = bash("ops | head -1 >/dev/null; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
def test_verify_says_when_source_is_run():
    text = " ".join(CliRunner().invoke(app, ["verify", "--help"], env={"COLUMNS": "200"}).output.split())
    assert "with --source, its source is run, too" in text


def test_demo(tmp_path):
    """The demo runs anywhere, in a minimal environment; fine-tuning helps."""
    result = shell("demo", "--steps", "100", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "same class for 100.0%" in result.stdout
    before, after = (float(p) for p in re.findall(r"accuracy .*?(\d+\.\d)%", result.stdout))
    assert after > before + 2
    curve = [float(p) for p in re.findall(r"round +\d+ +(\d+\.\d)%", result.stdout)]
    assert len(curve) == 11 and curve[-1] > 70 and curve[-1] > curve[0] + 50
    assert not list(tmp_path.iterdir())
