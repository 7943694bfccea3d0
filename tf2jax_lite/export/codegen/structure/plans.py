"""Plan the parameters of outlined functions.

Parameters are subtrees of params, differing constants, and symbolic dimensions.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .. import literals
from ..names import Names, common_prefix, identifier
from ..templates import Def, Hole, Marks, Part, Printed, Read, Stmt
from .items import Body, Call, Code, Function, Loop
from .sequences import Header, NumberedNames, affine, header, integers

Path = tuple[str, ...]
INDEX = "\0"
"""Stands for the index in source."""


@dataclasses.dataclass
class Leaf:
    """A param or a constant at one place of a function, for each of its bodies."""

    values: list[Path] | list[Hole]

    @property
    def is_read(self) -> bool:
        """Whether it is a param."""
        return isinstance(self.values[0], tuple)


@dataclasses.dataclass
class Slot:
    """A parameter that takes a subtree of params.

    Attributes:
      prefixes: path of the subtree for each body.
      rests: leaf number to the path of its param within the subtree, equal for all bodies. The first component of it
        may follow a name that is a keyword (``named``).
      names: with ``named``, each body's beginning of that component.
      numbers: with an index as keyword, that of each body; then the first components of ``rests`` are source in which
        ``{}`` stands for the index.
    """

    prefixes: list[Path]
    rests: dict[int, Path]
    names: list[str] | None = None
    numbers: list[int] | None = None
    parameter: str = "params"
    keyword: str = ""


@dataclasses.dataclass
class Plan:
    """The parameters of a function, and its source for each leaf.

    Attributes:
      name: of the function.
      slots: its first parameters.
      keywords: name to the constant of each body.
      defaults: name to the source of the default of a constant.
      dims: symbolic dimensions that it is passed.
      derived: symbolic dimensions that shapes of its arguments tell: number of the argument, and axis.
      texts: source for each leaf.
      headers: identity of a loop to its first line.
      is_class: whether the function is a class, which has members.
      init_words: those of its keywords that its ``__init__`` takes.
      load_words: those of its parameters that its ``load`` takes.
    """

    name: str
    slots: list[Slot]
    keywords: dict[str, list[Hole]]
    defaults: dict[str, str]
    dims: list[str]
    derived: dict[str, tuple[int, int]]
    texts: list[str]
    headers: dict[int, Header]
    is_class: bool = False
    init_words: Sequence[str] = ()
    load_words: Sequence[str] = ()

    def given(self, number: int) -> list[Part]:
        """Return a call's arguments: paths of subtrees, constants, and dimensions."""
        paths: list[Part] = [Read(slot.prefixes[number]) for slot in self.slots]
        constants: list[Part] = [holes[number] for holes in self.keywords.values()]
        return [*paths, *constants, *(Hole(d, d, frozenset((d,))) for d in self.dims)]

    def arguments(self) -> list[str]:
        """Return the names of the parameters for what `given` returns."""
        return [*(slot.parameter for slot in self.slots), *self.words()]

    def words(self) -> list[str]:
        """Return the keywords of the constants and dimensions that `given` returns."""
        return [*self.keywords, *self.dims]

    def signature(self, args: Sequence[str]) -> list[str]:
        """Return the parameters: subtrees, arrays with the given names, and keywords."""
        return [*(slot.parameter for slot in self.slots), *args, *self.with_defaults(self.words())]

    def with_defaults(self, words: Collection[str]) -> list[str]:
        """Return the parameters for keywords, those with defaults at the end."""
        ordered = sorted(words, key=self.defaults.__contains__)
        return [f"{word}={self.defaults[word]}" if word in self.defaults else word for word in ordered]


_FEW = 2  # statements of a function that is named for what it computes
_PARTS = 3  # layers of a function that is named for them
_NUMBERED = re.compile(r"(?:.*[_./-])?[A-Za-z]{2,}[_.-]?\d+(?:[_.-]+\d+)*[_.-]+(?=[A-Za-z]{2})")
"""The number of a layer, and all before it, of a name that goes on behind it."""


def role(scope: str) -> str:
    """Return the role of a scope or node: its name without distinguishing numbers.

    ``layer_0_up`` and ``conv2_block1_1_up_3`` become ``up``.
    """
    name = re.sub(r"(?<=\D)([_.-]\d+)+$", "", scope) or scope
    return identifier(_NUMBERED.sub("", name, count=1))


def common_role(scopes: Sequence[str], default: str = "") -> str:
    """Return the last words that scopes' roles share, else a default or the first."""
    words = [role(scope).split("_") for scope in dict.fromkeys(scopes)]
    shared = 0
    while all(len(w) > shared and w[-1 - shared] == words[0][-1 - shared] for w in words):
        shared += 1
    name = "_".join(words[0][len(words[0]) - shared :]) if len(words) > 1 else ""
    if re.match("[a-z]", name):
        return name
    return default if default and len(set(map(role, scopes))) > 1 else role(scopes[0])


