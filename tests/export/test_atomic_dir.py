"""Outputs are private while they are written, and replace no user's files."""

import json
import os
import threading

import pytest

from tf2jax_lite.errors import ExportError
from tf2jax_lite.export import atomic_dir

FORMAT = "tf2jax_lite artefact"


def make(folder, files=(), **metadata):
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        (folder / name).write_text("ours")
    content = {"format": FORMAT, "files": {name: {} for name in files}, **metadata}
    (folder / "metadata.json").write_text(json.dumps(content))
    return folder


def write(out, text="new", **options):
    with atomic_dir.new_directory(out, **{"overwrite": True, **options}) as work:
        (work / "a").write_text(text)
        make(work, ["a"])
        (work / "a").write_text(text)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("kind", ["folder", "empty", "file", "link", "artifact"])
def test_new_directory_made_meanwhile_stays(tmp_path, kind, overwrite):
    out = tmp_path / "out"
    (tmp_path / "elsewhere").mkdir()
    with (
        pytest.raises(ExportError, match="was made meanwhile"),
        atomic_dir.new_directory(out, overwrite=overwrite) as work,
    ):
        make(work)
        if kind == "folder":
            out.mkdir()
            (out / "thesis").write_text("years")
        elif kind == "empty":
            out.mkdir()
        elif kind == "artifact":
            make(out, ["theirs"])
        else:
            out.write_text("mine") if kind == "file" else out.symlink_to(tmp_path / "elsewhere")
    found = {"folder": ["thesis"], "artifact": ["metadata.json", "theirs"]}.get(kind, [])
    assert os.path.lexists(out)
    assert not out.is_dir() or sorted(os.listdir(out)) == found
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "out"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda out: (out / "metadata.json").write_text('{"title": "mine"}'), "not an artifact"),
        (lambda out: (out / "metadata.json").write_text("[" * 100_000), "not an artifact"),
        (lambda out: (out / "metadata.json").unlink(), "not an artifact"),
        (lambda out: (out / "notes.txt").write_text("mine"), "not of the artifact: notes.txt"),
        (lambda out: (out / "data").mkdir(), "not of the artifact: data"),
        (lambda out: ((out / "a").unlink(), (out / "a").mkdir()), "not of the artifact: a"),
        (lambda out: ((out / "checkpoint").mkdir(), (out / "checkpoint" / "x").touch()), "checkpoint/x"),
        (lambda out: ((out / "__pycache__").mkdir(), (out / "__pycache__" / "x").touch()), "__pycache__/x"),
    ],
)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_overwrite_replaces_only_an_artifact_of_ours(tmp_path, change, says, meanwhile):
    out = make(tmp_path / "out", ["a"])
    if meanwhile:
        with (
            pytest.raises(ExportError, match="changed meanwhile"),
            atomic_dir.new_directory(out, overwrite=True) as work,
        ):
            make(work)
            change(out)
    else:
        change(out)
        with pytest.raises(ExportError, match=says):
            write(out)
    after = sorted(p.relative_to(out).as_posix() for p in out.rglob("*"))
    again = make(tmp_path / "again" / "out", ["a"])
    change(again)
    assert after == sorted(p.relative_to(again).as_posix() for p in again.rglob("*"))
    assert sorted(os.listdir(tmp_path)) == ["again", "out"]


def test_overwrite_replaces_an_artifact_and_what_belongs_to_it(tmp_path):
    out = make(tmp_path / "out", ["a"])
    (out / "__pycache__").mkdir()
    (out / "__pycache__" / "model.cpython-311.pyc").touch()
    (out / "checkpoint" / "d").mkdir(parents=True)
    (out / "checkpoint" / "manifest.ocdbt").touch()
    write(out)
    assert (out / "a").read_text() == "new" and sorted(os.listdir(out)) == ["a", "metadata.json"]
    assert os.listdir(tmp_path) == ["out"]


def test_overwrite_of_a_family_looks_into_its_members(tmp_path):
    out = make(tmp_path / "out", ["history"], format="tf2jax_lite artefacts", artefacts=["one"])
    make(out / "one", ["a"])
    (out / "one" / "mine").touch()
    with pytest.raises(ExportError, match="one/mine"):
        write(out)
    (out / "one" / "mine").unlink()
    write(out)
    assert sorted(os.listdir(out)) == ["a", "metadata.json"]


def test_another_artifact_in_place_of_the_checked_one_stays(tmp_path):
    out = make(tmp_path / "out", ["a"])
    with pytest.raises(ExportError, match="changed meanwhile"), atomic_dir.new_directory(out, overwrite=True) as work:
        make(work)
        out.rename(tmp_path / "first")
        make(out, ["b"])
    assert sorted(os.listdir(out)) == ["b", "metadata.json"]


def test_threads_that_write_one_path_have_one_winner(tmp_path):
    results, barrier = [], threading.Barrier(8)

    def run(number):
        try:
            with atomic_dir.new_directory(tmp_path / "out", overwrite=False) as work:
                for i in range(20):
                    (work / f"part{i}").write_text(str(number))
                barrier.wait()
            results.append(number)
        except ExportError:
            pass

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    assert {p.read_text() for p in (tmp_path / "out").iterdir()} == {str(results[0])}
    assert len(os.listdir(tmp_path / "out")) == 20 and os.listdir(tmp_path) == ["out"]


def test_leftovers_are_removed_only_if_they_are_provably_ours(tmp_path):
    out = tmp_path / "out"
    stale = tmp_path / ".out.abcdefgh.partial"
    (stale / "new").mkdir(parents=True)
    (stale / ".tf2jax_lite").touch()
    (tmp_path / ".out.aaaaaaaa.partial").mkdir()  # killed before it was marked
    users = [".out.123.partial", ".out.bbbbbbbb.partial", ".other.abcdefgh.partial"]
    for name in users:
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    with atomic_dir.new_directory(out, overwrite=False) as work:
        assert work.parent.stat().st_mode & 0o077 == 0
        with atomic_dir.new_directory(out, overwrite=False) as other:  # leaves that of a running process
            pass
        assert work.exists() and not other.exists()
        out.rmdir()
    assert sorted(os.listdir(tmp_path)) == sorted([*users, "out"])


def test_artifact_of_a_killed_replacement_gets_its_name_back(tmp_path):
    stale = tmp_path / ".out.abcdefgh.partial"
    (stale / "new").mkdir(parents=True)
    (stale / ".tf2jax_lite").touch()
    make(stale / "old", ["a"])
    with pytest.raises(ExportError, match="exists"):
        write(tmp_path / "out", overwrite=False)
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "metadata.json"] and os.listdir(tmp_path) == ["out"]


def test_write_file_never_follows_a_link_at_its_temporary_name(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(atomic_dir.secrets, "token_hex", lambda size: "foreseen")
    (tmp_path / ".foreseen.partial").symlink_to(victim)
    with pytest.raises(ExportError):
        atomic_dir.write_file(tmp_path / "out", b"x")
    assert victim.read_text() == "mine"


def test_write_file_without_overwrite_leaves_what_is_there(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ExportError, match="exists"):
        atomic_dir.write_file(tmp_path / "out", b"x", overwrite=False)
    assert (tmp_path / "out").read_text() == "mine" and os.listdir(tmp_path) == ["out"]
    atomic_dir.write_file(tmp_path / "new", b"x", overwrite=False)
    assert (tmp_path / "new").read_bytes() == b"x"
