"""Bodies of requests to arrays, and results to bodies.

The forms are those of KServe V2 and of TensorFlow Serving's REST. All checks of a request's form are here; errors name
the field.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf2jax_lite.support.errors import InputError

from .function import ServedFunction, Tensor

MAX_NAMES = 100
"""Maximum number of inputs and of outputs that a request names."""
_MAX_RANK = 64  # NumPy's
_MAX_SIZE = 1 << 31
_DATATYPES = {
    **{f"{'U' * (kind == 'u')}INT{8 * size}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)},
    **{f"FP{8 * size}": f"f{size}" for size in (2, 4, 8)},
    "BOOL": "?",
    "BYTES": "O",
}
_TF_TYPES = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bool": "DT_BOOL",
    "object": "DT_STRING",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """Arrays of a request.

    Attributes:
      arrays: by name.
      fields: the field that holds each.
      outputs: names of the results that are wanted, and whether they are binary; all if empty.
      by_row: of TensorFlow Serving, whether predictions are by example.
      id: of KServe, the client's name for the request.
    """

    arrays: Mapping[str, np.ndarray]
    fields: Mapping[str, str]
    outputs: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    by_row: bool = False
    id: str | None = None

    def field(self, name: str) -> str:
        """Return the field that holds an input."""
        return self.fields.get(name, next(iter(self.fields.values()), name))


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object that a body holds.

    Raises:
      InputError: it is no JSON object.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {str(error)[:200]}.") from None
    if not isinstance(found, dict):
        raise InputError(f"the body is a JSON object, not {_kind(found)}.")
    return found


def parse_v2(body: bytes, header_length: str | None, function: ServedFunction) -> Request:
    """Return a request of KServe V2, with Triton's binary data.

    Args:
      body: JSON, and the bytes of binary inputs after it.
      header_length: of ``Inference-Header-Content-Length``, the size of the JSON; None for all.
      function: the function that runs.

    Raises:
      InputError: a field is missing or of another form.
    """
    length = len(body)
    if header_length is not None:
        if not header_length.isdecimal() or int(header_length) > len(body):
            raise InputError("Inference-Header-Content-Length is the size of the body's JSON in bytes.")
        length = int(header_length)
    found, binary = parse_json(body[:length]), memoryview(body)[length:]
    inputs = _of_kind(found.get("inputs"), list, "inputs")
    if not inputs or len(inputs) > MAX_NAMES:
        raise InputError(f"inputs has {len(inputs)} entries; it has one for each input of the model.")
    arrays, fields = {}, {}
    for number, entry in enumerate(inputs):
        where = f"inputs[{number}]"
        name = _of_kind(_of_kind(entry, dict, where).get("name"), str, f"{where}.name")
        if name in arrays:
            raise InputError(f"{where}.name is {name[:100]!r} a second time.")
        fields[name] = f"{where} ({name[:100]!r})"
        arrays[name], binary = _v2_array(entry, where, binary)
    if len(binary):
        raise InputError(f"the body has {len(binary)} bytes after the binary data of its inputs.")
    request_id = found.get("id")
    if request_id is not None:
        _of_kind(request_id, str, "id")
    return Request(arrays, fields, _v2_outputs(found, function), id=request_id)


def _v2_array(entry: Mapping[str, Any], where: str, binary: memoryview) -> tuple[np.ndarray, memoryview]:
    """Return an input's array, and the binary data after its own."""
    shape = _of_kind(entry.get("shape"), list, f"{where}.shape")
    if len(shape) > _MAX_RANK or not all(type(size) is int and 0 <= size < _MAX_SIZE for size in shape):
        raise InputError(f"{where}.shape is a list of at most {_MAX_RANK} sizes, not {str(shape)[:200]}.")
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in _DATATYPES:
        raise InputError(f"{where}.datatype is one of {', '.join(_DATATYPES)}, not {str(datatype)[:50]!r}.")
    dtype, count = np.dtype(_DATATYPES[datatype]).newbyteorder("<"), math.prod(shape)
    parameters = _of_kind(entry.get("parameters", {}), dict, f"{where}.parameters")
    size, is_text = parameters.get("binary_data_size"), dtype.hasobject
    if size is not None and is_text:
        if type(size) is not int or not 0 <= size <= len(binary):
            raise InputError(f"{where}.parameters.binary_data_size is {size!r}; the body has {len(binary)} more bytes.")
        return _binary_texts(binary[:size], count, where).reshape(shape), binary[size:]
    if size is not None:
        if type(size) is not int or size != count * dtype.itemsize or size > len(binary):
            raise InputError(
                f"{where}.parameters.binary_data_size is {size!r}; {datatype} of shape {shape} has "
                f"{count * dtype.itemsize} bytes, and the body has {len(binary)} more."
            )
        return np.frombuffer(binary[:size], dtype).astype(dtype.newbyteorder("=")).reshape(shape), binary[size:]
    found = _array(entry.get("data"), f"{where}.data", is_text)
    if found.size != count:
        raise InputError(f"{where}.data has {found.size} elements, and {where}.shape {shape} has {count}.")
    if is_text:
        return found.reshape(shape), binary
    if not found.size:
        found = found.astype(dtype)
    if not _holds(found, dtype):
        raise InputError(f"{where}.data has elements that {datatype} cannot hold.")
    return found.reshape(shape).astype(dtype), binary


