"""SavedModel directories: protos, tags, signatures, object graphs."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tf2jax_lite.frontend.graphdef import functions, protos
from tf2jax_lite.frontend.safety import unsafe_ops
from tf2jax_lite.frontend.safety.raw_protos import is_placed_elsewhere, without_devices
from tf2jax_lite.support.errors import InvalidModelError
from tf2jax_lite.support.limits import read_bytes, reading, regular

from .checkpoint_reader import Checkpoint, copying

_ALSO_OPENED = ("saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "debug/saved_model_debug_info.pb")
"""Files that TensorFlow opens in a model's directory besides variables and assets."""


def read_proto(path: str | os.PathLike[str]) -> Any:
    """Return the SavedModel proto of a directory."""
    directory = Path(path)
    if not directory.exists():
        raise InvalidModelError(f"{directory}: there is no such directory.")
    if not directory.is_dir():
        raise InvalidModelError(f"{directory}: not a directory; a SavedModel is a directory that holds saved_model.pb.")
    for name in _ALSO_OPENED:
        regular(directory / name)
    file = directory / "saved_model.pb"
    if not file.is_file():
        text = directory / "saved_model.pbtxt"
        if text.is_file():
            return _read_text(text)
        raise InvalidModelError(f"{directory}: holds no saved_model.pb, so it is not a SavedModel.")
    data = read_bytes(file)
    if not data:
        raise InvalidModelError(f"{file}: the file is empty.")
    try:
        proto = protos.message("SavedModel").FromString(data)
    except DecodeError as error:
        raise InvalidModelError(f"{file}: not a SavedModel proto, or cut short ({error}).") from error
    if not proto.meta_graphs:
        raise InvalidModelError(f"{file}: holds no MetaGraph.")
    return proto


def _read_text(file: Path) -> Any:
    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2  # text may have any field

    try:
        proto = text_format.Parse(read_bytes(file).decode(), saved_model_pb2.SavedModel())
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidModelError(f"{file}: not a SavedModel in text form ({error}).") from error
    if not proto.meta_graphs:
        raise InvalidModelError(f"{file}: holds no MetaGraph.")
    return proto


def tag_sets(proto: Any) -> list[list[str]]:
    """Return the tags of each MetaGraph."""
    return [sorted(graph.meta_info_def.tags) for graph in proto.meta_graphs]


def chosen_tags(path: str | os.PathLike[str], proto: Any, tags: Sequence[str] | str | None) -> list[str]:
    """Return the tags of the MetaGraph to use.

    The MetaGraph is the requested one, the only one, the one for serving, or the one without tags.
    """
    sets = tag_sets(proto)
    if tags is not None:
        wanted = sorted([tags] if isinstance(tags, str) else tags)
        if wanted not in sets:
            raise InvalidModelError(f"{os.fspath(path)}: no MetaGraph with tags {wanted}; there are {sets}.")
        return wanted
    for obvious in (sets[0] if len(sets) == 1 else None, ["serve"], []):  # Hub modules have one without tags
        if obvious is not None and obvious in sets:
            return obvious
    raise InvalidModelError(f"{os.fspath(path)}: several MetaGraphs, tags {sets}; choose one with tags=.")


class SavedModel:
    """A SavedModel, whose proto and checkpoint are read and checked once."""

    def __init__(self, path: str | os.PathLike[str], tags: Sequence[str] | str | None = None):
        self.path = path
        self._proto = read_proto(path)
        self._tags = chosen_tags(path, self._proto, tags)
        self.meta_graph = self._proto.meta_graphs[tag_sets(self._proto).index(self._tags)]

    @functools.cached_property
    def checkpoint(self) -> Checkpoint | None:
        """Its checkpoint, after the checks of `check_before_tensorflow`."""
        return check_before_tensorflow(self.meta_graph, self.path)

    def load(self, *, checkpoint: bool = True) -> Any:
        """Load it in TensorFlow.

        Args:
          checkpoint: restore the variables; otherwise they are not initialized.
        """
        import tensorflow as tf

        where = os.fspath(self.path)
        checked = self.checkpoint
        local = self._proto if is_placed_elsewhere(self.meta_graph.graph_def) else None
        place, holder = with_checked(self.path, checked if checkpoint else None, local)
        try:
            options = tf.saved_model.LoadOptions(experimental_skip_checkpoint=not checkpoint)
            restored = tf.saved_model.load(place, tags=self._tags, options=options)
        except Exception as error:
            text = str(error).replace(place, where).strip().splitlines()
            raise InvalidModelError(
                f"{where}: TensorFlow cannot load it ({type(error).__name__}: {text[0] if text else ''})."
            ) from error
        restored._tf2jax_lite_files = holder  # its functions may read assets at `place`
        return restored


def meta_graph(path: str | os.PathLike[str], tags: Sequence[str] | str | None = None) -> Any:
    """Return the MetaGraph of a SavedModel; see `SavedModel`."""
    return SavedModel(path, tags).meta_graph


