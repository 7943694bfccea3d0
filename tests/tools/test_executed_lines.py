"""Records of lines that tests run, and tests for planted faults."""

import sys

import pytest

from tf2jax_lite.values import static
from tools import executed_lines
from tools.planted_faults import Fault, running

FILE = "tf2jax_lite/values/static.py"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a record: line 1 at import, line 10 by two tests, line 20 by one."""
    file = executed_lines.gzip.open(tmp_path / "gw0.pickle.gz", "wb")
    for test, lines in (("", [1]), ("tests/a.py::one", [10]), ("tests/a.py::test_case[two]", [10, 20])):
        executed_lines.pickle.dump(executed_lines.Record(test, 0.1, {FILE: lines}), file)
    file.close()
    return tmp_path


def test_executed_merges_the_tests_of_a_run(folder):
    assert executed_lines.executed(folder) == {(FILE, 1), (FILE, 10), (FILE, 20)}


def test_running_leaves_out_faults_at_import(folder):
    imported, both, one, none = (Fault(FILE, line, "comparison", "a < b", "a <= b") for line in (1, 10, 20, 30))
    tests = running([imported, both, one, none], folder)
    assert tests == {both: ["tests/a.py::one", "tests/a.py::test_case"], one: ["tests/a.py::test_case"], none: []}


@pytest.mark.full
def test_executable_has_lines_of_both_folders():
    files = {file for file, _ in executed_lines.executable()}
    assert FILE in files and "ops/registry.py" in files
    assert not any(file.startswith("tf2jax_lite/ops/") for file in files), "a link to ops/ counts once"


@pytest.mark.full
@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_recorder_writes_lines_since_start(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    recorder = executed_lines._Recorder(tmp_path)
    try:
        static.is_static(1)
        recorder.start()
        recorder.write("nothing", 0.0)
        static.is_static(1)
        recorder.write("something", 0.0)
    finally:
        recorder.close()
        recorder._monitoring.free_tool_id(recorder.tool)
    nothing, something = executed_lines.records(tmp_path)
    first = static.is_static.__code__.co_firstlineno
    assert not nothing.lines and first < min(something.lines[FILE])
