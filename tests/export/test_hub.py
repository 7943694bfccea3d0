"""Artifacts go to the hub and back, through a stand-in for its HTTP interface."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tf2jax_lite.errors import ExportError, InputError, MissingLibraryError
from tf2jax_lite.export import hub
from tf2jax_lite.export.metadata import read_metadata

ARTIFACT = Path(__file__).parents[2] / "testdata" / "stored" / "0.1.0.dev0" / "artifact_tf2"


def _hash(content):
    return hashlib.sha1(content).hexdigest()


class Hub(ThreadingHTTPServer):
    """A hub with one branch: files by repository, and the paths of its requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Requests)
        self.repos, self.asked = {}, []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, content, code=200, **headers):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self):
        self.server.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = self.path.strip("/").split("/")
        if parts[:3] == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.server.repos.setdefault(name, {})
            self.answer({"url": f"{self.server.url}/{name}", "id": name})
        elif parts[-2:-1] == ["preupload"]:
            asked = json.loads(body)["files"]
            self.answer({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]})
        elif parts[-2:-1] == ["commit"]:
            repo = self.server.repos["/".join(parts[2:4])]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    repo[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"{self.server.url}/{'/'.join(parts[2:4])}/commit/{'1' * 40}"
            self.answer({"success": True, "commitOid": "1" * 40, "commitUrl": url})
        elif parts[-1] == "validate-yaml":
            self.answer({"errors": [], "warnings": []})
        else:
            self.answer({"error": "not found"}, 404)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.asked.append(self.path)
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name = "/".join(parts[2:4])
            repo = self.server.repos.get(name)
            if repo is None:
                self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            elif "tree" in parts:
                self.answer([{"type": "file", "path": f, "size": len(c), "oid": _hash(c)} for f, c in repo.items()])
            else:
                siblings = [{"rfilename": file} for file in repo]
                self.answer({"id": name, "modelId": name, "sha": "1" * 40, "siblings": siblings, "private": False})
        else:
            content = self.server.repos.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
            if content is None:
                self.answer({"error": "not found"}, 404, X_Error_Code="EntryNotFound")
            else:
                self.answer(content, X_Repo_Commit="1" * 40, ETag=f'"{_hash(content)}"')


@pytest.fixture
def server():
    pytest.importorskip("huggingface_hub")
    found = Hub()
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def python(code, server, home):
    """Run code with the stand-in as the hub: its URL is read once, at import."""
    names = {
        **os.environ,
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(home),
        "HF_TOKEN": "hf_none",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    code = f"import sys; sys.modules['tensorflow'] = None\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=names, cwd=home)


def test_an_artifact_goes_to_the_hub_and_back(server, tmp_path):
    file = shutil.copytree(ARTIFACT, tmp_path / "artifact") / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata["options"]["model"] = "/home/ann/scores.keras"
    file.write_text(json.dumps(metadata))
    code = """
import numpy as np, tf2jax_lite as tf2jax
print(tf2jax.push_to_hub("artifact", "org/scores", license="mit"))
for backend in ("stablehlo", "source"):
    fn, params = tf2jax.load("hf://org/scores", backend=backend)
    again = tf2jax.load("artifact")[1]
    assert params.keys() == again.keys() and all(np.array_equal(params[n], v) for n, v in again.items())
print(fn.interface.name)
"""
    done = python(code, server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{server.url}/org/scores/commit/{'1' * 40}", "serving_default"]
    files = server.repos["org/scores"]
    metadata = json.loads(files["metadata.json"])
    assert set(files) == {"metadata.json", "README.md", *metadata["files"]}
    assert metadata["options"]["model"] == "scores.keras"
    assert b"license: mit" in files["README.md"] and b'load("hf://org/scores")' in files["README.md"]
    assert b"ann" not in b"".join(files[name] for name in ("metadata.json", "README.md"))
    assert sum("params.safetensors" in path for path in server.asked if "resolve" in path) <= 3  # not fetched twice


@pytest.mark.full
def test_a_missing_repository_raises(server, tmp_path):
    code = """
import tf2jax_lite as tf2jax
try:
    tf2jax.load("hf://org/none@v1")
except tf2jax.Tf2JaxError as error:
    print(type(error).__name__, error)
"""
    done = python(code, server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ExportError hf://org/none@v1: the download failed: ")


def test_the_card_names_functions_and_their_arrays():
    metadata = read_metadata(ARTIFACT)
    metadata["warnings"] = ["no\nsource"]
    card = hub.model_card(metadata, "org/scores")
    assert card.startswith("---\nlibrary_name: tf2jax-lite\n") and "license" not in card
    assert "# scores\n" in card and "- no source\n" in card
    (entry,) = metadata["signatures"].values()
    assert f"`{entry['inputs'][0]['name']} float32[" in card
    assert all(f"{output['dtype']}[" in card for output in entry["outputs"])


def test_addresses(monkeypatch):
    assert hub.local_artifact("some/folder") == Path("some/folder")
    for address in ("hf://name", "hf://a/b/c", "hf://../x y"):
        with pytest.raises(InputError, match="hf://organization/name"):
            hub.local_artifact(address)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingLibraryError, match=r"tf2jax-lite\[hub\]"):
        hub.local_artifact(Path("hf://org/name"))
    with pytest.raises(MissingLibraryError, match=r"tf2jax-lite\[hub\]"):
        hub.push_to_hub(ARTIFACT, "org/name")


def test_a_damaged_artifact_is_not_uploaded(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_hub", lambda: None)
    with pytest.raises(ExportError, match="is not an artifact"):
        hub.push_to_hub(tmp_path, "org/name")
