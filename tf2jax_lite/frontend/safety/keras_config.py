"""Check Keras files for code, files and sizes, before Keras opens them.

A configuration names classes and functions, and Keras calls them: Keras 3 those of its own package, tf_keras also those
of any module, of TensorFlow's API, and marshalled lambdas. `keras_names` lists those that only compute.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import math
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tf2jax_lite.frontend.graphdef.protos import message
from tf2jax_lite.ops import registry
from tf2jax_lite.support.config import current_config
from tf2jax_lite.support.errors import InputError, InvalidModelError, LimitError, UntrustedError
from tf2jax_lite.support.limits import MAX_JSON_BYTES, check_bytes, is_trusted, parse_json, reading

from . import keras_names

_KERAS = frozenset(keras_names.LIBRARIES)
# Keys with sizes of a layer's weights or results, whose product bounds the elements of one of them from below.
_SIZES = ("units", "filters", "input_dim", "output_dim", "num_heads", "key_dim")
_SIZE = re.compile(r"(.*_)?(dims?|filters|heads|height|length|n|num_mel_bins|shape|sizes?|units|width)")
# Numbers of entries of lists that Keras makes, and of operations that it repeats.
_REPEATED = ("chain_depth", "ngrams", "num_chains", "num_oov_indices", "num_ops", "power_iterations")
_IDENTIFIER = re.compile(r"(.*_)?(activation|constraint|initializer|regularizer)")
_FILES = ("ckpt_to_load_from", "filepath", "vocabulary", "vocabulary_file")
_JSON_MEMBERS = ("config.json", "metadata.json")
OWN_LAYERS = "If it has layers of a package, load it with custom_objects= and convert the loaded model."
_IMPORTED = "would be imported"
_UNKNOWN = "Unknown"
_NO_CLASS = "is neither a layer nor another object of Keras that only computes"
_MOST_PACKED = 1100  # the maximum compression ratio of deflate
_SMALL = 1 << 16

Finding = tuple[str, str]


def reject_code(path: Path) -> list[str]:
    """Raise an error for a Keras file that makes Keras run code or read other files.

    Returns:
      The modules of custom layers that the file names and ``config.trusted`` allows.
    """
    found: dict[str, str] = {}
    modules: dict[str, None] = {}
    unknown: dict[str, str] = {}
    with reading(str(path)):
        configs = list(_configs(path))
        for name, why in (finding for item in _dicts(configs) for finding in _code_of(item)):
            if why.startswith(_UNKNOWN):
                unknown.setdefault(name, why)
            elif not is_trusted(name):
                found.setdefault(name, why)
            elif why.startswith(_IMPORTED):
                modules[name] = None
    if found:
        names = ",".join(sorted(found))
        lines = "".join(f"\n  {name}: {why}" for name, why in sorted(found.items()))
        raise UntrustedError(
            f"{path}: the model's configuration has more than plain layers:{lines}\nIf you trust the file, allow it by "
            f'name: override_config("trusted", {names!r}) (import a module with layers first).'
        )
    if unknown:
        name, why = next(iter(unknown.items()))
        raise InvalidModelError(f"{path}: not a model that Keras loads ({why}: {name!r}). {OWN_LAYERS}")
    with reading(str(path)):
        for item in _dicts(configs):
            _check_sizes(item, path)
            check_nodes(item, str(path))
        _check_weights(path)
    return list(modules)


@contextlib.contextmanager
def imported(modules: Iterable[str]) -> Iterator[None]:
    """Import modules and make their objects known to Keras in the ``with`` block.

    Keras finds registered objects of an imported module; ``custom_objects`` has the others.
    """
    objects: dict[str, Any] = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except Exception as error:  # a module may raise any error
            text = " ".join(str(error).split())
            raise InputError(f"module {name!r} cannot be imported ({type(error).__name__}: {text[:300]})") from error
        package = name.split(".")[0]
        for key, value in vars(module).items():
            if callable(value) and str(getattr(value, "__module__", "")).split(".")[0] == package:
                objects[key] = value
    with contextlib.ExitStack() as stack:
        for library in ("keras", "tf_keras"):
            saving = getattr(sys.modules.get(library), "saving", None)
            if saving is not None and objects:
                stack.enter_context(saving.custom_object_scope(objects))
        yield


@contextlib.contextmanager
def bounded_weights(path: Path) -> Iterator[None]:
    """Bound the bytes of the weights that Keras creates in the ``with`` block.

    Keras creates all weights before it reads any; a file of 1 kB can ask for more than the memory holds. The weights of
    a whole model are in its file: they take at most twice its size, or ``config.max_constant_bytes``.
    """
    import tensorflow as tf

    limit = max(current_config().max_constant_bytes, 2 * path.stat().st_size)
    total = 0
    refused: LimitError | None = None

    def creator(following: Any, **options: Any) -> Any:
        nonlocal total, refused
        shape, dtype = _shape_and_dtype(options)
        total += math.prod(int(size) for size in shape) * tf.as_dtype(dtype).size
        if total > limit:
            refused = LimitError(
                f"{path}: the weights up to {options.get('name')!r} of shape {list(shape)[:8]} take {total} bytes; "
                f"max_constant_bytes allows {limit}. Raise it if you trust the model."
            )
            raise refused
        return following(**options)

    try:
        with tf.variable_creator_scope(creator):
            yield
    except Exception as error:  # Keras rewrites errors of layers
        if refused is not None:
            raise refused from error
        raise


def _shape_and_dtype(options: dict[str, Any]) -> tuple[Any, Any]:
    """Return a variable's shape and dtype from the arguments of ``tf.Variable``."""
    import tensorflow as tf

    value: Any = options.get("initial_value")
    shape = tf.TensorShape(options.get("shape"))  # type: ignore[arg-type]
    dtype = options.get("dtype")
    if callable(value) and not (shape.is_fully_defined() and dtype):
        for cell in getattr(value, "__closure__", None) or ():  # of Keras 3, which gives no shape
            held = cell.cell_contents
            if type(held).__module__.startswith("keras.src.backend"):
                return held.shape, held.dtype
        with tf.Graph().as_default():
            value = tf.convert_to_tensor(value())  # type: ignore[arg-type]
    if not callable(value):
        value = value if hasattr(value, "shape") else np.asarray(value)
        shape, dtype = value.shape, dtype or value.dtype
    return shape, dtype