def _binary_texts(binary: memoryview, count: int, where: str) -> np.ndarray:
    """Return texts that each stand behind their size in four bytes."""
    found: list[bytes] = []
    while len(binary) >= 4 and len(found) < count:
        size = int.from_bytes(binary[:4], "little")
        if size > len(binary) - 4:
            break
        found.append(bytes(binary[4 : 4 + size]))
        binary = binary[4 + size :]
    if len(binary) or len(found) != count:
        raise InputError(f"{where} has {count} texts, each behind its size in four bytes; its binary data differ.")
    return np.array([*found, None], object)[:-1]  # without the last one, NumPy would make texts of one size an array


def _v2_outputs(found: Mapping[str, Any], function: ServedFunction) -> dict[str, bool]:
    """Return the wanted outputs, and which of them are binary."""
    known = [tensor.name for tensor in function.outputs]
    parameters = _of_kind(found.get("parameters", {}), dict, "parameters")
    default = parameters.get("binary_data_output") is True
    outputs = _of_kind(found.get("outputs", []), list, "outputs")
    if len(outputs) > MAX_NAMES:
        raise InputError(f"outputs has {len(outputs)} entries; the model has the results {known}.")
    wanted = {}
    for number, entry in enumerate(outputs):
        name = _of_kind(entry, dict, f"outputs[{number}]").get("name")
        if name not in known:
            raise InputError(f"outputs[{number}].name is {str(name)[:100]!r}; the model has the results {known}.")
        given = _of_kind(entry.get("parameters", {}), dict, f"outputs[{number}].parameters")
        wanted[name] = given.get("binary_data", default) is True
    return wanted or dict.fromkeys(known, default)


