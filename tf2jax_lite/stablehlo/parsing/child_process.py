"""Parse StableHLO in a process that may crash: a script with jaxlib alone.

Reads ``<length: 8 bytes><payload>`` from standard input, over and over, and answers each with one byte: ``n`` if MLIR
says that it cannot read the payload, ``m`` if that takes too much memory, ``f`` if it reads a module without a function
``main``; else 128 and the number of binary digits of how many bytes the module's largest tensor takes. A payload that
makes MLIR crash gives no answer at all.
"""

import re
import sys

_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:complex<)?[a-zA-Z]+(\d+)")


def _bytes(text):
    """Return a text's largest tensor in bytes; unknown dimensions count as 1."""
    most = 0
    for dims, bits in _TENSOR.findall(text.replace("?x", "")):
        size = int(bits)
        for dim in dims[:-1].split("x"):
            size *= int(dim)
        most = max(most, size // 8)
    return most


def _look(ir, root):
    """Access all text to be read: invalid UTF-8 ends the process (jaxlib 0.10).

    Returns how many bytes the largest tensor takes.
    """
    stack, types = [root], set()
    while stack:
        op = stack.pop()
        location = op.location
        if getattr(location, "is_a_name", lambda: True)():
            str(getattr(location, "name_str", ""))
        for entry in op.attributes:
            name = entry if isinstance(entry, str) else entry.name
            try:
                _look_at_attribute(ir, op.attributes[name])
            except TypeError:  # complex constants have no bindings
                op.get_asm(use_local_scope=True)
        for value in op.results:
            types.add(str(value.type))
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    types.add(str(argument.type))
                stack.extend(inner.operation for inner in block.operations)
    return max(map(_bytes, types), default=0)


def _look_at_attribute(ir, attribute):
    stack = [attribute]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.StringAttr):
            raw = getattr(item, "value_bytes", None)
            str(item.value if raw is None else raw)
        elif isinstance(item, ir.FlatSymbolRefAttr):
            str(item.value)
        elif isinstance(item, ir.ArrayAttr):
            stack.extend(item)
        elif isinstance(item, ir.DictAttr):
            for entry in item:
                str(entry.name)
                stack.append(entry.attr)
        else:
            str(item)


def _name(ir, op):
    """Return a function's name."""
    if op.name != "func.func" or "sym_name" not in op.attributes:
        return None
    return ir.StringAttr(op.attributes["sym_name"]).value


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


def _serve() -> None:
    sys.path[:] = sys.argv[1:]
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    source, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b"r")
    answers.flush()
    while head := source.read(8):
        payload = source.read(int.from_bytes(head, "little"))
        _limit_memory(len(payload))
        try:
            with ir.Context() as context:
                context.enable_multithreading(False)  # a thread for each core would count against the limit
                for dialect in (stablehlo, chlo, sdy):
                    dialect.register_dialect(context)
                if not payload.startswith(b"ML\xefR"):  # as the reader does: the context alone does not know func
                    payload = stablehlo.serialize_portable_artifact_str(
                        payload.decode(), stablehlo.get_current_version()
                    )
                module = stablehlo.deserialize_portable_artifact(context, payload)
                most = _look(ir, module.operation)
                has_main = any(_name(ir, op.operation) == "main" for op in module.body.operations)
            answer = bytes([128 + min(most.bit_length(), 127)]) if has_main else b"f"
        except MemoryError:
            answer = b"m"
        except Exception:
            answer = b"n"
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    _serve()