def load(path: str | os.PathLike[str], tags: Sequence[str] | str | None = None) -> Any:
    """Load a SavedModel; see `SavedModel.load`."""
    return SavedModel(path, tags).load()


def with_checked(path: str | os.PathLike[str], checkpoint: Checkpoint | None, local: Any = None) -> tuple[str, Any]:
    """Return a directory of links to a model's files, and the object that keeps it.

    Args:
      path: the model's own directory, which is returned where nothing is to be replaced.
      local: the model's proto if its graph is to be without devices.
    """
    if checkpoint is None and local is None:
        return os.fspath(path), None
    with copying(os.fspath(path)):
        if checkpoint is None:
            holder: Any = tempfile.TemporaryDirectory(prefix="tf2jax_lite")
            place = Path(holder.name)
        else:
            holder, place = checkpoint, Path(checkpoint.checked_prefix).parent.parent
        replaced = ["variables"] if checkpoint is not None else []
        if local is not None:
            replaced += ["saved_model.pb", "saved_model.pbtxt"]
            (place / "saved_model.pb").write_bytes(_without_devices(local))
        for file in Path(path).resolve().iterdir():
            if file.name not in replaced:
                (place / file.name).symlink_to(file)
        return str(place), holder


def _without_devices(proto: Any) -> bytes:
    from tensorflow.core.protobuf import saved_model_pb2

    whole = saved_model_pb2.SavedModel.FromString(proto.SerializeToString())
    for graph in whole.meta_graphs:
        without_devices(graph.graph_def)
    return whole.SerializeToString()


def check_before_tensorflow(
    meta_graph: Any, path: str | os.PathLike[str], ends: Sequence[str] = ()
) -> Checkpoint | None:
    """Return the checkpoint of a model that TensorFlow may load.

    TensorFlow runs parts of a model, and aborts on some models.

    Args:
      ends: of a TF1 graph, nodes that are to run besides those of its signatures.
    """
    from tf2jax_lite.frontend.safety.unsafe_ops import reject_at_load

    with reading(os.fspath(path)):
        unsafe_ops.reject_unsafe_model(meta_graph, path, ends)
        functions.check(meta_graph.graph_def, os.fspath(path))
        reject_at_load(meta_graph, path)
        prefix = os.path.join(path, "variables", "variables")
        return Checkpoint(prefix) if os.path.exists(f"{prefix}.index") else None


def signature_names(restored: Any) -> list[str]:
    """Return the names of a loaded model's signatures."""
    found = getattr(restored, "signatures", None)
    return sorted(found) if isinstance(found, Mapping) else []  # a model may have a function called "signatures"


def signature(restored: Any, name: str, path: Any = "") -> Any:
    """Return one signature's ConcreteFunction."""
    names = signature_names(restored)
    if name not in names:
        known = ", ".join(names) if names else "none; restored functions can be converted with convert_from_restored"
        raise InvalidModelError(f"{os.fspath(path)}: there is no signature {name!r}. Signatures: {known}.")
    function = restored.signatures[name]
    # The signature has a weak reference to its model, whose variables must live as long as the signature.
    function._tf2jax_lite_model = restored
    return function


def trainable_nodes(object_graph: Any) -> set[int]:
    """Return a SavedModel's nodes of trainable variables.

    See `concrete.trainable.trained_variables`.
    """
    nodes = dict(enumerate(object_graph.nodes))
    children = {i: {child.local_name: child.node_id for child in node.children} for i, node in nodes.items()}

    def listed(node: int, *path: str) -> set[int] | None:
        for name in path:
            node = children.get(node, {}).get(name, -1)
        is_list = node in nodes and nodes[node].WhichOneof("kind") == "user_object"
        return set(children[node].values()) if is_list else None

    variables = {i for i, node in nodes.items() if node.WhichOneof("kind") == "variable"}
    complete = listed(0, "trainable_variables")
    if complete is not None:
        return variables & complete
    found = {i for i in variables if nodes[i].variable.trainable}
    for i in nodes:
        held, trained = listed(i, "variables"), listed(i, "trainable_variables")
        if held is not None and trained is not None:
            found -= (held | (listed(i, "keras_api", "states") or set())) - trained
    return found


def checkpointed(graph: Any, root: Any) -> Iterator[tuple[Any, str]]:
    """Yield loaded variables with their keys in the checkpoint.

    Both object graphs are walked in parallel, by the names of children.
    """
    pending, seen = [(root, 0)], set()
    while pending:
        item, number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        node = graph.nodes[number]
        for attribute in node.attributes:
            if attribute.name == "VARIABLE_VALUE":
                yield item, attribute.checkpoint_key
        children = item._trackable_children() if hasattr(item, "_trackable_children") else {}
        pending += [(children[c.local_name], c.node_id) for c in node.children if c.local_name in children]
