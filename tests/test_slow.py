"""The list of slow tests names files that are there, and nothing that must always run."""

from pathlib import Path

from tests.slow import KEPT, main, slow_tests

ROOT = Path(__file__).parent.parent


def test_the_list_is_of_tests_that_are_there():
    files = {name.split("::")[0] for name in slow_tests() | set(KEPT)}
    assert [file for file in sorted(files) if not (ROOT / file).exists()] == []


def test_what_is_kept_is_not_slow():
    assert not slow_tests() & set(KEPT)


def test_the_list_is_written_from_what_was_measured(tmp_path, monkeypatch):
    """Long ones come in but for one of a kind, quick ones go, what did not run stays, what is kept never comes in."""
    results, listed = tmp_path / "results.xml", tmp_path / "slow.txt"
    where, _, kept = KEPT[0].partition(".py::")
    listed.write_text("tests/a.py::quick_now\ntests/a.py::not_run\ntests/a.py::skipped\n")
    results.write_text(
        f"""<testsuites><testsuite>
        <testcase classname="{where.replace("/", ".")}" name="{kept}" time="99"/>
        <testcase classname="tests.a" name="long[x.y]" time="9.5"/>
        <testcase classname="tests.a" name="cases[1]" time="1.8"/>
        <testcase classname="tests.a" name="cases[2]" time="1.7"/>
        <testcase classname="tests.a" name="test_case[Op-1]" time="1.9"/>
        <testcase classname="tests.a" name="test_case[Op-2]" time="1.8"/>
        <testcase classname="tests.a" name="test_case[Other]" time="1.7"/>
        <testcase classname="tests.a" name="quick_now" time="0.1"/>
        <testcase classname="tests.a" name="skipped" time="0.0"><skipped/></testcase>
        </testsuite></testsuites>"""
    )
    monkeypatch.setattr("tests.slow.LIST", listed)
    main(results)
    expected = ["cases[1]", "long[x.y]", "not_run", "skipped", "test_case[Op-1]"]
    assert listed.read_text().splitlines() == [f"tests/a.py::{name}" for name in expected]
