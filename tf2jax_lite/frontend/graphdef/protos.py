"""Messages of TensorFlow's files, read with or without TensorFlow.

Importing TensorFlow takes seconds. `message` returns TensorFlow's own class if TensorFlow is imported, and otherwise a
class made of the field numbers below, which parses the same bytes; fields that are not listed are skipped. Both kinds
have the same attributes.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Each line is a message: ``name=number:type``, with ``*`` for repeated fields, ``{key:value}`` for maps, and ``group|``
# in front of the members of a oneof. Enums are int32, which has the same encoding.
_SCHEMA = """
SavedModel meta_graphs=2:MetaGraphDef*
MetaGraphDef meta_info_def=1:MetaInfoDef graph_def=2:GraphDef saver_def=3:SaverDef
  collection_def=4:{string:CollectionDef} signature_def=5:{string:SignatureDef} asset_file_def=6:AssetFileDef*
  object_graph_def=7:SavedObjectGraph
MetaInfoDef tags=4:string* tensorflow_version=5:string
SaverDef filename_tensor_name=1:string save_tensor_name=2:string restore_op_name=3:string
CollectionDef kind|node_list=1:NodeList kind|bytes_list=2:BytesList kind|int64_list=3:Int64List
  kind|float_list=4:FloatList kind|any_list=5:AnyList
NodeList value=1:string*
BytesList value=1:bytes*
Int64List value=1:int64*
FloatList value=1:float*
AnyList value=1:Any*
Any type_url=1:string value=2:bytes
SignatureDef inputs=1:{string:TensorInfo} outputs=2:{string:TensorInfo} method_name=3:string
TensorInfo encoding|name=1:string encoding|coo_sparse=4:CooSparse encoding|composite_tensor=5:CompositeTensor
  dtype=2:int32 tensor_shape=3:TensorShapeProto
CooSparse values_tensor_name=1:string indices_tensor_name=2:string dense_shape_tensor_name=3:string
CompositeTensor components=2:TensorInfo*
AssetFileDef tensor_info=1:TensorInfo filename=2:string
SavedObjectGraph nodes=1:SavedObject* concrete_functions=2:{string:SavedConcreteFunction}
SavedConcreteFunction bound_inputs=2:int32*
SavedObject children=1:ObjectReference* kind|user_object=4:SavedUserObject kind|asset=5:SavedAsset
  kind|function=6:SavedFunction kind|variable=7:SavedVariable kind|bare_concrete_function=8:SavedBareConcreteFunction
  kind|constant=9:SavedConstant kind|resource=10:SavedResource kind|captured_tensor=12:CapturedTensor
ObjectReference node_id=1:int32 local_name=2:string
SavedUserObject identifier=1:string
SavedAsset asset_file_def_index=1:int32
SavedFunction concrete_functions=1:string*
SavedVariable dtype=1:int32 shape=2:TensorShapeProto trainable=3:bool name=6:string
SavedBareConcreteFunction concrete_function_name=1:string
SavedConstant operation=1:string
SavedResource device=1:string
CapturedTensor name=1:string
GraphDef node=1:NodeDef* library=2:FunctionDefLibrary
NodeDef name=1:string op=2:string input=3:string* device=4:string attr=5:{string:AttrValue}
FunctionDefLibrary function=1:FunctionDef* gradient=2:GradientDef*
GradientDef function_name=1:string gradient_func=2:string
FunctionDef signature=1:OpDef attr=5:{string:AttrValue} arg_attr=7:{uint32:ArgAttrs} node_def=3:NodeDef*
  ret=4:{string:string} control_ret=6:{string:string}
ArgAttrs attr=1:{string:AttrValue}
AttrValue value|s=2:bytes value|i=3:int64 value|f=4:float value|b=5:bool value|type=6:int32
  value|shape=7:TensorShapeProto value|tensor=8:TensorProto value|list=1:ListValue value|func=10:NameAttrList
  value|placeholder=9:string
ListValue s=2:bytes* i=3:int64* f=4:float* b=5:bool* type=6:int32* shape=7:TensorShapeProto* tensor=8:TensorProto*
  func=9:NameAttrList*
