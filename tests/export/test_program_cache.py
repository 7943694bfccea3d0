"""Compiled programs are kept, and read only if no one else could write them."""

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tests._support import invoke
from tf2jax_lite.errors import ExportError, InputError
from tf2jax_lite.export import execution, program_cache

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("programs") / "a"
    weights = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)), name="w")

    def call(x, n):
        return {"y": tf.matmul(x, weights) * tf.cast(n, tf.float32), "noise": tf.random.uniform([2])}

    specs = [tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([], tf.int64, name="n")]
    tf2jax.export_functions({"f": tf2jax.convert(tf.function(call), *specs)}, place, platforms=["cpu"])
    return place


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(program_cache.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache" / "programs"


@pytest.fixture
def compilations(monkeypatch):
    """Return a list that gets an entry for each compilation."""
    found = []
    compiled = execution.compile_function
    monkeypatch.setattr(execution, "compile_function", lambda *args: found.append(1) or compiled(*args))
    return found


def run(place, x=X, **options):
    return execution.run_artifact(place, {"x": x, "n": np.int32(3)}, seed=7, **options)


def test_second_run_compiles_nothing(written, cache, compilations, monkeypatch):
    before = sorted(p.name for p in written.iterdir())
    first = run(written)
    with monkeypatch.context() as patch:
        patch.setattr(execution, "load", None)  # the StableHLO is not read either
        second = run(written)
        with pytest.raises(InputError, match="takes"):
            run(written, X.astype(complex))
    assert len(compilations) == 1
    for found in (first, second):
        np.testing.assert_allclose(found["y"], 3 * X @ np.arange(6).reshape(3, 2), rtol=1e-5)
    np.testing.assert_array_equal(first["noise"], second["noise"])
    assert sorted(p.name for p in written.iterdir()) == before
    (file,) = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and cache.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InputError, match="no array"):
        execution.run_artifact(written, {"x": X}, seed=7)


@pytest.mark.full
def test_other_shapes_options_and_artifacts_are_other_programs(written, cache, compilations, monkeypatch):
    run(written)
    run(written, X[:2])
    assert len(compilations) == 2
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--other")
    run(written)
    assert len(compilations) == 3
    with jax.default_matmul_precision("float32"):
        run(written)
    assert len(compilations) == 4
    metadata = json.loads((written / "metadata.json").read_text())
    changed = {**metadata, "files": {**metadata["files"], "model.stablehlo": {"sha256": "0", "bytes": 1}}}
    keys = {program_cache.program_key(data, name, {}) for data in (metadata, changed) for name in ("f", "g")}
    assert len(keys) == 4


def test_a_module_that_the_metadata_does_not_list(written, cache, tmp_path):
    """Nothing would tell that its program is that of another module."""
    place = shutil.copytree(written, tmp_path / "artifact")
    metadata = json.loads((place / "metadata.json").read_text())
    del metadata["files"]["model.stablehlo"]
    (place / "metadata.json").write_text(json.dumps(metadata))
    for options in ({}, {"cache": False}):
        with pytest.raises(ExportError, match=r"'model.stablehlo' is not a file of the artifact"):
            run(place, **options)
    assert not cache.exists()


