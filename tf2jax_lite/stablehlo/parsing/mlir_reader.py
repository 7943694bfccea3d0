"""Read StableHLO with MLIR's bindings into plain data.

Only `child_process` uses MLIR besides.

Used: ``jax.extend.mlir`` (a documented part of JAX) and its ``ir``, ``stablehlo`` and ``chlo`` modules.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf2jax_lite.jaxprs.compat import ir, mlir_dialect, serialize_portable_artifact
from tf2jax_lite.support.errors import InvalidModelError, Tf2JaxError, UnsupportedError
from tf2jax_lite.support.limits import check_bytes

from .isolation import DTYPES, check_payload
from .module import TOKEN, Function, Module, Op, Region, TensorType, finish
from .peepholes import restore

# Nested regions: compilers write a handful of levels; a crafted file could exhaust the stack.
_MAX_DEPTH = 100

# Attributes that place or lay out data, and cannot change a result here.
_SKIPPED = frozenset(
    {"operand_layouts", "result_layouts", "output_operand_aliases", "mhlo.sharding", "sdy.sharding", "res_attrs"}
    | {"sdy.sharding_rule", "mhlo.frontend_attributes", "xla_shape", "function_type", "sdy.sharding_per_value"}
)

_DIMENSION_NUMBERS = {
    "conv": (
        "ConvDimensionNumbers",
        (
            "input_batch_dimension",
            "input_feature_dimension",
            "input_spatial_dimensions",
            "kernel_input_feature_dimension",
            "kernel_output_feature_dimension",
            "kernel_spatial_dimensions",
            "output_batch_dimension",
            "output_feature_dimension",
            "output_spatial_dimensions",
        ),
    ),
    "dot": (
        "DotDimensionNumbers",
        (
            "lhs_batching_dimensions",
            "rhs_batching_dimensions",
            "lhs_contracting_dimensions",
            "rhs_contracting_dimensions",
        ),
    ),
    "gather": (
        "GatherDimensionNumbers",
        (
            "offset_dims",
            "collapsed_slice_dims",
            "operand_batching_dims",
            "start_indices_batching_dims",
            "start_index_map",
            "index_vector_dim",
        ),
    ),
    "scatter": (
        "ScatterDimensionNumbers",
        (
            "update_window_dims",
            "inserted_window_dims",
            "input_batching_dims",
            "scatter_indices_batching_dims",
            "scattered_dims_to_operand_dims",
            "index_vector_dim",
        ),
    ),
    "dot_algorithm": (
        "DotAlgorithm",
        (
            "lhs_precision_type",
            "rhs_precision_type",
            "accumulation_type",
            "lhs_component_count",
            "rhs_component_count",
            "num_primitive_operations",
            "allow_imprecise_accumulation",
        ),
    ),
}

_ENUM = re.compile(r"#(?:stablehlo|chlo)<\w+ (\w+)>")
_STRUCTURE = re.compile(r"#stablehlo\.(\w+)<")


def read(payload: bytes | str, *, own: bool = False, names: bool = True) -> Module:
    """Read a module: a portable artifact, MLIR bytecode, or text.

    jax.export and XlaCallModule hold portable artifacts.

    Args:
      own: whether this process wrote it; one from elsewhere is read in another process first (`isolation`).
      names: whether functions that jax writes out under their own names are put together by those (`patterns`).
    """
    stablehlo, chlo, sdy = map(mlir_dialect, ("stablehlo", "chlo", "sdy"))
    if not payload:
        raise InvalidModelError("the StableHLO payload is empty.")
    if not own:
        check_payload(payload)
    try:
        if isinstance(payload, str) or not payload.startswith(b"ML\xefR"):
            text = payload if isinstance(payload, str) else payload.decode()
            payload = serialize_portable_artifact(text, stablehlo.get_current_version())
        with ir.Context() as context:
            stablehlo.register_dialect(context)
            chlo.register_dialect(context)
            sdy.register_dialect(context)
            return _Reader(ir, stablehlo, names).module(stablehlo.deserialize_portable_artifact(context, payload))
    except Tf2JaxError:
        raise
    except RecursionError:
        raise InvalidModelError("the StableHLO module nests its regions too deeply.") from None
    except Exception as error:
        text = str(error).strip().splitlines()
        raise InvalidModelError(f"the StableHLO payload cannot be read: {' '.join(text[:3])[:300]}") from error


class _Reader:
    def __init__(self, ir: Any, stablehlo: Any, names: bool):
        self.names = names
        self.ir = ir
        self.stablehlo = stablehlo
        self.types: dict[str, Any] = {}
        self.from_jax = False

    def module(self, module: Any) -> Module:
        functions = {}
        attrs = self.attributes(module.operation.attributes)
        self.from_jax = self.names and any(name.startswith("jax.") for name in attrs)
        for op in module.body.operations:
            op = op.operation
            if op.name == "func.func":
                function = self.function(op)
                functions[function.name] = function
            elif not op.name.startswith("sdy."):
                raise UnsupportedError(f"the module holds {op.name} beside its functions, which is not understood.")
        return Module(functions, attrs)

    def function(self, op: Any) -> Function:
        name = op.attributes["sym_name"].value
        blocks = list(op.regions[0].blocks)
        if len(blocks) != 1:
            raise UnsupportedError(f"function {name!r} has {len(blocks)} blocks; StableHLO functions have one.")
        numbers: dict[Any, int] = {}
        body = self.region(op.regions[0], numbers, {}, 0)
        function_type = op.attributes["function_type"].value
        attrs: list[Mapping[str, Any]] = [{} for _ in body.args]
        if "arg_attrs" in op.attributes:
            for i, entry in enumerate(op.attributes["arg_attrs"]):
                attrs[i] = self.attribute(entry)
        return Function(name, body, tuple(self.type(t) for t in function_type.results), tuple(attrs))

    def region(self, region: Any, numbers: dict[Any, int], outer: Mapping[int, Op], depth: int) -> Region:
        if depth > _MAX_DEPTH:
            raise InvalidModelError(f"the StableHLO module nests regions more than {_MAX_DEPTH} deep.")
        blocks = list(region.blocks)
        if len(blocks) != 1:
            raise UnsupportedError(f"a region with {len(blocks)} blocks; StableHLO regions have one.")
        args, types = [], []
        for arg in blocks[0].arguments:
            numbers[arg] = len(numbers)
            args.append(numbers[arg])
            types.append(self.type(arg.type))
        ops: list[Op] = []
        made = dict(outer)
        returns: tuple[int, ...] = ()
        for op in blocks[0].operations:
            op = op.operation
            operands = tuple(numbers[v] for v in op.operands)
            if op.name in ("func.return", "stablehlo.return"):
                returns = operands
                break
            ops.append(self.op(op, operands, numbers, made, depth))
            made.update(dict.fromkeys(ops[-1].results, ops[-1]))
        return Region(
            tuple(args), tuple(types), finish(args, restore(ops, outer, returns, names=self.from_jax), returns), returns
        )

    def op(self, op: Any, operands: tuple[int, ...], numbers: dict[Any, int], made: Mapping[int, Op], depth: int) -> Op:
        types = tuple(self.type(v.type) for v in op.results)
        if op.name == "stablehlo.iota" and isinstance(types[0], TensorType) and types[0].is_static:
            check_bytes((d or 0 for d in types[0].shape), types[0].dtype.itemsize, "an iota of the StableHLO module")
        if op.name == "stablehlo.constant":
            attrs = {"value": self.constant(op, types[0])}
        else:
            attrs = self.attributes(op.attributes)
        regions = tuple(self.region(r, numbers, made, depth + 1) for r in op.regions)
        results = []
        for value in op.results:
            numbers[value] = len(numbers)
            results.append(numbers[value])
        return Op(
            name=op.name,
            operands=operands,
            results=tuple(results),
            types=types,
            operand_types=tuple(self.type(v.type) for v in op.operands),
            attrs=attrs,
            regions=regions,
            where=_name(op.location),
        )

    def type(self, mlir_type: Any) -> Any:
        key = str(mlir_type)
        if key not in self.types:
            self.types[key] = self._type(mlir_type, key)
        return self.types[key]

    def _type(self, mlir_type: Any, key: str) -> Any:
        if key == "!stablehlo.token":
            return TOKEN
        if not isinstance(mlir_type, self.ir.RankedTensorType):
            mlir_type = self.ir.RankedTensorType(mlir_type) if key.startswith("tensor<") else None
        if mlir_type is None:
            if key.startswith("tuple<"):
                return key
            raise UnsupportedError(f"values of type {key} have no counterpart in JAX.")
        element = str(mlir_type.element_type)
        if element not in DTYPES:
            raise UnsupportedError(f"tensors of {element} have no counterpart in JAX.")
        shape = tuple(None if mlir_type.is_dynamic_dim(i) else mlir_type.get_dim_size(i) for i in range(mlir_type.rank))
        return TensorType(np.dtype(DTYPES[element]), shape)

    # ---- attributes ----

    def attributes(self, attributes: Any) -> dict[str, Any]:
        found = {}
        for entry in attributes:
            name = entry if isinstance(entry, str) else entry.name
            if name not in _SKIPPED:
                found[name] = self.attribute(attributes[name])
        return found

    def attribute(self, attr: Any, depth: int = 0) -> Any:
        ir = self.ir
        if depth > _MAX_DEPTH:
            raise InvalidModelError("an attribute nests too deeply.")
        if isinstance(attr, ir.BoolAttr):
            return bool(attr.value)
        if isinstance(attr, ir.IntegerAttr):
            return int(attr.value)
        if isinstance(attr, ir.FloatAttr):
            return float(attr.value)
        if isinstance(attr, ir.StringAttr):
            raw = getattr(attr, "value_bytes", None)  # configurations of kernels need not be text
            return attr.value if raw is None else raw.decode("utf-8", "surrogateescape")
        if isinstance(attr, ir.FlatSymbolRefAttr):
            return attr.value
        if isinstance(attr, ir.ArrayAttr):
            return tuple(self.attribute(item, depth + 1) for item in attr)
        if isinstance(attr, ir.DictAttr):
            return {entry.name: self.attribute(entry.attr, depth + 1) for entry in attr}
        if isinstance(attr, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)):
            return tuple(int(item) for item in attr)
        if isinstance(attr, ir.UnitAttr):
            return True
        text = str(attr)
        if text.startswith(("dense<", "dense_resource<")):
            if "xindex>" in text[-40:]:
                return text
            return _dense(attr, text, self._type(attr.type, str(attr.type)))
        enum = _ENUM.fullmatch(text)
        if enum:
            return enum[1]
        structure = _STRUCTURE.match(text)
        if structure and structure[1] in _DIMENSION_NUMBERS:
            cls, fields = _DIMENSION_NUMBERS[structure[1]]
            view = getattr(self.stablehlo, cls)(attr)
            return {name: _plain(getattr(view, name)) for name in fields}
        return text

    def constant(self, op: Any, type_: TensorType) -> np.ndarray:
        try:
            attr = op.attributes["value"]
        except TypeError:  # the bindings know no complex constants
            attr = None
        return _dense(attr, None if attr is not None else op.get_asm(use_local_scope=True), type_)


def _name(location: Any) -> str:
    # jax 0.9 crashes when a location that is not a name is asked for one; later on only names have the attribute.
    if not getattr(location, "is_a_name", lambda: True)():
        return ""
    return str(getattr(location, "name_str", "") or "")


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return tuple(int(item) for item in value)
    return str(value)


# ---- dense constants ----


def _dense(attr: Any, text: str | None, type_: TensorType) -> np.ndarray:
    shape = tuple(int(d) for d in type_.shape if d is not None)
    if len(shape) != len(type_.shape):
        raise InvalidModelError("a constant with dynamic dimensions")
    dtype = type_.dtype
    check_bytes(shape, dtype.itemsize, "a constant of the StableHLO module")
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    if attr is not None and getattr(attr, "is_splat", False):
        value = attr.get_splat_value().value
        return np.broadcast_to(np.asarray(value).astype(dtype), shape)
    if attr is not None and dtype.kind in "biuf" and dtype.isbuiltin == 1:
        return np.array(attr, dtype).reshape(shape)
    return _from_text(str(attr) if text is None else text, dtype, shape)


_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]*)">')
_ITEM = re.compile(r"\(\s*([^,()]+),\s*([^,()]+)\)|(true|false|0x[0-9A-Fa-f]+|[-+]?[0-9][0-9.eE+-]*)")


def _from_text(text: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Read a constant as MLIR prints it, for the dtypes that numpy does not know."""
    raw = _HEX.search(text)
    if raw:
        data = np.frombuffer(bytes.fromhex(raw[1]), dtype)
        return np.broadcast_to(data[0], shape) if data.size == 1 else data.reshape(shape)
    start = text.index("dense<") + len("dense<")
    body = text[start : text.rindex("> :") if "> :" in text[start:] else len(text)]
    items: list[Any] = []
    for real, imag, single in _ITEM.findall(body):
        if single:
            items.append(_number(single, dtype))
        else:
            part = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
            items.append(complex(float(_number(real.strip(), part)), float(_number(imag.strip(), part))))
    data = np.array(items).astype(dtype)
    if data.size == 1:
        return np.broadcast_to(data.reshape(()), shape)
    if data.size != math.prod(shape):
        raise InvalidModelError(f"a constant of shape {shape} with {data.size} elements")
    return data.reshape(shape)


def _number(text: str, dtype: np.dtype) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x"):
        if dtype.kind in "iu" or "int" in dtype.name:
            return int(text, 16)
        return np.frombuffer(int(text, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    return float(text) if "int" not in dtype.name else int(text)