def _configs(path: Path) -> Iterator[Any]:
    """Yield the file's configurations: one that is both an archive and HDF5 has two."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename not in _JSON_MEMBERS:
                    continue
                where = f"{path}: {member.filename}"
                if member.file_size > MAX_JSON_BYTES:
                    raise InvalidModelError(f"{where}: {member.file_size} bytes; at most {MAX_JSON_BYTES} are read.")
                content = parse_json(archive.read(member), where)
                if member.filename == "config.json":
                    yield content
    with _hdf5(path) as file:
        if file is not None and "model_config" in file.attrs:
            _check_attributes(path, file)
            yield parse_json(file.attrs["model_config"], f"{path}: model_config")


def _check_weights(path: Path) -> None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".h5"):
                    most = max(current_config().max_constant_bytes, 2 * path.stat().st_size)
                    check_bytes([member.file_size], 1, f"{path}: {member.filename}", limit=most)
                    with _hdf5(io.BytesIO(archive.read(member))) as file:  # seeking in an archive is slow
                        _check_arrays(path, file)
    with _hdf5(path) as file:
        _check_arrays(path, file)


@contextlib.contextmanager
def _hdf5(source: Any) -> Iterator[Any]:
    """Open an HDF5 file; None if it is none."""
    # None as well without h5py: Keras cannot read it either.
    try:
        import h5py

        file = h5py.File(source, "r")
    except (ImportError, OSError):
        yield None
        return
    with file:
        yield file


def _check_arrays(path: Path, file: Any) -> None:
    """Raise an error for arrays in other files, or larger than the file."""
    # Keras reads arrays and attributes whole.
    import h5py

    stack, seen = [] if file is None else [file], set()
    while stack:
        group = stack.pop()
        _check_attributes(path, group)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise InvalidModelError(f"{path}: {name!r} in {group.name} is a link.")
            child = group[name]
            address = h5py.h5o.get_info(child.id).addr
            if address in seen:
                continue
            seen.add(address)
            if isinstance(child, h5py.Group):
                stack.append(child)
            elif isinstance(child, h5py.Dataset):
                if child.external or child.is_virtual:
                    raise InvalidModelError(f"{path}: {child.name} is in another file.")
                held = child.id.get_storage_size()
                if child.nbytes > _MOST_PACKED * held + _SMALL:
                    raise InvalidModelError(f"{path}: {child.name} declares {child.nbytes} bytes and has {held}.")
                _check_strings(path, str(child.name), child.id)


def _check_attributes(path: Path, item: Any) -> None:
    for name in item.attrs:
        _check_strings(path, f"{item.name}: {name}", item.attrs.get_id(name))


def _check_strings(path: Path, name: str, item: Any) -> None:
    """Raise an error for strings that may unpack to very much."""
    # All of them may be one and the same in the file.
    if item.dtype.hasobject and math.prod(item.shape) > 1:
        check_bytes(item.shape, path.stat().st_size, f"{path}: strings of variable length in {name}")


def _dicts(config: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a configuration."""
    stack = [config]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def _check_sizes(item: dict[str, Any], path: Path) -> None:
    """Raise an error for sizes of a layer that no memory holds."""
    # `bounded_weights` counts weights; this is for arrays besides, and for sizes beyond 64 bits.
    what = f"{path}: the layer {item.get('name')!r}"
    sizes = [item[key] for key in _SIZES if type(item.get(key)) is int]
    if sizes and min(sizes) > 0:
        check_bytes(sizes, 2, f"{what} with weights")
    for key, value in item.items():
        if _SIZE.fullmatch(key):
            for sizes in _shapes(value):
                check_bytes(sizes, 2, f"{what}: {key}")
        elif key in _REPEATED and isinstance(value, int) and value > current_config().max_nodes:
            raise LimitError(
                f"{what} has {key}={value}; max_nodes allows {current_config().max_nodes}. Raise it if you trust the "
                "model."
            )