_KINDS = {
    "_batch_norm(": "normalized_layer",
    "_conv_transpose(": "transposed_conv",
    "_depthwise_conv(": "depthwise",
    "_layer_norm(": "norm",
    "_normalize_rows(": "norm",
    "_normalize(": "norm",
    "_conv(": "convolution",
    "_conv1d(": "convolution",
    "jnp.einsum(": "projection",
    " @ ": "dense",
    "jnp.take(": "embedding",
    "nnx.BatchNorm(": "normalized_layer",
    "nnx.ConvTranspose(": "transposed_conv",
    "nnx.LayerNorm(": "norm",
    "nnx.Conv(": "convolution",
    "nnx.LinearGeneral(": "projection",
    "nnx.Linear(": "dense",
    "nnx.Embed(": "embedding",
    "nnx.MultiHeadAttention(": "attention",
}
"""Name of a layer by the text of its first statement."""

KIND_DOCS = {
    "normalized_layer": "Normalize over the batch",
    "transposed_conv": "Upsample by a transposed convolution",
    "depthwise": "Convolve each channel by itself",
    "norm": "Normalize the last axis",
    "convolution": "Convolve",
    "projection": "Project by a kernel of several axes",
    "dense": "Apply a dense layer",
    "embedding": "Look up embeddings",
}
"""Docstrings of such layers."""


def kind(body: Body) -> str:
    """Return what a function of few statements computes; "" for others."""
    texts = [
        "".join(p for p in s.parts if isinstance(p, str))
        for i in body.items
        if isinstance(i, Code)
        for s in i.nodes
        if isinstance(s, Stmt)
    ]
    if len(texts) < len(body.items) or len(texts) > _FEW:
        return ""
    return next((name for text, name in _KINDS.items() if text in texts[0]), "")


def parts(body: Body) -> list[str]:
    """Return the names of a function's layers and activations, each once, in order."""
    found: list[str] = []
    for item in body.items:
        if isinstance(item, Call | Loop):
            called = item.function if isinstance(item, Call) else item.calls[0].function
            found += parts(called.bodies[0]) if called.inline else [called.plan.name.strip("_0123456789")]
        elif isinstance(item, Code):
            found += [name for name in (_part(stmt) for stmt in item.nodes) if name]
    return list(dict.fromkeys(found))


def _part(stmt: Any) -> str:
    """Return the name of a statement's layer or activation, "" for others."""
    text = "".join(p for p in stmt.parts if isinstance(p, str)) if isinstance(stmt, Stmt) else ""
    match = re.search(r"jax\.nn\.(\w+)\(|(?<!\w)_([a-z]\w*)\(| = jnp\.(tanh)\(", text)
    if match is not None:
        return next(filter(None, match.groups()))
    return next((name for part, name in _KINDS.items() if part in text), "")


def block_role(function: Function, taken: Collection[str]) -> str:
    """Return the name of a function for repeated parts of scopes.

    Args:
      function: it, with its parameters.
      taken: names of others.
    """
    found = parts(function.bodies[0])
    if 0 < len(found) <= _PARTS and len(function.bodies[0].items) <= _PARTS + 1 and "_".join(found) not in taken:
        return "_".join(found)
    slot = next((slot for slot in function.plan.slots if slot.names is not None), None)
    hint = common_role(slot.names, "block") if slot is not None and slot.names else "block"
    first = (
        next((role(rest[0].strip("_.-")) for rest in slot.rests.values() if rest[0]), "") if slot is not None else ""
    )
    return f"{first}_block" if hint in taken and first else hint


def leaves(bodies: Sequence[Body], headers: dict[int, Header]) -> list[Leaf]:
    """Return the leaves of equal bodies in source order; add headers of loops.

    The headers are those of the first body's loops.
    """
    found: list[Leaf] = []
    for vector in zip(*_parts([body.items for body in bodies], headers), strict=True):
        values: Any = [part.path if isinstance(part, Read) else part for part in vector]
        found.append(Leaf(values))
    return found


