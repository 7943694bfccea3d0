"""OpDefs by name, with or without TensorFlow.

``op_list.zlib`` has the OpDefs of TensorFlow 2.21 without their texts: a compressed OpList. It serves while TensorFlow
is not imported. For an op that it lacks, such as one of a newer TensorFlow or of another package, TensorFlow is
imported.
``python -m tf2jax_lite.frontend.graphdef.op_list FILE`` writes the file.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import zlib
from importlib import resources
from pathlib import Path
from typing import Any

from . import protos

_REGISTRY = "tensorflow.python.framework.op_def_registry"
_FILE = "op_list.zlib"


def op_def(op: str) -> Any:
    """Return the OpDef of an op; None if TensorFlow has none."""
    if "tensorflow" not in sys.modules:
        found = own_op_defs().get(op)
        if found is not None or importlib.util.find_spec("tensorflow") is None:
            return found
    return importlib.import_module(_REGISTRY).get(op)


@functools.cache
def own_op_defs() -> dict[str, Any]:
    """Return the OpDefs of ``op_list.zlib`` by name."""
    data = zlib.decompress(resources.files(__package__ or "").joinpath(_FILE).read_bytes())
    return {found.name: found for found in protos.own_messages()["OpList"].FromString(data).op}


def compressed_op_list() -> bytes:
    """Return the contents of ``op_list.zlib``, from TensorFlow's registry."""
    session = importlib.import_module("tensorflow.python.client.pywrap_tf_session")
    written = session.TF_GetBuffer(session.TF_GetAllOpList())
    listed = protos.own_messages()["OpList"].FromString(written)
    listed.DiscardUnknownFields()  # texts, and others that are not read
    return zlib.compress(listed.SerializeToString(deterministic=True), 9)


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(compressed_op_list())
