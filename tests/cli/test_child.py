"""A command in a child process: its end, and TensorFlow's environment."""

import signal
import subprocess
import sys
import textwrap

import pytest


def python(script, **options):
    code = textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)


HEAD = """
import os, signal, sys, time
from tf2jax_lite.cli.child import in_child, report_step
from tf2jax_lite.cli.quiet import quiet_stderr
from tf2jax_lite.errors import CrashedError
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
"""


def test_in_child_crash_names_signal_step_and_stderr():
    ended = python(
        HEAD
        + """
try:
    code = in_child()
except CrashedError as error:
    print("error:", error)
else:
    with quiet_stderr():
        report_step("load")
        os.write(2, b"chatter\\n")
        report_step("serving_default: seed 0")
        os.write(2, b"free(): invalid pointer\\n")
        os.abort()
"""
    )
    assert "ended by SIGABRT in step 'serving_default: seed 0': free(): invalid pointer. This is no" in ended.stdout
    assert "chatter" not in ended.stdout and not ended.stderr


def test_in_child_exit_code_is_returned():
    ended = python(HEAD + "code = in_child()\nprint(code)\nsys.exit(3)")
    assert ended.stdout == "None\n3\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_in_child_signal_reaches_child(name):
    ended = python(
        HEAD
        + f"""
parent = os.getpid()
code = in_child()
if code is None:
    os.kill(parent, signal.{name})
    try:
        time.sleep(20)
    except KeyboardInterrupt:
        sys.exit(130)
print(code)
"""
    )
    assert ended.stdout == f"{128 + getattr(signal, name)}\n"


def test_in_child_ends_with_its_parent():
    script = HEAD + "parent = os.getpid()\nif in_child() is None:\n    os.kill(parent, 9)\n    time.sleep(60)"
    assert python(script, timeout=30).returncode == -9  # the pipes close when the child ends


@pytest.mark.parametrize(("given", "expected"), [(None, "0"), ("1", "1")])
def test_import_tensorflow_onednn_is_off_unless_asked_for(tmp_path, given, expected):
    (tmp_path / "tensorflow.py").write_text("import os\nprint(os.environ['TF_ENABLE_ONEDNN_OPTS'])\n")
    environment = {"PYTHONPATH": str(tmp_path)} | ({} if given is None else {"TF_ENABLE_ONEDNN_OPTS": given})
    ended = python("from tf2jax_lite.cli.quiet import import_tensorflow; import_tensorflow()", env=environment)
    assert ended.stdout == f"{expected}\n"
