"""SavedModel directories."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from tf2jax_lite.errors import InvalidModelError

__all__ = ["load", "read_proto", "signature", "signature_names"]


def read_proto(path: str | os.PathLike[str]) -> Any:
    """Returns the SavedModel proto of a directory.

    Raises:
      InvalidModelError: there is none, or it cannot be read.
    """
    directory = Path(path)
    if not directory.exists():
        raise InvalidModelError(f"{directory}: there is no such directory.")
    if not directory.is_dir():
        raise InvalidModelError(f"{directory}: not a directory; a SavedModel is a directory that holds saved_model.pb.")
    file = directory / "saved_model.pb"
    if not file.is_file():
        text = directory / "saved_model.pbtxt"
        if text.is_file():
            return _read_text(text)
        raise InvalidModelError(f"{directory}: holds no saved_model.pb, so it is not a SavedModel.")
    data = file.read_bytes()
    if not data:
        raise InvalidModelError(f"{file}: the file is empty.")
    try:
        proto = saved_model_pb2.SavedModel.FromString(data)
    except DecodeError as error:
        raise InvalidModelError(f"{file}: not a SavedModel proto, or cut short ({error}).") from error
    if not proto.meta_graphs:
        raise InvalidModelError(f"{file}: holds no MetaGraph.")
    return proto


def _read_text(file: Path) -> Any:
    from google.protobuf import text_format

    try:
        return text_format.Parse(file.read_text(), saved_model_pb2.SavedModel())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidModelError(f"{file}: not a SavedModel in text form ({error}).") from error


def tag_sets(proto: Any) -> list[list[str]]:
    """Returns the tags of each MetaGraph."""
    return [sorted(graph.meta_info_def.tags) for graph in proto.meta_graphs]


def load(path: str | os.PathLike[str], tags: Sequence[str] | str | None = None) -> Any:
    """Loads a SavedModel with its variables.

    Raises:
      InvalidModelError: it cannot be read, or has no MetaGraph with these tags.
    """
    proto = read_proto(path)
    wanted = [tags] if isinstance(tags, str) else (None if tags is None else list(tags))
    sets = tag_sets(proto)
    if wanted is None:
        if len(sets) > 1:
            wanted = ["serve"] if ["serve"] in sets else None
            if wanted is None:
                raise InvalidModelError(f"{os.fspath(path)}: several MetaGraphs, tags {sets}; choose one with tags=.")
    elif sorted(wanted) not in sets:
        raise InvalidModelError(f"{os.fspath(path)}: no MetaGraph with tags {sorted(wanted)}; there are {sets}.")
    try:
        return tf.saved_model.load(os.fspath(path), tags=wanted)
    except Exception as error:
        text = str(error).strip().splitlines()
        raise InvalidModelError(
            f"{os.fspath(path)}: TensorFlow cannot load it ({type(error).__name__}: {text[0] if text else ''})."
        ) from error


def signature_names(restored: Any) -> list[str]:
    """Returns the names of a loaded model's signatures."""
    return sorted(getattr(restored, "signatures", {}) or {})


def signature(restored: Any, name: str, path: Any = "") -> Any:
    """Returns one signature's ConcreteFunction.

    Raises:
      InvalidModelError: there is none of that name.
    """
    names = signature_names(restored)
    if name not in names:
        shown = ", ".join(names) if names else "none; restored functions can be converted with convert_from_restored"
        raise InvalidModelError(f"{os.fspath(path)}: there is no signature {name!r}. Signatures: {shown}.")
    function = restored.signatures[name]
    # The signature holds its model only weakly; the variables must live as long as it does.
    function._tf2jax_lite_model = restored
    return function