def _shapes(value: Any) -> Iterator[list[int]]:
    """Yield the positive sizes of a size, a shape, or several shapes."""
    items = value if isinstance(value, list) else [value]
    yield [item for item in items if type(item) is int and item > 0]
    for item in items:
        if isinstance(item, list):
            yield from _shapes(item)


def _code_of(item: dict[str, Any]) -> Iterator[Finding]:
    """Yield name and reason of each object that does not only compute."""
    for key, value in item.items():
        if isinstance(key, str) and key.endswith("_type") and value in ("lambda", "function"):
            yield "Lambda", f"{key.removesuffix('_type')!r} holds code that would be run"
        elif key in _FILES and (path := _path_of(value)) is not None:
            yield path, f"is a file outside of the model that a {key} would be read from"
        elif isinstance(value, str) and _IDENTIFIER.fullmatch(key) and not _is_identifier(value):
            yield value, f"{_UNKNOWN} {key}"
    if "class_name" in item:
        yield from _object(item)


def _is_identifier(name: str) -> bool:
    return keras_names.is_identifier(name) or _is_registered(name)


def _path_of(value: Any) -> str | None:
    """Return the path that a value is; None for a list of words, an array or nothing."""
    if isinstance(value, dict) and value.get("class_name") == "__bytes__":
        value = value.get("value", value.get("config"))
        return str(value.get("value") if isinstance(value, dict) else value)
    return value if isinstance(value, str) else None


def _object(item: dict[str, Any]) -> Iterator[Finding]:
    """Yield the findings of an object: a class or a function."""
    kind, config, module = item["class_name"], item.get("config"), item.get("module")
    registered = item.get("registered_name")
    if not isinstance(kind, str) or not isinstance(module, str | None) or not isinstance(registered, str | None):
        yield str(kind), _NO_CLASS
        return
    for name in (kind, registered or ""):
        last = re.split("[>.]", name)[-1]  # tf_keras also looks up `outer.inner`
        if last in keras_names.CODE:
            yield last, "layers of this class hold code that would be run"
    name = kind
    if kind == "function":
        name = str(config)
    elif kind == "__typespec__":
        name = str(item.get("spec_name"))
    if _is_registered(name) or _is_registered(registered):
        return
    if kind in keras_names.FUNCTION_LAYERS | keras_names.METHOD_LAYERS | {"TensorFlowOpLayer"}:
        yield from _call(kind, config if isinstance(config, dict) else {})
    elif kind == "__typespec__" and (module or "").split(".")[0] == "tensorflow":
        if name not in keras_names.TYPE_SPECS:
            yield name, _NO_CLASS
    elif kind == "function":
        yield from _function(name, module or "builtins", registered)
    elif module is not None and module.split(".")[0] not in _KERAS:
        yield module, f"{_IMPORTED}, for {name!r}"
    elif not keras_names.is_class(name, module):
        if module is None and re.fullmatch(r"(\w+>)*[A-Z]\w*", name) and not keras_names.is_known_layer(name):
            yield name, f"{_UNKNOWN} layer"
        elif name not in keras_names.CODE:
            yield f"{module}.{name}" if module else name, _NO_CLASS
    elif registered is not None and ">" not in registered and not keras_names.is_class(registered, module):
        yield registered, _NO_CLASS


def _function(name: str, module: str, registered: str | None) -> Iterator[Finding]:
    if module != "builtins" and module.split(".")[0] not in _KERAS:
        yield module, f"{_IMPORTED}, for {name!r}"
    elif module == "builtins" and hasattr(builtins, name):
        yield f"builtins.{name}", "is a function of Python's"
    else:
        for called in {name, registered or name} - {"function"}:
            if not keras_names.is_function(called, module) and ">" not in called:
                yield f"{module}.{called}", "is no function that only computes"


