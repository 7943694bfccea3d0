"""The Python line that made a node, where TensorFlow recorded it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tf2jax_lite import ir

from .targets import Target

# Code of the libraries themselves: the user's line is the innermost one that is not in them.
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("tensorflow", "keras", "tf_keras", "tf2jax_lite"))


def locate(target: Target, node: ir.Node, function: str) -> str | None:
    """Return ``file:line`` for a node of a function, or None."""
    if node.location:
        return node.location
    if target.path is not None and target.path.is_dir():
        return _saved(target.path, node.name, function)
    function = re.sub(r"/[a-z]+_\d+$", "", function)  # of the versions that passes make of one
    graph = _graph(target.concrete.graph, function) or target.concrete.graph
    try:
        traceback = graph.get_operation_by_name(node.name).traceback
    except (KeyError, ValueError, AttributeError):
        return None
    return _users([(frame.filename, frame.lineno) for frame in traceback or ()])


def _graph(graph: Any, name: str) -> Any:
    pending, seen = [graph], set()
    while pending:
        for known, function in getattr(pending.pop(), "_functions", {}).items():
            key = known.decode() if isinstance(known, bytes) else known
            inner = getattr(function, "graph", None)
            if key == name:
                return inner
            if key not in seen and inner is not None:
                seen.add(key)
                pending.append(inner)
    return None


def _users(frames: Sequence[tuple[str, int]]) -> str | None:
    """Return the innermost frame (the last) that is a user's, else None."""
    for file, line in reversed(frames):
        if not any(part in file for part in _LIBRARIES) and not file.startswith("<"):
            return f"{file}:{line}"
    return None


def _saved(path: Path, node: str, function: str) -> str | None:
    """Return a location in the SavedModel's debug info, by unsuffixed function."""
    info = _debug_info(path)
    if info is None:
        return None
    found = {}
    for key, number in info.name_to_trace_id.items():
        name, _, where = key.partition("@")
        if name == node and number in info.traces_by_id:
            found[_base(where)] = info.traces_by_id[number]
    for key, trace in info.traces.items():  # as older versions wrote it
        name, _, where = key.partition("@")
        if name == node:
            found[_base(where)] = trace
    trace = found.get(_base(function)) or (next(iter(found.values())) if len(found) == 1 else None)
    if trace is None:
        return None
    lines = [*trace.file_line_cols, *(info.frames_by_id[i] for i in trace.frame_id if i in info.frames_by_id)]
    return _users([(info.files[f.file_index], f.line) for f in lines if 0 <= f.file_index < len(info.files)])


def _base(function: str) -> str:
    return re.sub(r"_\d+$", "", function)


@functools.lru_cache(maxsize=4)
def _debug_info(path: Path) -> Any:
    from tensorflow.core.framework import graph_debug_info_pb2

    file = path / "debug" / "saved_model_debug_info.pb"
    if not file.is_file():
        return None
    try:
        return graph_debug_info_pb2.GraphDebugInfo.FromString(file.read_bytes())
    except DecodeError:
        return None
