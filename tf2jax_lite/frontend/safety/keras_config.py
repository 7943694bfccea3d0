"""Check of Keras files for code and outside references, before Keras opens them.

Keras 3 only imports Keras, and has a safe mode. tf_keras, for files that Keras 3 cannot read, imports any module that a
configuration names, calls functions of it, and runs marshalled lambdas of ``.h5`` files without a safe mode.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tf2jax_lite.support.errors import InputError, InvalidModelError, UntrustedError
from tf2jax_lite.support.limits import check_bytes, is_trusted, reading

__all__ = ["imported", "reject_code"]

# Classes whose configuration is code: a marshalled function, a torch pickle, or another SavedModel.
_CODE = frozenset({"Lambda", "__lambda__", "TorchModuleWrapper", "JaxLayer", "FlaxLayer", "TFSMLayer"})
_KERAS = frozenset({"keras", "tf_keras", "keras_hub", "keras_cv", "keras_nlp"})
# Modules of functions in configurations, such as activations, which are called with tensors only.
_FUNCTIONS = frozenset(
    {"activations", "constraints", "initializers", "losses", "metrics", "optimizers", "regularizers", "ops", "nn"}
)
# Sizes of a layer's weights: a layer has at least their product of elements, of at least two bytes.
_SIZES = ("units", "filters", "input_dim", "output_dim", "num_heads", "key_dim")
_IMPORTED = "would be imported"
_MOST_CONFIG = 256 * 1024**2
_MOST_PACKED = 1100  # the maximum compression ratio of deflate
_SMALL = 1 << 16


def reject_code(path: Path) -> list[str]:
    """Raise an error for a Keras file that makes Keras run code or read other files.

    Args:
      path: the file.

    Returns:
      The modules of custom layers that the file names and ``config.trusted`` allows.

    Raises:
      UntrustedError: a layer contains code, an object belongs to a module outside Keras and is not registered, or a
        vocabulary is another file; and ``config.trusted`` does not name the class, the module or the file.
      InvalidModelError: the file's configuration is damaged, or an array of an HDF5 file is in another file, or does
        not have the size that it declares.
      LimitError: a layer's weights exceed ``config.max_constant_bytes``: Keras allocates them before it reads any.
    """
    found: dict[str, str] = {}
    modules: dict[str, None] = {}
    with reading(str(path)):
        for text in _configs(path):
            config = json.loads(text)
            _check_sizes(config)
            for name, why in _code_in(config):
                if is_trusted(name):
                    if why.startswith(_IMPORTED):
                        modules[name] = None
                else:
                    found.setdefault(name, why)
    if found:
        names = ",".join(sorted(found))
        lines = "".join(f"\n  {name}: {why}" for name, why in sorted(found.items()))
        raise UntrustedError(
            f"{path}: the model's configuration has more than plain layers:{lines}\nIf you trust the file, allow it by "
            f'name: override_config("trusted", {names!r}), or --trust (of a module with layers also --import).'
        )
    return list(modules)


@contextlib.contextmanager
def imported(modules: Iterable[str]) -> Iterator[None]:
    """Import modules and make their objects known to Keras in the ``with`` block.

    Keras finds registered objects of an imported module; ``custom_objects`` has the others.

    Args:
      modules: their names.

    Raises:
      InputError: a module cannot be imported.
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


def _configs(path: Path) -> Iterator[str | bytes]:
    """Yield the file's configurations: one that is both an archive and HDF5 has two."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename == "config.json":
                    if member.file_size > _MOST_CONFIG:
                        raise InvalidModelError(f"{path}: the configuration is too large.")
                    yield archive.read(member)
    try:
        import h5py
    except ImportError:
        return  # Keras cannot read it either
    if h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            config = file.attrs.get("model_config")
            if config is not None:
                yield config
            _check_arrays(path, file)


def _check_arrays(path: Path, file: Any) -> None:
    """Raise an error for arrays in other files, or larger than the file.

    Keras reads arrays whole.
    """
    import h5py

    stack, seen = [file], set()
    while stack:
        group = stack.pop()
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


def _check_sizes(config: Any) -> None:
    for item in _dicts(config):
        sizes = [item[key] for key in _SIZES if type(item.get(key)) is int]
        if sizes and min(sizes) > 0:
            check_bytes(sizes, 2, f"the layer {item.get('name')!r} with weights")


def _code_in(config: Any) -> Iterator[tuple[str, str]]:
    """Yield the name to trust, and the reason, of each object that is not plain Keras."""
    for item in _dicts(config):
        yield from _code_of(item)


def _code_of(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    # tf_keras also looks up `registered_name`, and `outer.inner`.
    names = [item[key] for key in ("class_name", "registered_name") if isinstance(item.get(key), str)]
    for name in names:
        last = re.split("[>.]", name)[-1]
        if last in _CODE:
            yield last, "layers of this class hold code that would be run"
    for key, value in item.items():
        if value == "lambda" and isinstance(key, str) and key.endswith("_type"):
            yield "Lambda", f"{key.removesuffix('_type')!r} holds code that would be run"
    vocabulary = item.get("vocabulary")
    if isinstance(vocabulary, str):
        yield vocabulary, "is a file outside of the model that a vocabulary would be read from"
    module = item.get("module")
    if isinstance(module, str) and "class_name" in item:
        yield from _foreign(item, module)


def _foreign(item: dict[str, Any], module: str) -> Iterator[tuple[str, str]]:
    """Yield the objects of a configuration that are foreign to Keras.

    They are neither Keras classes nor functions meant for configurations.
    """
    kind, inner = item["class_name"], item.get("config")
    package, last = module.split(".")[0], module.split(".")[-1]
    name = str(inner if kind == "function" else item.get("spec_name") if kind == "__typespec__" else kind)
    if kind == "__typespec__" and package == "tensorflow":
        return
    if _is_registered(name) or _is_registered(item.get("registered_name")):
        return
    if kind == "function" and module == "builtins":
        if hasattr(builtins, name):
            yield f"builtins.{name}", "is a function of Python's"
    elif package not in _KERAS:
        yield module, f"{_IMPORTED}, for {name!r}"
    elif kind == "function":
        if last not in _FUNCTIONS:
            yield f"{module}.{name}", "is no function that layers take"
    elif not re.fullmatch(r"(\w+>)*_*[A-Z]\w*", name):
        # Keras calls any object that is not a class with the arguments in the file.
        yield f"{module}.{name}", "is no layer"


def _is_registered(name: Any) -> bool:
    """Return whether an object of that name is registered with Keras.

    The module of a registered object is not imported.
    """
    for library in ("keras", "tf_keras"):
        saving = getattr(sys.modules.get(library), "saving", None)
        if saving is not None and isinstance(name, str) and saving.get_registered_object(name) is not None:
            return True
    return False