def _call(kind: str, config: dict[str, Any]) -> Iterator[Finding]:
    """Yield what a layer would call, unless it only computes."""
    if kind in keras_names.FUNCTION_LAYERS:
        name = config.get("function")
        if not keras_names.computes_in_tensorflow(name):
            yield str(name), f"is no function of TensorFlow that only computes, and a {kind} would call it"
    elif kind in keras_names.METHOD_LAYERS:
        if not keras_names.is_tensor_method(config):
            parts = [str(config[key]) for key in ("cls_symbol", "method_name", "attr_name") if key in config]
            yield ".".join(parts), f"is no method of tensors that only computes, and a {kind} would call it"
    else:
        node = config.get("node_def")
        if isinstance(node, str):
            parsed = message("GraphDef")().node.add()
            parsed.ParseFromString(node.encode())
            node = {"op": parsed.op}
        op = node.get("op") if isinstance(node, dict) else None
        if not isinstance(op, str) or registry.lookup(op) is None:
            yield str(op), f"is no op that only computes, and a {kind} would run it"


def _is_registered(name: Any) -> bool:
    """Return whether an object of that name is registered with Keras."""
    # Then no module is imported for it. Keras 3 also finds ``package>name`` by the name alone.
    if not isinstance(name, str):
        return False
    for library in keras_names.LIBRARIES:
        saving = getattr(sys.modules.get(library), "saving", None)
        if saving is not None:
            if saving.get_registered_object(name) is not None:
                return True
            if any(known.endswith(f">{name}") for known in saving.get_custom_objects()):
                return True
    return False


_CONSTANT = "_CONSTANT_VALUE"  # in place of a layer's name in nodes of tf_keras


def check_nodes(item: dict[str, Any], where: str) -> None:
    """Raise an error for calls on constants alone, or that wait for each other.

    A call on constants computes at once, with any arguments; no layer of a model that Keras saved has one. Calls on
    results of other layers are traced, and compute nothing. For calls that wait for each other tf_keras does not end.
    """
    nodes = item.get("inbound_nodes")
    for node in nodes if isinstance(nodes, list) else ():
        if not _is_symbolic(node):
            raise InvalidModelError(f"{where}: the layer {item.get('name')!r} is called on no result of another layer.")
    layers = item.get("layers")
    if isinstance(layers, list):
        waiting = _waiting([layer for layer in layers if isinstance(layer, dict)])
        if waiting:
            raise InvalidModelError(f"{where}: the layer {waiting[0]!r} is called on a result that no layer has.")


def _is_symbolic(node: Any) -> bool:
    """Return whether an argument of a layer has a result of another layer."""
    # It looks where Keras does.
    if isinstance(node, dict):
        if "class_name" in node:
            return node["class_name"] == "__keras_tensor__"
        return any(_is_symbolic(value) for value in node.values())
    if not isinstance(node, list):
        return False
    if _is_reference(node):
        if node[0] != _CONSTANT and type(node[1]) is type(node[2]) is int:
            return True
        return len(node) == 4 and isinstance(node[3], dict) and _is_symbolic(node[3])
    return any(_is_symbolic(value) for value in node)


def _is_reference(node: list[Any]) -> bool:
    """Return whether a list is ``[layer, call, result]``, perhaps with keywords."""
    return 3 <= len(node) <= 4 and isinstance(node[0], str)


def _references(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers, and the numbers of their calls, whose results a call gets."""
    if isinstance(node, list):
        if _is_reference(node):
            if node[0] != _CONSTANT:
                yield node[0], node[1]
            node = node[3:]
        for value in node:
            yield from _references(value)
    elif isinstance(node, dict) and "class_name" not in node:
        for value in node.values():
            yield from _references(value)


def _waiting(layers: list[dict[str, Any]]) -> list[Any]:
    """Return the layers with calls that can never be made."""
    # tf_keras makes those of a layer in order, when all inputs exist.
    calls: dict[Any, list[Any]] = {}
    exist: dict[Any, range] = {}
    for layer in layers:
        name, nodes, kind = layer.get("name"), layer.get("inbound_nodes"), layer.get("class_name")
        if isinstance(name, str) and isinstance(nodes, list):
            calls.setdefault(name, []).extend(list(_references(node)) for node in nodes)
            # A model's first call is that on its own inputs. That of a Sequential may not exist.
            first, made = (1, 1) if kind in ("Functional", "Model") else (0, 1 if kind == "Sequential" else 0)
            exist[name] = range(first, made) if kind != "InputLayer" else range(1 << 62)
    progress = True
    while progress:
        progress = False
        for name, nodes in calls.items():
            while nodes and all(type(at) is int and at in exist.get(other, range(1 << 62)) for other, at in nodes[0]):
                nodes.pop(0)
                exist[name] = range(exist[name].start, exist[name].stop + 1)
                progress = True
    return [name for name, nodes in calls.items() if nodes]