def _parts(bodies: Sequence[Sequence[Any]], headers: dict[int, Header]) -> list[list[Part]]:
    """Return the params and constants of equal sequences of items and statements."""
    found: list[list[Part]] = [[] for _ in bodies]

    def extend(parts: Sequence[Sequence[Part]]) -> None:
        for own, more in zip(found, parts, strict=True):
            own.extend(p for p in more if isinstance(p, Read | Hole))

    for nodes in zip(*bodies, strict=True):
        match nodes[0]:
            case Stmt():
                extend([n.parts for n in nodes])
            case Printed() | Code():
                extend(_parts([n.nodes for n in nodes], headers))
            case Def():
                extend([[part for arg in n.args for part in arg] for n in nodes])
                extend(_parts([n.body for n in nodes], headers))
            case Call(function=function) if function.inline:
                extend(_parts([n.body.items for n in nodes], headers))
            case Call(function=function):
                extend([function.plan.given(n.number) for n in nodes])
            case Loop(calls=calls):
                plan = calls[0].function.plan
                headers[id(nodes[0])], parts = header(
                    [[plan.given(c.number) for c in n.calls] for n in nodes], plan.arguments()
                )
                headers[id(nodes[0])].loops = nodes
                extend(parts)
    return found


def plan(
    function: Function, name: str, names: Names, marks: Marks, *, named: bool = True, indexed: bool = True
) -> Plan:
    """Return the parameters of a function; those that it calls have theirs already.

    Args:
      function: it.
      name: its name.
      names: the names that are taken in it.
      marks: hints and abstract values.
      named: whether params of one scope may be told by a name that their names begin with.
      indexed: whether they may also be told by a name alone, and by a number in their names.
    """
    bodies = function.bodies
    headers: dict[int, Header] = {}
    found = leaves(bodies, headers)
    for head in headers.values():
        names.reserve(head.variables)  # else loops would assign to parameters
    texts = [""] * len(found)
    reads: Any = {i: leaf.values for i, leaf in enumerate(found) if leaf.is_read}
    slots = subtrees(reads, len(bodies), named=named, indexed=indexed) if reads else []
    keywords: dict[str, list[Hole]] = {}
    for slot in slots:
        hint = _slot_hint(slot) if len(slots) > 1 else "params"
        slot.parameter = names.new(hint) if hint != "params" else "params"
        if slot.names is not None:
            slot.keyword = names.new("name")
            keywords[slot.keyword] = [Hole(literals.value(n), "name") for n in slot.names]
        elif slot.numbers is not None:
            slot.keyword = names.new("index")
            keywords[slot.keyword] = [Hole(str(n), "index") for n in slot.numbers]
    for slot in slots:
        for i, rest in slot.rests.items():
            texts[i] = slot.parameter + _subscripts(rest, slot)
    known: dict[tuple[str, ...], str] = {}
    defaults: dict[str, str] = {}
    needed: set[str] = set()
    for i, leaf in enumerate(found):
        if leaf.is_read:
            continue
        holes: Any = leaf.values
        key = tuple(h.text for h in holes)
        if len(set(key)) == 1:
            texts[i] = key[0]
            needed |= holes[0].dims
            continue
        counted = _counted(holes, keywords) if key not in known else None
        if counted is not None:
            known[key] = counted
        elif key not in known:
            known[key] = names.new(holes[0].hint)
            keywords[known[key]] = holes
            default = {h.default for h in holes}
            if len(default) == 1 and None not in default:
                defaults[known[key]] = default.pop()
        texts[i] = known[key]
    derived = {}
    for d in sorted(needed):
        place = _place(d, bodies, marks)
        if place is not None:
            derived[d] = place
    dims = sorted(needed - derived.keys())
    return Plan(name, slots, keywords, defaults, dims, derived, texts, headers)


def _counted(holes: Sequence[Hole], keywords: Mapping[str, Sequence[Hole]]) -> str | None:
    """Return numbers or names of layers in terms of a keyword that counts."""
    texts = [hole.text for hole in holes]
    numbers = integers(texts) if holes[0].hint == "layer" else []
    named = holes[0].hint == "name" and all(re.fullmatch(r'"[^"\\]*"', text) for text in texts)
    names = NumberedNames.of([text[1:-1] for text in texts]) if named else None
    for name, others in keywords.items():
        given = integers([other.text for other in others]) if others[0].hint in ("layer", "index") else []
        found = affine(names.numbers if names else numbers, given, name) if given and (names or numbers) else None
        if found is not None:
            return names.source(found) if names else found
    return None


def _place(dim: str, bodies: Sequence[Body], marks: Marks) -> tuple[int, int] | None:
    """Return the argument and axis whose size is a dimension in all bodies."""

    def shape(value: int) -> tuple[Any, ...]:
        return getattr(marks.avals[value], "shape", ())

    for i, value in enumerate(bodies[0].free):
        for axis, size in enumerate(shape(value)):
            if str(size) == dim and all(
                axis < len(shape(b.free[i])) and str(shape(b.free[i])[axis]) == dim for b in bodies
            ):
                return i, axis
    return None


