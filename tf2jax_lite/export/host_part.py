"""The part of a split model that stays in TensorFlow, in the artifact of its core.

A signature's entry ``host`` names the file with its graph, the graph's arguments, and the core's inputs that it
computes. Only reading and running it need TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.calling.interface import Interface
from tf2jax_lite.support.errors import ExportError, MissingLibraryError
from tf2jax_lite.support.limits import read_bytes, reading

from .hub import local_artifact
from .interface_json import decode_interface, encode_interface
from .metadata import artifact_file, check_hashes, named_signature, read_metadata
from .reader import fitting_arrays, placed_arrays

HostPart = Callable[..., dict[str, np.ndarray]]


def write_host(host: Any, file: Path) -> dict[str, Any]:
    """Write the host part of a converted function; return its entry in the metadata.

    Args:
      host: the ``HostFunction``.
      file: to write.

    Raises:
      UnsupportedError: it reads a resource that cannot be stored.
    """
    graph, arguments = host.frozen()
    file.write_bytes(graph.serialized())
    names = {spec.index: name for name, spec in host.interface.tensors().items()}
    return {
        "file": file.name,
        "interface": encode_interface(host.interface),
        "feeds": [[name, names[spec.index]] for name, spec in zip(graph.feeds, arguments, strict=True)],
        "effects": list(graph.effects),
        "setup": list(graph.setup),
        "core_inputs": [{"name": t.name, "tensor": t.tensor, "op": t.op} for t in host.cut],
    }


def load_host(path: str | Path, signature: str | None = None, *, verify_hashes: bool = True) -> HostPart:
    """Load the part of a split model that computes its core's inputs in TensorFlow.

    ``tf2jax-lite convert --split-host`` stores it in the core's artifact. Its graph runs without Python code.

    Args:
      path: the artifact, as for `load`.
      signature: name of the function; default: the only one, or ``serving_default``.
      verify_hashes: compare files with the hashes in the metadata.

    Returns:
      ``host_fn(*args, **kwargs)``: the core's inputs by name, as numpy arrays, from the model's, such as strings.

    Raises:
      ExportError: the artifact is damaged, or has no such part.
      MissingLibraryError: TensorFlow is not installed.
      UntrustedError: its graph runs code or touches files.

    Example:
      >>> host_fn, (fn, params) = tf2jax.load_host("OUT"), tf2jax.load("OUT")
      >>> results, params = fn(params, **host_fn(text=["a good film"]))
    """
    folder = local_artifact(path)
    with reading(str(folder), ExportError):
        metadata = read_metadata(folder)
        name, entry = named_signature(metadata, signature)
        if "host" not in entry:
            raise ExportError(f"{folder}: {name!r} has no part that runs in TensorFlow; load() returns all of it.")
        if verify_hashes:
            check_hashes(folder, metadata)
        return read_host(folder, metadata, entry)


def read_host(folder: Path, metadata: Mapping[str, Any], entry: Mapping[str, Any]) -> HostPart:
    """Return the host part that a signature's entry describes, see `load_host`."""
    part = entry["host"]
    interface = host_interface(entry)
    try:
        feeds = [(str(placeholder), interface.tensors()[argument]) for placeholder, argument in part["feeds"]]
        cut = [(item["name"], item["tensor"], item["op"]) for item in part["core_inputs"]]
        names = {key: [str(text) for text in part[key]] for key in ("effects", "setup")}
        names["results"] = [str(tensor) for _, tensor, op in cut if op]
        if [name for name, _, _ in cut] != [item["name"] for item in entry["inputs"]]:
            raise ValueError("its results are not the inputs of the function")
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{folder}: the host part cannot be read: {type(error).__name__}: {error}") from error
    file = artifact_file(folder, metadata, part.get("file"))
    is_first = "tensorflow" not in sys.modules
    try:
        from tf2jax_lite.frontend.runtime import gpu_memory, host_function
    except ImportError as error:
        raise MissingLibraryError(
            f"{folder} has a part that runs in TensorFlow: pip install tensorflow ({error}). Without it, give the "
            f"inputs of the core: {', '.join(name for name, _, _ in cut)}."
        ) from error
    if is_first:
        gpu_memory.hide_gpu_from_tensorflow()  # it would take the memory that JAX needs
    shapes = {item["name"]: item for item in entry["inputs"]}
    tensors = [
        host_function.BoundaryTensor(name, tensor, op, np.dtype(shapes[name]["dtype"]), None)
        for name, tensor, op in cut
    ]
    return host_function.stored_host(read_bytes(file), str(file), interface, feeds, tensors, **names)


def host_interface(entry: Mapping[str, Any]) -> Interface:
    """Return the interface of a signature's host part."""
    part = entry["host"]
    if not isinstance(part, Mapping):
        raise ExportError("the metadata's host part is not an object")
    return decode_interface(part.get("interface"))


def core_arrays(folder: Path, signature: str | None, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arrays that a function of an artifact takes.

    If they are the arguments of its host part, that one runs.
    """
    with reading(str(folder), ExportError):
        metadata = read_metadata(folder)
        _, entry = named_signature(metadata, signature)
        if "host" not in entry:
            return arrays
        has_texts = any(np.asarray(array).dtype.kind in "OSUT" for array in arrays.values())
        interface, core = host_interface(entry), {item["name"] for item in entry["inputs"]}
        if not has_texts and (arrays.keys() == core or not arrays.keys() <= interface.tensors().keys()):
            return arrays
        check_hashes(folder, metadata)
        host = read_host(folder, metadata, entry)
    return call_host(host, interface, arrays)


def call_host(host: HostPart, interface: Interface, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the core's inputs from the host part's, which are arrays by name."""
    args, kwargs = placed_arrays(interface, fitting_arrays(interface, None, arrays))
    return host(*args, **kwargs)
