"""Parse StableHLO in a process that may crash: a script with jaxlib alone.

Reads requests from standard input, over and over: ``<length: 8 bytes><length: 8 bytes><payload><sizes>``. Sizes are
none, or JSON with the shapes of a call's arguments, for which dynamic shapes are refined first, as JAX does before it
compiles. Answers each with ``<length: 4 bytes><JSON>``: the keys ``bytes`` (of the module's largest tensor),
``functions`` (for each its number of operations and the functions that it calls), ``main`` (types of its arguments and
results), ``is_dynamic`` and ``has_dynamic_calls`` (of custom calls, which are to be looked at with the sizes of a
call); or ``problem`` with a kind and a text. A payload that makes MLIR crash gives no answer at all.
"""

import importlib
import io
import json
import re
import sys

_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:complex<)?[a-zA-Z]+(\d+)")
_MAX_DEPTH = 100
_MAX_TEXT = 1 << 12
_CHANNELS = {"stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv"}


class _Refused(Exception):
    """Its first argument is the problem's kind, the second a text."""


def _bytes(text):
    """Return a text's largest tensor in bytes; unknown dimensions count as 1."""
    most = 0
    for dims, bits in _TENSOR.findall(text.replace("?x", "")):
        size = int(bits)
        for dim in dims[:-1].split("x"):
            size *= int(dim)
        most = max(most, size // 8)
    return most


class _Look:
    """A walk over all that is to be read.

    Invalid UTF-8 ends the process (jaxlib 0.10).
    """

    def __init__(self, ir, calls):
        self.ir, self.calls = ir, calls
        self.types = {}  # MLIR has one object for equal types and attributes, so that each is read once
        self.texts = set()
        self.values = {}
        self.functions = {}
        self.main = None
        self.has_dynamic_calls = False

    def module(self, module):
        top = module.operation
        self.attributes(top, [])
        for op in module.body.operations:
            names = []
            count = self.walk(op.operation, names)
            name = _name(self.ir, op.operation)
            if name is not None:
                self.functions[name] = [count, names]
            if name == "main":
                kind = self.ir.FunctionType(self.ir.TypeAttr(op.operation.attributes["function_type"]).value)
                given = _kept(op.operation, [self.tensor(t) for t in kind.inputs])
                self.main = [given, [self.tensor(t) for t in kind.results]]
        return {
            "bytes": max(map(_bytes, self.texts), default=0),
            "functions": self.functions,
            "main": self.main,
            "is_dynamic": any("?" in text for text in self.texts),
            "has_dynamic_calls": self.has_dynamic_calls,
        }

    def walk(self, root, names):
        """Return the number of operations; ``names`` gets one for each call."""
        stack, count = [(root, 0)], 0
        while stack:
            op, depth = stack.pop()
            count += 1
            if depth > _MAX_DEPTH:
                raise _Refused("nesting", "")
            where = _where(op)
            attributes = self.attributes(op, names)
            for value in op.results:
                self.tensor(value.type)
            if op.name == "stablehlo.custom_call":
                self.custom_call(op, attributes, where)
            elif op.name in _CHANNELS:
                raise _Refused("unsupported", f"{op.name}{where}: it waits for another process")
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.arguments:
                        self.tensor(argument.type)
                    stack.extend((inner.operation, depth + 1) for inner in block.operations)
        return count

    def tensor(self, mlir_type):
        """Return a tensor's element type and shape; None for other types."""
        if mlir_type not in self.types:
            text = str(mlir_type)
            found = None
            if text.startswith("tensor<"):
                ranked = self.ir.RankedTensorType(mlir_type)
                dims = range(ranked.rank)
                shape = tuple(None if ranked.is_dynamic_dim(i) else ranked.get_dim_size(i) for i in dims)
                if ranked.encoding is not None and None in shape:
                    raise _Refused("unsupported", f"the type {text[:200]} has bounds")
                found = (str(ranked.element_type), shape)
            self.texts.add(text)
            self.types[mlir_type] = found
        return self.types[mlir_type]

    def parts(self, mlir_type):
        """Return the types in a tuple, which older modules have, or the type."""
        if not str(mlir_type).startswith("tuple<"):
            return [mlir_type]
        found = self.ir.TupleType(mlir_type)
        return [found.get_type(i) for i in range(found.num_types)]

    def attributes(self, op, names):
        """Return an operation's attributes as Python values, those that have one."""
        found = {}
        for entry in op.attributes:
            name = entry if isinstance(entry, str) else entry.name
            try:
                item = op.attributes[name]
            except TypeError:  # complex constants have no bindings
                op.get_asm(use_local_scope=True)
                continue
            if item not in self.values:
                before = len(names)
                value = self.attribute(item, names)
                if len(names) > before:  # each call counts
                    found[name] = value
                    continue
                self.values[item] = value
            found[name] = self.values[item]
        return found

    def attribute(self, item, names, depth=0):
        ir = self.ir
        if depth > _MAX_DEPTH:
            raise _Refused("nesting", "")
        if isinstance(item, ir.BoolAttr):
            return bool(item.value)
        if isinstance(item, ir.IntegerAttr):
            return int(item.value)
        if isinstance(item, ir.StringAttr):
            raw = getattr(item, "value_bytes", None)
            return str(item.value) if raw is None else raw.decode("utf-8", "surrogateescape")
        if isinstance(item, ir.FlatSymbolRefAttr):
            names.append(str(item.value))
            return str(item.value)
        if isinstance(item, ir.ArrayAttr):
            return [self.attribute(inner, names, depth + 1) for inner in item]
        if isinstance(item, ir.DictAttr):
            return {str(entry.name): self.attribute(entry.attr, names, depth + 1) for entry in item}
        text = str(item)
        if text.startswith("dense<") and text.endswith(("xi64>", "xindex>")) and len(text) < _MAX_TEXT:
            return _integers(text)
        return text

    def custom_call(self, op, attributes, where):
        target = str(attributes.get("call_target_name"))
        if target not in self.calls.TARGETS:
            raise _Refused("unsupported", f"{op.name}{where}: {self.calls.refusal(target[:200])}")
        layouts = [attributes.get(f"{side}_layouts") for side in ("operand", "result")]
        call = self.calls.CustomCall(
            target=target,
            api_version=attributes.get("api_version", 1),
            config=attributes.get("mhlo.backend_config", attributes.get("backend_config")),
            operands=[self.tensor(value.type) for value in op.operands],
            results=[self.tensor(t) for value in op.results for t in self.parts(value.type)],
            shape_operands=attributes.get("indices_of_shape_operands", ()),
            called=attributes.get("called_computations", ()),
            layouts=None if None in layouts else [*layouts[0], *layouts[1]],
            batch_dims=(attributes.get("mhlo.frontend_attributes") or {}).get("num_batch_dims"),
        )
        wrong = self.calls.mismatch(call)
        if wrong is not None:
            raise _Refused("invalid", f"{op.name}{where}: {wrong}")
        self.has_dynamic_calls |= call.is_dynamic


def _integers(text):
    """Return the integers of a dense attribute."""
    values = [int(v) for v in re.findall(r"-?\d+", text[: text.index(">")])]
    count = re.search(r"tensor<(\d+)x\w+>$", text)
    return values * (int(count[1]) if count and len(values) == 1 and int(count[1]) < _MAX_TEXT else 1)


def _where(op):
    """Return the text for an operation's name, which the location has."""
    location = op.location
    if not getattr(location, "is_a_name", lambda: True)():
        return ""
    name = str(getattr(location, "name_str", "") or "")
    return f" at {name[:200]!r}" if name else ""


def _name(ir, op):
    """Return a function's name."""
    if op.name != "func.func" or "sym_name" not in op.attributes:
        return None
    return ir.StringAttr(op.attributes["sym_name"]).value


def _kept(op, types):
    """Leave out the platform's number and tokens, which JAX passes itself."""
    attributes = op.attributes["arg_attrs"] if "arg_attrs" in op.attributes else [{}] * len(types)
    return [
        t
        for t, names in zip(types, attributes, strict=False)
        if t is not None and "jax.global_constant" not in str(names)
    ]


def _limit_memory(size):
    """Limit memory to a dozen times the bytecode's size: its counts may lie."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29) + 200 * size, hard))
    except (ImportError, OSError, ValueError):
        pass  # there are no such limits here


def _refined(ir, stablehlo, module, shapes):
    """Return a module for arguments of known shapes, without dynamic shapes."""
    # As in JAX, another function ``main`` converts them and calls the present one.
    from jaxlib.mlir.dialects import func

    refine = importlib.import_module("jaxlib._jax").mlir.refine_polymorphic_shapes

    (main,) = (op.operation for op in module.body.operations if _name(ir, op.operation) == "main")
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    numbers = [i for i, t in enumerate(kind.inputs) if str(t).startswith("tensor<")]
    if "arg_attrs" in main.attributes:
        numbers = [i for i in numbers if "jax.global_constant" not in str(main.attributes["arg_attrs"][i])]
    if len(numbers) != len(shapes):
        raise _Refused("invalid", f"the module takes {len(numbers)} arrays, not {len(shapes)}")
    given = list(kind.inputs)
    with ir.Location.unknown():
        for i, shape in zip(numbers, shapes, strict=True):
            given[i] = ir.RankedTensorType.get(shape, ir.RankedTensorType(given[i]).element_type)
        callee = "refined_main"
        while any(_name(ir, op.operation) == callee for op in module.body.operations):
            callee += "_"
        main.attributes["sym_name"] = ir.StringAttr.get(callee)
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        with ir.InsertionPoint(module.body):
            wrapper = func.FuncOp("main", ir.FunctionType.get(given, kind.results))
            with ir.InsertionPoint(wrapper.add_entry_block()):
                args = [
                    value if value.type == wanted else stablehlo.convert(wanted, value)
                    for value, wanted in zip(wrapper.arguments, kind.inputs, strict=True)
                ]
                func.ReturnOp(func.CallOp(list(kind.results), ir.FlatSymbolRefAttr.get(callee), args).results)
    if not module.operation.verify():
        raise _Refused("invalid", f"the arguments of shapes {shapes} do not fit it")
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return ir.Module.parse(refine(buffer.getvalue(), enable_shape_assertions=False, enable_shardy=True))


def _answer(ir, dialects, calls, payload, sizes):
    with ir.Context() as context:
        context.enable_multithreading(False)  # a thread for each core would count against the limit
        for dialect in dialects:
            dialect.register_dialect(context)
        stablehlo = dialects[0]
        if not payload.startswith(b"ML\xefR"):  # as the reader does: the context alone does not know func
            payload = stablehlo.serialize_portable_artifact_str(payload.decode(), stablehlo.get_current_version())
        module = stablehlo.deserialize_portable_artifact(context, payload)
        found = _Look(ir, calls).module(module)
        if found["main"] is None or not sizes:
            return found
        try:
            module = _refined(ir, stablehlo, module, json.loads(sizes))
        except _Refused:
            raise
        except Exception as error:
            raise _Refused("sizes", str(error)[:_MAX_TEXT]) from error
        found = _Look(ir, calls).module(module)
        if found["is_dynamic"]:
            raise _Refused("sizes", "some depend on data")
        return found


def _serve() -> None:
    calls = importlib.import_module("custom_calls")  # beside this script
    sys.path[:] = sys.argv[1:]
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    source, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"r")
    answers.flush()
    while head := source.read(16):
        payload, sizes = (source.read(int.from_bytes(part, "little")) for part in (head[:8], head[8:]))
        _limit_memory(len(payload))
        try:
            found = _answer(ir, (stablehlo, chlo, sdy), calls, payload, sizes)
        except _Refused as refused:
            found = {"problem": refused.args}
        except MemoryError:
            found = {"problem": ["memory", ""]}
        except Exception:
            found = {"problem": ["unreadable", ""]}
        text = json.dumps(found).encode()
        answers.write(len(text).to_bytes(4, "little") + text)
        answers.flush()


if __name__ == "__main__":
    _serve()