NameAttrList name=1:string attr=2:{string:AttrValue}
TensorShapeProto dim=2:Dim* unknown_rank=3:bool
Dim size=1:int64 name=2:string
TensorProto dtype=1:int32 tensor_shape=2:TensorShapeProto tensor_content=4:bytes half_val=13:int32* float_val=5:float*
  double_val=6:double* int_val=7:int32* string_val=8:bytes* scomplex_val=9:float* int64_val=10:int64* bool_val=11:bool*
  dcomplex_val=12:double* uint32_val=16:uint32* uint64_val=17:uint64* float8_val=18:bytes
OpList op=1:OpDef*
OpDef name=1:string input_arg=2:ArgDef* output_arg=3:ArgDef* control_output=20:string* attr=4:AttrDef*
  is_stateful=17:bool
ArgDef name=1:string type=3:int32 type_attr=4:string number_attr=5:string type_list_attr=6:string is_ref=16:bool
AttrDef name=1:string type=2:string default_value=3:AttrValue allowed_values=7:AttrValue
VariableDef variable_name=1:string initializer_name=2:string
BundleHeaderProto num_shards=1:int32 endianness=2:int32 version=3:VersionDef
VersionDef producer=1:int32 min_consumer=2:int32 bad_consumers=3:int32*
BundleEntryProto dtype=1:int32 shape=2:TensorShapeProto shard_id=3:int32 offset=4:int64 size=5:int64 crc32c=6:fixed32
  slices=7:TensorSliceProto*
TensorSliceProto extent=1:Extent*
Extent start=1:int64 has_length_hack|length=2:int64
"""

# Where TensorFlow's classes are, for the messages that callers ask for.
_MODULES = {
    "AssetFileDef": "protobuf.meta_graph_pb2",
    "BundleEntryProto": "protobuf.tensor_bundle_pb2",
    "BundleHeaderProto": "protobuf.tensor_bundle_pb2",
    "GraphDef": "framework.graph_pb2",
    "MetaGraphDef": "protobuf.meta_graph_pb2",
    "OpList": "framework.op_def_pb2",
    "SavedModel": "protobuf.saved_model_pb2",
    "VariableDef": "framework.variable_pb2",
}


def message(name: str) -> Any:
    """Return the class of a message.

    Args:
      name: TensorFlow's name for it, such as ``"GraphDef"``.
    """
    if "tensorflow" in sys.modules:
        return getattr(importlib.import_module(f"tensorflow.core.{_MODULES[name]}"), name)
    return own_messages()[name]


def message_beside(proto: Any, name: str) -> Any:
    """Return a message's class that may hold ``proto``: TensorFlow's or our own."""
    own = own_messages()
    return own[name] if isinstance(proto, tuple(own.values())) else message(name)


@functools.cache
def own_messages() -> dict[str, Any]:
    """Return the classes of the messages above by name, made without TensorFlow."""
    file = descriptor_pb2.FileDescriptorProto(name="tf2jax_lite.proto", package="tensorflow", syntax="proto3")
    for words in (entry.split() for entry in re.split(r"\n(?! )", _SCHEMA.strip())):
        _add(file.message_type.add(name=words[0]), words[1:])
    pool = descriptor_pool.DescriptorPool()  # of its own: TensorFlow, if imported later, adds messages of these names
    pool.Add(file)
    named = pool.FindFileByName(file.name).message_types_by_name
    return {name: message_factory.GetMessageClass(found) for name, found in named.items()}


def _add(target: Any, fields: list[str]) -> None:
    groups: dict[str, int] = {}
    for text in fields:
        head, _, kind = text.partition(":")
        name, number = head.split("=")
        group, _, name = name.rpartition("|")
        field = target.field.add(name=name, number=int(number))
        repeated = kind.endswith("*") or kind.startswith("{")
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        if group:
            if group not in groups:
                groups[group] = len(groups)
                target.oneof_decl.add(name=group)
            field.oneof_index = groups[group]
        if kind.startswith("{"):
            key, _, value = kind.strip("{}").partition(":")
            entry = target.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            _add(entry, [f"key=1:{key}", f"value=2:{value}"])
            kind = f"{target.name}.{entry.name}"
        scalar = f"TYPE_{kind.rstrip('*').upper()}"
        if kind[0].islower():
            field.type = getattr(field, scalar)
        else:
            field.type_name = f".tensorflow.{kind.rstrip('*')}"