@pytest.mark.full
def test_no_cache(written, cache, compilations, monkeypatch):
    run(written, cache=False)
    monkeypatch.setenv(program_cache.CACHE, "")
    run(written)
    assert len(compilations) == 2 and not cache.exists() and program_cache.directory() is None
    monkeypatch.delenv(program_cache.CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert program_cache.directory() == Path("/somewhere/tf2jax-lite/programs")


class Harmful:
    """A pickle that would write a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return Path.touch, (self.file,)


@pytest.mark.full
@pytest.mark.parametrize("who", ["file", "folder", "link", "owner"])
def test_programs_that_others_can_write_are_not_read(who, written, cache, compilations, monkeypatch, tmp_path):
    run(written)
    (file,) = cache.iterdir()
    payload = pickle.dumps(Harmful(tmp_path / "harm"))
    secret = (tmp_path / "state" / "tf2jax-lite" / "key").read_bytes()
    file.write_bytes(program_cache._mac(secret, file.stem, payload) + payload)
    if who == "file":
        file.chmod(0o666)
    elif who == "folder":
        cache.chmod(0o777)
    elif who == "link":
        moved = shutil.move(file, tmp_path / "elsewhere")
        file.symlink_to(moved)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    run(written)
    assert len(compilations) == 2 and not (tmp_path / "harm").exists()


@pytest.mark.parametrize("how", ["old", "none", "swapped", "other"])
def test_programs_without_the_mac_of_this_user_run_nothing(how, written, cache, compilations, tmp_path):
    run(written)
    (file,) = cache.iterdir()
    payload = pickle.dumps(Harmful(tmp_path / "harm"))
    secret = (tmp_path / "state" / "tf2jax-lite" / "key").read_bytes()
    mac = {
        "old": hashlib.sha256(payload).digest(),
        "none": b"",
        "swapped": program_cache._mac(secret, "another program", payload),
        "other": program_cache._mac(b"x" * 32, file.stem, payload),
    }[how]
    file.write_bytes(mac + payload)
    run(written)
    assert len(compilations) == 2 and not (tmp_path / "harm").exists()
    run(written)
    assert len(compilations) == 2


def test_relative_cache_directory_is_no_cache(monkeypatch):
    for relative in ("cache", "./cache", "../cache", "~/cache"):
        monkeypatch.setenv(program_cache.CACHE, relative)
        assert program_cache.directory() is None
    monkeypatch.delenv(program_cache.CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert program_cache.directory() is None


def use(cache, monkeypatch, tmp_path, how):
    state = tmp_path / "state" / "tf2jax-lite"
    if how == "below":
        monkeypatch.setenv("XDG_STATE_HOME", str(cache.parent / "state"))
    elif how == "link":
        cache.parent.mkdir()
        (tmp_path / "here").symlink_to(cache.parent)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "here" / "state"))
    elif how == "same":
        monkeypatch.delenv(program_cache.CACHE)
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, str(tmp_path / "one"))
    elif how == "relative":
        monkeypatch.setenv("XDG_STATE_HOME", "state")
        monkeypatch.chdir(tmp_path)
    else:
        state.mkdir(parents=True, mode=0o700)
        (state / "key").write_bytes(b"k" * (31 if how == "short" else 32))
        (state / "key").chmod(0o644 if how == "readable" else 0o600)
        if how == "folder":
            state.chmod(0o777)
        elif how == "linked":
            (state / "key").rename(tmp_path / "key")
            (state / "key").symlink_to(tmp_path / "key")


@pytest.mark.default_cases("below", "readable")
@pytest.mark.parametrize("how", ["below", "link", "same", "relative", "short", "readable", "folder", "linked"])
def test_no_key_that_only_the_user_has_is_no_cache(how, written, cache, compilations, monkeypatch, tmp_path):
    """What a cloned repository or a copied folder may bring."""
    use(cache, monkeypatch, tmp_path, how)
    run(written)
    run(written)
    assert len(compilations) == 2 and not list(tmp_path.rglob("*.program"))


def test_key_is_made_once_and_is_private(cache, tmp_path):
    first = program_cache._secret(cache)
    assert first == program_cache._secret(cache) and len(first) == 32
    (file,) = (tmp_path / "state" / "tf2jax-lite").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.full
def test_damaged_programs_are_compiled_again(written, cache, compilations):
    run(written)
    (file,) = cache.iterdir()
    content = file.read_bytes()
    for wrong in (b"", content[:100], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(wrong)
        run(written)
        assert file.read_bytes() != wrong
    assert len(compilations) == 4


def test_damaged_artifacts_are_noticed_before_a_program_runs(written, cache, tmp_path):
    run(written)
    broken = tmp_path / "b"
    shutil.copytree(written, broken)
    with (broken / "params.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ExportError, match="damaged"):
        run(broken)


@pytest.mark.full
def test_least_recently_used_programs_are_removed(written, cache, monkeypatch):
    monkeypatch.setattr(program_cache, "_MAX_PROGRAMS", 2)
    for rows in (1, 2, 3):
        run(written, X[:rows])
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr(program_cache, "_MAX_BYTES", 1)
    run(written, X)
    assert len(list(cache.iterdir())) == 1


@pytest.mark.full
def test_run_in_the_shell_keeps_a_program(written, cache, tmp_path):
    np.savez(tmp_path / "x.npz", x=X, n=3)
    for option, count in (("--no-cache", 0), ("--cache", 1), ("--cache", 1)):
        result = invoke("run", written, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", option)
        assert result.exit_code == 0, result.output
        assert len(list(cache.iterdir()) if cache.exists() else []) == count
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], 3 * X @ np.arange(6).reshape(3, 2), rtol=1e-5)
