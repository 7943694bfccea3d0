"""Upload artifacts to the Hugging Face Hub, and download them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.support.errors import ExportError, InputError, MissingLibraryError
from tf2jax_lite.support.text import size_text

from .atomic_dir import METADATA
from .metadata import check_hashes, read_metadata

# `Path` turns the two slashes into one.
_ADDRESS = re.compile(r"hf:/{1,2}(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_FILES = ["*.json", "*.mlir", "*.py", "*.safetensors", "*.stablehlo"]


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
    except ImportError as error:
        raise MissingLibraryError(
            f"the Hugging Face Hub needs huggingface_hub: pip install 'tf2jax-lite[hub]' ({error})"
        ) from error
    return huggingface_hub


def push_to_hub(
    artifact: str | Path,
    repo: str,
    *,
    private: bool = False,
    license: str | None = None,
    token: str | None = None,
    message: str = "Upload artifact",
) -> str:
    """Upload an artifact to the Hugging Face Hub, with a model card.

    The files of the artifact are one commit. Its metadata keeps the name of the converted model, but not its path.

    Args:
      artifact: the directory.
      repo: the repository, ``organization/name``; it is made if it does not exist.
      private: of a new repository, whether others can see it.
      license: for the card, an identifier of the hub such as ``apache-2.0``.
      token: default: that of ``hf auth login``, or of the environment variable ``HF_TOKEN``.
      message: title of the commit.

    Returns:
      The URL of the commit.

    Raises:
      ExportError: the artifact is damaged, or the hub rejects the upload.
      MissingLibraryError: huggingface_hub is not installed.

    Example:
      >>> tf2jax.push_to_hub("OUT", "organization/name", license="apache-2.0")  # doctest: +SKIP
    """
    hub = _hub()
    folder = Path(artifact)
    metadata = read_metadata(folder)
    check_hashes(folder, metadata)
    options = dict(metadata.get("options") or {})
    if isinstance(options.get("model"), str):
        options["model"] = Path(options["model"]).name
    contents: dict[str, Any] = {
        METADATA: (json.dumps({**metadata, "options": options}, indent=2, sort_keys=True) + "\n").encode(),
        "README.md": model_card(metadata, repo, license=license).encode(),
        **{name: folder / name for name in metadata["files"]},
    }
    operations = [hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=c) for name, c in contents.items()]
    api = hub.HfApi(token=token)
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        return str(api.create_commit(repo, operations, commit_message=message).commit_url)
    except Exception as error:  # those of the hub, of its HTTP library, and of files
        raise ExportError(f"{repo}: the upload failed: {_first_line(error)}") from error


def local_artifact(path: str | Path) -> Path:
    """Return a local directory for a path, or for an address of the hub.

    Args:
      path: a directory, which is returned, or ``hf://organization/name``, with ``@revision`` for a branch, tag or
        commit. Its files are kept in the hub's cache, and downloaded again only if they have changed.
    """
    text = str(path)
    if not text.startswith("hf:"):
        return Path(path)
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is not an address of the hub: hf://organization/name, or with @revision.")
    hub = _hub()
    revision = found["revision"] or "main"
    # The hub's own layout has links, which artifacts may not have.
    folder = Path(hub.constants.HF_HUB_CACHE) / "tf2jax-lite" / found["repo"].replace("/", "--")
    folder /= revision.replace("/", "--")
    try:
        hub.snapshot_download(found["repo"], revision=revision, local_dir=folder, allow_patterns=_FILES)
    except Exception as error:  # as above
        raise ExportError(f"{text}: the download failed: {_first_line(error)}") from error
    return folder


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def model_card(metadata: Mapping[str, Any], repo: str, *, license: str | None = None) -> str:
    """Return the README of an artifact's repository on the hub."""
    params = [info for info in metadata["params"].values() if not info.get("constant")]
    count = sum(int(np.prod(info["shape"], dtype=np.int64)) for info in params)
    size = sum(int(info["bytes"]) for info in metadata["files"].values())
    dtypes = sorted({str(info["dtype"]) for info in params})
    model = (metadata.get("options") or {}).get("model")
    origin = f" from `{Path(model).name}`" if isinstance(model, str) else ""
    header = ["library_name: tf2jax-lite", "tags: [jax, tf2jax-lite]", *([f"license: {license}"] if license else [])]
    lines = [
        "---",
        *header,
        "---",
        "",
        f"# {repo.rpartition('/')[2]}",
        "",
        f"A model converted{origin} to JAX with tf2jax_lite: {count:,} parameters ({', '.join(dtypes) or 'none'}), "
        f"{size_text(size)}. It runs without TensorFlow.",
        "",
        "```python",
        "import tf2jax_lite as tf2jax",
        "",
    ]
    for name in sorted(metadata["signatures"]):
        argument = f', "{name}"' if len(metadata["signatures"]) > 1 else ""
        lines.append(f'fn, params = tf2jax.load("hf://{repo}"{argument})')
    lines += ["```", "", "| function | inputs | results |", "|---|---|---|"]
    for name, entry in sorted(metadata["signatures"].items()):
        lines.append(f"| `{name}` | {_tensors(entry.get('inputs'))} | {_tensors(entry.get('outputs'))} |")
    warnings = [str(text) for text in metadata.get("warnings", ())]
    if warnings:
        lines += ["", "Warnings of the conversion:", "", *(f"- {' '.join(text.split())}" for text in warnings)]
    return "\n".join(lines) + "\n"


def _tensors(entries: Any) -> str:
    """Return arrays of a signature as text for a table."""
    found = []
    for entry in entries or ():
        shape = ", ".join(str(size) for size in entry["shape"])
        found.append(f"`{' '.join([*filter(None, [entry.get('name')]), entry['dtype']])}[{shape}]`")
    return ", ".join(found) or "none"