def _subscripts(path: Path, slot: Slot) -> str:
    start = ""
    if slot.keyword and path:
        first, *rest = path
        if slot.numbers is not None:
            start = f"[{first.replace(INDEX, slot.keyword)}]"
        elif first:
            after = literals.value(first.replace("{", "{{").replace("}", "}}"))
            start = f'[f"{{{slot.keyword}}}{after[1:]}]'
        else:
            start = f"[{slot.keyword}]"
        path = tuple(rest)
    return start + "".join(f"[{literals.value(part)}]" for part in path)


def _slot_hint(slot: Slot) -> str:
    path = slot.prefixes[0]
    return role(path[-1]) if path else "params"


def subtrees(reads: dict[int, list[Path]], count: int, *, named: bool = True, indexed: bool = True) -> list[Slot]:
    """Partition params into subtrees with equal paths within them.

    Args:
      reads: number to the param's path in each of the bodies.
      count: number of bodies.
      named: whether there may be a slot with ``names``.
      indexed: whether it may have empty names, and whether the only slot may have ``numbers``.
    """
    slots = _partition(list(reads), reads, count, named, indexed)
    numbered = _numbered(reads, count) if indexed and named and len(slots) > 1 else None
    return slots if numbered is None else [numbered]


def _numbered(reads: dict[int, list[Path]], count: int) -> Slot | None:
    """Return a slot for params whose names have a number that differs."""
    prefixes = [common_prefix([paths[i] for paths in reads.values()]) for i in range(count)]
    rests = {j: [path[len(p) :] for path, p in zip(paths, prefixes, strict=True)] for j, paths in reads.items()}
    if len(set(prefixes)) > 1 or any(len({path[1:] for path in paths}) > 1 for paths in rests.values()):
        return None
    firsts = {j: [path[0] for path in paths] for j, paths in rests.items() if paths[0]}
    names = {j: NumberedNames.of(vector) for j, vector in firsts.items() if len(set(vector)) > 1}
    known = [found for found in names.values() if found is not None]
    if not known or len(known) < len(names):
        return None
    given = min((found.numbers for found in known), key=lambda numbers: max(numbers) - min(numbers))
    texts: dict[int, Path] = dict.fromkeys(rests, ())
    for j, vector in firsts.items():
        found = names.get(j)
        index = affine(found.numbers, given, INDEX) if found is not None else None
        if found is not None and index is None:
            return None
        texts[j] = (found.source(index) if found and index else literals.value(vector[0]), *rests[j][0][1:])
    return Slot(prefixes, texts, numbers=list(given))


def _partition(members: list[int], reads: dict[int, list[Path]], count: int, named: bool, indexed: bool) -> list[Slot]:
    """Partition params as `subtrees` does, but for ``numbers``."""
    every = range(count)
    prefixes = [common_prefix([reads[j][i] for j in members]) for i in every]
    if len(members) == 1 and all(len(path) > 1 for path in prefixes):
        shorter = [path[:-1] for path in prefixes]
        if len({path[-1] for path in prefixes}) == 1:
            prefixes = shorter
    rests = {j: [reads[j][i][len(prefixes[i]) :] for i in every] for j in members}
    if all(rest == found[0] for found in rests.values() for rest in found):
        return [Slot(prefixes, {j: found[0] for j, found in rests.items()})]
    found = _named(prefixes, rests, count, indexed) if named else None
    if found is not None:
        return [found]
    groups: dict[Any, list[int]] = {}
    for j, paths in rests.items():
        groups.setdefault(paths[0][:1], []).append(j)
    if len(groups) == 1:
        groups = {}
        for j in members:
            groups.setdefault(tuple(reads[j]), []).append(j)
    return [slot for group in groups.values() for slot in _partition(group, reads, count, named, indexed)]


def _named(prefixes: list[Path], rests: dict[int, list[Path]], count: int, indexed: bool) -> Slot | None:
    """Return a slot for params whose names begin with a name that differs.

    The param ``block1_conv/kernel`` begins with the name ``block1_conv``, which differs between the bodies.
    """
    if not all(found[i] for found in rests.values() for i in range(count)):
        return None
    names = []
    for i in range(count):
        every = {found[i][0] for found in rests.values()}
        common = common_prefix(every)
        match = re.fullmatch(r"(.*[^_.\-])[_.\-]+.*?", common, re.DOTALL)
        if indexed and common in every:
            match = re.fullmatch(r"(.+)", common, re.DOTALL)
        if match is None:
            return None
        names.append(match[1])
    if len({found[0][0] for found in rests.values()}) < 2:
        return None
    cut = {
        j: [(path[0][len(name) :], *path[1:]) for path, name in zip(found, names, strict=True)]
        for j, found in rests.items()
    }
    if any(rest != found[0] for found in cut.values() for rest in found):
        return None
    return Slot(prefixes, {j: found[0] for j, found in cut.items()}, names)
