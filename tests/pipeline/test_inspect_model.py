"""Models are described without TensorFlow exactly as with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests._support import invoke
from tf2jax_lite.cli.shared import console

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "testdata"
PATTERNS = (
    "testdata/**/saved_model.pb",
    "tf2jax_lite/demo/*/saved_model.pb",
    "testdata/fuzz/*.pb",
    "testdata/tf1/*.pb",
)
MODELS = sorted(str(path.relative_to(ROOT)) for pattern in PATTERNS for path in ROOT.glob(pattern))
MODELS.append("testdata/tf1/checkpoint/model.meta")
# Prints the commands' outputs and errors in a process that never imports TensorFlow.
ALONE = """
import json, sys
from typer.testing import CliRunner
from tf2jax_lite.cli.app import app
found = {}
for command in json.load(sys.stdin):
    result = CliRunner().invoke(app, command)
    found[" ".join(command)] = [result.output, result.exit_code, type(result.exception).__name__, str(result.exception)]
    assert "tensorflow" not in sys.modules, command
json.dump(found, sys.stdout)
"""


def damaged(folder):
    """Write cut and changed SavedModels and graphs; return their paths."""
    paths = []
    whole = (DATA / "tf_module" / "saved_model.pb").read_bytes()
    index = (DATA / "tf1" / "frozen_inception.pb").read_bytes()[:3000]
    contents = [whole[:0], whole[: len(whole) // 2], whole[:-1], b"\xff" * 64, bytes([whole[0], 0x80]) + whole[2:]]
    for number, content in enumerate([*contents, whole[:900] + b"\xff\xfe" + whole[902:]]):
        model = folder / f"model{number}"
        model.mkdir()
        (model / "saved_model.pb").write_bytes(content)
        paths.append(model)
    for number, content in enumerate((index, b"", b"\x0a\x05abc")):
        paths.append(folder / f"graph{number}.pb")
        paths[-1].write_bytes(content)
    return [str(path) for path in paths]


@pytest.mark.full
@pytest.mark.parametrize("every", [8, 1])
def test_inspect_without_tensorflow_gives_the_same_output(every, tmp_path):
    models = MODELS[::every] + damaged(tmp_path)[::every]
    commands = [["inspect", model, *more] for model in models for more in ([], ["--json"])]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        input=json.dumps(commands),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    alone = json.loads(done.stdout)
    assert len(alone) == len(commands)
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(console, "_width", 100)  # it reads COLUMNS when it is made
            together = {" ".join(c): invoke(*c) for c in commands}
    finally:
        os.chdir(before)
    assert tf.__version__ and any(result.exit_code == 0 for result in together.values())
    for command, result in together.items():
        *found, text = alone[command]
        assert found == [result.output, result.exit_code, type(result.exception).__name__], command
        if str(tmp_path) not in command:  # damage in fields that are not read may go unnoticed
            assert text == str(result.exception), command


def test_inspect_of_text_form(tmp_path):
    """The text form may have any field, which only TensorFlow's messages have."""
    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel.FromString((DATA / "tf_module" / "saved_model.pb").read_bytes())
    (tmp_path / "saved_model.pbtxt").write_text(text_format.MessageToString(proto))
    (tmp_path / "variables").mkdir()
    found, expected = (json.loads(invoke("inspect", path, "--json").output) for path in (tmp_path, DATA / "tf_module"))
    assert {**found, "path": ""} == {**expected, "path": ""}
