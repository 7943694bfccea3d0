"""Check of metadata.json: wrong types raise with their path, before use."""

import copy
import json
import re
import shutil
from pathlib import Path

import pytest

from tf2jax_lite import load
from tf2jax_lite.errors import ExportError
from tf2jax_lite.export import metadata as metadata_module
from tf2jax_lite.export.metadata import named_signature, read_metadata

STORED = Path(__file__).parent.parent.parent / "testdata" / "stored" / "0.1.0.dev0" / "artifact_tf2"
SIGNATURE = ("signatures", "serving_default")
CHANGES = [
    ((*SIGNATURE, "rng"), None, "'serving_default': rng is missing"),
    ((*SIGNATURE, "rng"), 1.5, "rng is missing or of another type"),
    ((*SIGNATURE, "variables"), 0.5, "variables is missing or of another type"),
    ((*SIGNATURE, "updates"), [1], "updates is missing or of another type"),
    ((*SIGNATURE, "inputs"), {"dtype": "float32"}, "inputs is missing or of another type"),
    ((*SIGNATURE, "inputs"), ["float32"], "inputs 0 is not an object"),
    ((*SIGNATURE, "inputs", 0, "dtype"), None, "inputs 0: dtype is missing"),
    ((*SIGNATURE, "inputs", 0, "dtype"), "float33", "a dtype 'float33', which does not exist"),
    ((*SIGNATURE, "inputs", 0, "name"), 1, "inputs 0: name is missing"),
    ((*SIGNATURE, "inputs", 0, "shape"), "b", "inputs 0: shape is missing"),
    (("options",), [], "options are of another type"),
    (("options", "training"), 1, "options are of another type"),
    (("warnings",), 1, "warnings are of another type"),
    (("params", "dense"), [], "param 'dense' is not an object"),
    (("params", "dense", "file"), {"a": 1}, "param 'dense': file is missing or of another type"),
    (("params", "dense", "shape"), [2, -3], "param 'dense': the shape is of another form"),
    (("params", "dense", "shape"), [1] * 65, "param 'dense': the shape is of another form"),
    (("params", "dense", "shape"), ["2", 3], "param 'dense': the shape is of another form"),
    (("params", "dense", "trainable"), "yes", "trainable is missing or of another type"),
    (("params", "a/" * 101), {"file": "x", "dtype": "float32", "shape": [], "trainable": True}, "more than 100 scopes"),
    (("files", "model.stablehlo"), "5a", "file 'model.stablehlo' is not an object"),
    (("files", "model.stablehlo", "sha256"), None, "'model.stablehlo': sha256 is missing"),
    (("files", "model.stablehlo", "bytes"), -1, "bytes is missing or of another type"),
    ((*SIGNATURE, "outputs"), [{"dtype": "float32"}], "outputs 0: shape is missing"),
    (("signatures", "other"), {}, "'other': variables is missing"),
]


@pytest.mark.parametrize(("where", "value", "text"), CHANGES)
def test_entries_of_another_kind(where, value, text, tmp_path):
    metadata = json.loads((STORED / "metadata.json").read_text())
    changed = copy.deepcopy(metadata)
    place = changed
    for key in where[:-1]:
        place = place[key]
    if value is None:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    folder = shutil.copytree(STORED, tmp_path / "artifact")
    (folder / "metadata.json").write_text(json.dumps(changed))
    with pytest.raises(ExportError, match=text):
        named_signature(read_metadata(folder), None)
    with pytest.raises(ExportError, match=text):
        load(folder)


@pytest.mark.parametrize("backend", ["stablehlo", "source"])
def test_files_that_are_not_listed(tmp_path, backend):
    """Their hashes are not known: anyone may have exchanged them."""
    metadata = json.loads((STORED / "metadata.json").read_text())
    unlisted = {"stablehlo": metadata["signatures"]["serving_default"]["stablehlo"], "source": metadata["source"]}
    params = {info["file"] for info in metadata["params"].values()}
    for number, name in enumerate([unlisted[backend], *params]):
        folder = shutil.copytree(STORED, tmp_path / str(number))
        files = {file: info for file, info in metadata["files"].items() if file != name}
        (folder / "metadata.json").write_text(json.dumps({**metadata, "files": files}))
        with pytest.raises(ExportError, match=f"{name!r} is not a file of the artifact"):
            load(folder, backend=backend)


@pytest.mark.default_cases("1-source", "1-stablehlo")
@pytest.mark.parametrize("backend", ["stablehlo", "source"])
@pytest.mark.parametrize("index", [1, -1, 2**70])
def test_numbers_of_arrays_that_are_not_there(tmp_path, backend, index):
    """In the interface, and in the arguments of the source's function."""
    text = (STORED / "metadata.json").read_text()
    for name, key in (("interface", "index"), ("function", "result")):
        metadata = json.loads(text)
        entry = metadata["signatures"]["serving_default"][name]
        changed = re.sub(rf'"{key}": \d+', f'"{key}": {index}', json.dumps(entry))
        assert changed != json.dumps(entry)
        metadata["signatures"]["serving_default"][name] = json.loads(changed)
        folder = shutil.copytree(STORED, tmp_path / name)
        (folder / "metadata.json").write_text(json.dumps(metadata))
        if (name, backend) != ("function", "stablehlo"):
            with pytest.raises(ExportError, match=r"cannot be read|is not an|of another (type|form)"):
                load(folder, backend=backend)


def _with_version(folder, version):
    metadata = json.loads((STORED / "metadata.json").read_text())
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    (folder / "metadata.json").write_text(json.dumps({**metadata, "format_version": version}))
    return folder


def test_versions_up_to_this_one_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(metadata_module, "FORMAT_VERSION", 3)
    for version in (1, 2, 3):
        assert read_metadata(_with_version(tmp_path, version))["format_version"] == version


@pytest.mark.parametrize("version", [0, -1, 1.5, True, "1", None])
def test_other_versions_raise(tmp_path, monkeypatch, version):
    monkeypatch.setattr(metadata_module, "FORMAT_VERSION", 3)
    with pytest.raises(ExportError, match=r"(?m)this release reads 1 to 3\.$"):
        read_metadata(_with_version(tmp_path, version))


def test_a_newer_version_advises_to_upgrade(tmp_path):
    with pytest.raises(ExportError, match=r"format version 99; .*pip install --upgrade tf2jax-lite"):
        load(_with_version(tmp_path, 99))