def format_v2(
    request: Request, results: Mapping[str, np.ndarray], model: str, version: str
) -> tuple[bytes, int | None]:
    """Return the body of a response, and the size of its JSON if binary data follow."""
    entries, binary = [], []
    for name, is_binary in request.outputs.items():
        array = _plain(results[name])
        entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if is_binary:
            binary.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            entry["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            entry["data"] = array.ravel().tolist()
        entries.append(entry)
    body = {"model_name": model, "model_version": version, **({} if request.id is None else {"id": request.id})}
    header = json.dumps({**body, "outputs": entries}).encode()
    return b"".join([header, *binary]), len(header) if binary else None


def parse_v1(found: Mapping[str, Any], function: ServedFunction) -> Request:
    """Return a request of TensorFlow Serving's REST.

    It has rows in ``instances``, or columns in ``inputs``.

    Raises:
      InputError: a field is missing or of another form.
    """
    if ("instances" in found) == ("inputs" in found):
        raise InputError("the body has either instances, a list with an entry for each example, or inputs.")
    names = [tensor.name for tensor in function.inputs]
    texts = {tensor.name for tensor in function.inputs if tensor.dtype.hasobject}
    if "inputs" in found:
        inputs = found["inputs"]
        if not isinstance(inputs, dict):
            inputs = {_only(names, "inputs"): inputs}
        columns = {name: (f"inputs.{name[:100]}" if inputs is found["inputs"] else "inputs") for name in inputs}
        arrays = {name: _array(value, columns[name], name in texts) for name, value in inputs.items()}
        return Request(arrays, columns)
    instances = _of_kind(found["instances"], list, "instances")
    if not instances:
        raise InputError("instances is empty; it has an entry for each example.")
    if not isinstance(instances[0], dict) or instances[0].keys() == _BASE64:
        name = _only(names, "instances")
        return Request({name: _array(instances, "instances", name in texts)}, {name: "instances"}, by_row=True)
    keys = list(instances[0])
    for number, row in enumerate(instances):
        if not isinstance(row, dict) or row.keys() != instances[0].keys():
            raise InputError(f"instances[{number}] is an object with the keys {keys[:20]}, as the first one.")
    fields = {name: f"instances[*].{name[:100]}" for name in keys}
    arrays = {name: _array([row[name] for row in instances], fields[name], name in texts) for name in keys}
    return Request(arrays, fields, by_row=True)


def format_v1(request: Request, results: Mapping[str, np.ndarray], function: ServedFunction) -> bytes:
    """Return the body of a response."""
    found = {name: _plain(array).tolist() for name, array in results.items()}
    if not request.by_row:
        return json.dumps({"outputs": next(iter(found.values())) if len(found) == 1 else found}).encode()
    if len(found) == 1:
        return json.dumps({"predictions": next(iter(found.values()))}).encode()
    rows = [
        {name: value[i] if name in function.batched else value for name, value in found.items()}
        for i in range(len(next(iter(request.arrays.values()))))
    ]
    return json.dumps({"predictions": rows}).encode()


def _only(names: Sequence[str], field: str) -> str:
    if len(names) != 1:
        raise InputError(f"{field} names the inputs {list(names)}, of which the model has several.")
    return names[0]


def _array(value: Any, field: str, is_text: bool) -> np.ndarray:
    """Return nested lists as an array of numbers or texts."""
    return _texts(value, field) if is_text else _numbers(value, field)


_BASE64 = {"b64"}


def _texts(value: Any, field: str) -> np.ndarray:
    """Return nested lists of texts, or of objects with bytes in base64, as an array.

    Raises:
      InputError: they have other elements, or lists differ in length.
    """
    if not isinstance(value, list | str | dict):
        raise InputError(f"{field} is a list of texts, not {_kind(value)}.")
    found = np.asarray(value, object)
    flat = found.reshape(-1)
    for position, item in enumerate(flat):
        where = field + "".join(f"[{index}]" for index in np.unravel_index(position, found.shape))
        if isinstance(item, dict) and item.keys() == _BASE64 and isinstance(item["b64"], str):
            try:
                flat[position] = base64.b64decode(item["b64"], validate=True)
            except ValueError as error:
                raise InputError(f"{where}.b64 is not base64: {error}.") from None
        elif isinstance(item, str):
            flat[position] = item.encode("utf-8", "replace")
        else:
            raise InputError(f"{where} is text, not {_kind(item)}.")
    return flat.reshape(found.shape)


def _numbers(value: Any, field: str) -> np.ndarray:
    """Return nested lists as an array of numbers.

    Raises:
      InputError: they are not numbers, or lists differ in length.
    """
    if not isinstance(value, list | int | float):
        raise InputError(f"{field} is a list of numbers, not {_kind(value)}.")
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError) as error:  # of different lengths, or too deep
        raise InputError(f"{field} is no array: {str(error).split('.')[0][:200]}.") from None
    if found.dtype.kind not in "biuf":
        raise InputError(f"{field} has elements that are not numbers of up to 64 bits.")
    return found


def _holds(found: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether numbers keep their kind and range in a dtype."""
    if dtype.kind == "f":
        return found.dtype.kind in "iuf"
    if dtype.kind == "b":
        return found.dtype.kind == "b"
    return found.dtype.kind in "iu" and np.array_equal(found.astype(dtype), found)


def _of_kind(value: Any, kind: type, field: str) -> Any:
    if not isinstance(value, kind):
        raise InputError(f"{field} is {_KINDS[kind]}, not {_kind(value)}.")
    return value


_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "missing or null"}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array in a dtype of requests; other floats become float32."""
    return array if array.dtype.kind in "biuf" and array.dtype.name in _NAMES else array.astype(np.float32)


_NAMES = {np.dtype(kind).name: name for name, kind in _DATATYPES.items()}


def datatype_of(dtype: np.dtype) -> str:
    """Return KServe's name of a dtype; that of float32 for other floats."""
    return _NAMES.get(dtype.name, "FP32")


def tensor_v2(tensor: Tensor) -> dict[str, Any]:
    """Return an argument or a result in the form of KServe."""
    shape = [-1 if isinstance(size, str) else size for size in tensor.shape]
    return {"name": tensor.name, "datatype": datatype_of(tensor.dtype), "shape": shape}


def tensor_v1(tensor: Tensor) -> dict[str, Any]:
    """Return an argument or a result in the form of TensorFlow Serving."""
    kind = _TF_TYPES.get(tensor.dtype.name, f"DT_{tensor.dtype.name.upper()}")
    sizes = [{"size": "-1" if isinstance(size, str) else str(size), "name": ""} for size in tensor.shape]
    return {"name": tensor.name, "dtype": kind, "tensor_shape": {"dim": sizes, "unknown_rank": False}}
