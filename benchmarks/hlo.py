"""Count a GPU program's kernels, library calls and bytes in its HLO text."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator

# Ops that launch nothing: views of memory, and the ends of asynchronous ops.
_FREE = {"parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "copy-done", "async-done"}
_SLICES = ("slice", "dynamic-slice", "gather")
_ATTRIBUTES = ("window", "dim_labels", "feature_group_count", "lhs_contracting_dims", "rhs_contracting_dims")


@dataclasses.dataclass(frozen=True)
class Launches:
    """Launches of one call of a program; loop bodies count per iteration.

    Attributes:
      kernels: how many in all.
      library: calls of libraries (cuDNN, cuBLAS and such): target, shapes and dimensions, to how many.
      bytes: read and written by them; of sliced operands, the slices.
      unknown: how many loops there are whose length XLA does not know: they count once.
    """

    kernels: int
    library: Counter[str]
    bytes: int
    unknown: int


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    form: str
    op: str
    operands: tuple[str, ...]
    text: str

    def called(self, attribute: str) -> str | None:
        found = re.search(rf"\b{attribute}=(%[\w.-]+)", self.text)
        return found[1] if found else None


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Return computations by name, and the name of the one that is run."""
    found: dict[str, list[_Instruction]] = {}
    entry, body = "", []
    for line in text.splitlines():
        if line.endswith("{") and " -> " in line:
            words = line.split()
            name = words[1] if words[0] == "ENTRY" else words[0]
            entry = name if words[0] == "ENTRY" else entry
            body = found[name] = []
        elif match := re.match(r"\s*(?:ROOT )?(%\S+) = (\(.*?\)|\S+) ([a-z][\w-]*)\(([^)]*)\)", line):
            body.append(_Instruction(match[1], match[2], match[3], tuple(re.findall(r"%[\w.-]+", match[4])), line))
    return found, entry


def _branches(instruction: _Instruction) -> list[str]:
    found = re.search(r"branch_computations=\{([^}]*)\}", instruction.text)
    names = re.findall(r"%[\w.-]+", found[1]) if found else []
    return names or [n for n in map(instruction.called, ("true_computation", "false_computation")) if n]


def _library(instruction: _Instruction, forms: dict[str, str]) -> str | None:
    """Return the library call and its operands, or None for XLA's own kernels."""
    if instruction.op != "custom-call":
        return None
    target = re.search(r'custom_call_target="([^"]+)"', instruction.text)
    details = [
        f"{a}={f[1]}" for a in _ATTRIBUTES if (f := re.search(rf"\b{a}=(\{{[^}}]*\}}|\S+?),? ", instruction.text))
    ]
    shapes = " ".join(forms.get(name, "?") for name in instruction.operands)
    return f"{target[1] if target else '?'}({shapes}) -> {instruction.form} {' '.join(details)}"


def _size(form: str) -> int:
    """Return the bytes of an array or of a tuple's arrays."""
    return sum(
        math.prod(map(int, filter(None, sizes.split(",")))) * max(int(bits or 8), 8) // 8
        for bits, sizes in re.findall(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]", form)
    )


def _read(body: list[_Instruction], parameter: str, whole: str) -> int:
    """Return the number of bytes of a parameter that a fusion reads."""
    users = [i for i in body if parameter in i.operands]
    sliced = [_size(i.form) for i in users if i.op in _SLICES and i.operands[0] == parameter]
    updated = [0 for i in users if i.op == "dynamic-update-slice" and i.operands[0] == parameter]  # in place
    return min(sum(sliced), _size(whole)) if len(sliced) + len(updated) == len(users) else _size(whole)


def _written(body: list[_Instruction], whole: str) -> int:
    """Return the bytes that a fusion writes; of in-place updates, the updated part."""
    forms = {i.name: i.form for i in body}
    updates = [i for i in body if i.op == "dynamic-update-slice" and i.form.split("{")[0] in whole]
    saved = sum(_size(i.form) - _size(forms.get(i.operands[1], i.form)) for i in updates)
    return max(_size(whole) - saved, 0)


def _moved(instruction: _Instruction, forms: dict[str, str], computations: dict[str, list[_Instruction]]) -> int:
    body = computations.get(instruction.called("calls") or "", []) if instruction.op == "fusion" else []
    if not body:
        return sum(_size(forms.get(name, "")) for name in instruction.operands) + _size(instruction.form)
    numbers = {int(m[1]): i.name for i in body if (m := re.search(r" parameter\((\d+)\)", i.text))}
    read = [_read(body, numbers[n], forms.get(name, "")) for n, name in enumerate(instruction.operands)]
    return sum(read) + _written(body, instruction.form)


def launches(text: str) -> Launches:
    """Count the launches of a program.

    Args:
      text: of a compiled program, as ``compiled.as_text()`` gives it.
    """
    computations, entry = _computations(text)
    library: Counter[str] = Counter()
    unknown = 0

    def walk(name: str, times: int) -> Iterator[tuple[int, int]]:
        nonlocal unknown
        forms = {i.name: i.form for i in computations[name]}
        for instruction in computations[name]:
            if instruction.op in _FREE:
                continue
            if instruction.op == "while":
                count = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', instruction.text)
                unknown += count is None
                for inner in filter(None, map(instruction.called, ("body", "condition"))):
                    yield from walk(inner, times * (int(count[1]) if count else 1))
            elif instruction.op == "conditional":
                taken = [list(walk(branch, times)) for branch in _branches(instruction)]
                yield from max(taken, key=len, default=[])
            elif instruction.op in ("call", "async-start"):
                inner = instruction.called("to_apply") or instruction.called("calls")
                yield from walk(inner, times) if inner else ()
            else:
                if call := _library(instruction, forms):
                    library[call] += times
                yield times, times * _moved(instruction, forms, computations)

    found = list(walk(entry, 1))
    return Launches(sum(n for n, _ in found), library, sum(moved for _, moved in found), unknown)
