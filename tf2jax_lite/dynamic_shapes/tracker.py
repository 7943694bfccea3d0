"""Sizes that data decides, inside ``jit``: an array with room for the most there can be, of which the first are there.

TensorFlow's XLA bridge calls them bounded dynamic dimensions. An op that finds a number of things that depends on
values (`tf.where`, `tf.unique`) computes an array with room for all there can be, and their number; `Extents.cut` gives
it a first dimension that is a symbol (``jax.export``'s symbolic dimensions), and all that follows is traced with that
symbol, as for export. `tf2jax_lite.dynamic_shapes.driver` then evaluates what was traced with arrays of fixed shapes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from tf2jax_lite.jaxprs.compat import Primitive, ShapedArray
from tf2jax_lite.support.errors import OpError

from .bounds import MOST, as_size, at_least, constant_size, equal_where_enough, is_found, is_size, lesser, limits, most
from .dim_expr import FOUND, largest, names, parsed, value
from .intervals import range_of
from .provenance import Entry, column_sources, entries, equation_of, name_of, value_of

__all__ = [
    "SINGLE",
    "Agreed",
    "Extents",
    "UnboundedError",
    "as_size",
    "at_least",
    "cut",
    "is_found",
    "is_size",
    "lesser",
    "limits",
    "most",
    "natural",
    "prefix_p",
    "reshaped_p",
    "room",
]

_PREFIX = FOUND
SINGLE = f"{FOUND}0"
"""The variable of sizes that are 1 in a call and open in the signature, where 1 is not to be broadcast."""
# More than this many rows are not made room for because of what a number could be at most.
_MOST_ROOM = 1 << 26

prefix_p = Primitive("prefix")
"""The first elements of an array, as many as a number says.

Parameters: ``dim``, the dimension that the result has first; ``name``, the variable of which it is one less (a variable
is at least 1, a size at least 0), or "" where the number is taken to be ``dim``; ``is_sure``, whether there is room.
A constant number is ``dim`` for sure.
"""


@prefix_p.def_abstract_eval
def _prefix(data: Any, count: Any, *, dim: Any, name: str, is_sure: bool) -> Any:
    del count, name, is_sure
    return ShapedArray((dim, *data.shape[1:]), data.dtype)


reshaped_p = Primitive("reshaped")
"""An array in another shape, of sizes of which JAX cannot tell that they are sizes, or as many together as before.

Parameters: ``shape``, of the result; ``real``, what its dimensions come to; ``names``, for each dimension the variable
of which it is one less if that has no size yet, else "".
"""


@reshaped_p.def_abstract_eval
def _reshaped(x: Any, *, shape: Any, real: Any, names: Any) -> Any:
    del real, names
    return x.update(shape=shape)


def _named(dim: Any) -> str:
    """Returns the variable that a dimension is one less than, "" if it is more than that."""
    found = re.fullmatch(rf"({_PREFIX}\d+) - 1", str(dim))
    return "" if found is None else found[1]


class UnboundedError(OpError):
    """The size of a result depends on traced values: tracing with `Extents` may do."""

    def __init__(self, problem: str):
        super().__init__(f"{problem}; convert with override_config('dynamic_shape_bound', n), its upper bound")


class Agreed:
    """Which sizes are taken to be equal, and how large those can be that nothing else tells of.

    TensorFlow finds at run time whether two sizes fit. Here a program is traced; where it fails as two sizes meet that
    nothing says are equal, it is traced anew with one for both. Whether they are is then seen when it runs.

    Attributes:
      same: the dimensions, as text, that variables are one more than, by name.
      rooms: the most that a size can be, by the name of its variable.
      sums: the dimensions, as text, that others are which are no variable's alone, by their text.
    """

    def __init__(self) -> None:
        self.same: dict[str, str] = {}
        self.rooms: dict[str, Any] = {}
        self.sums: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.same) + len(self.rooms) + len(self.sums)


class Extents:
    """The sizes that data decides in one call.

    Attributes:
      limit: how many elements there is room for; None: as many as there can be.
      open: the variables of sizes of which no room is known: what is traced cannot be evaluated.
      likely: the most that such a size can be unless something is amiss, by the name of its variable.
      choices: by a size that a branch gave, as text, what names the branch, and the size in each
      (lowering/merging/size_variants.py). bounds: the most that such a size is, in terms of others, by its text.

    Args:
      limit: see above.
      scope: that of symbolic dimensions that arguments have already, if any.
      agreed: what was found out when the program was traced before.
    """

    def __init__(
        self, limit: int | None = None, scope: export.SymbolicScope | None = None, agreed: Agreed | None = None
    ):
        self.limit = limit
        self.open: set[str] = set()
        self.likely: dict[str, Any] = {}
        self._agreed = Agreed() if agreed is None else agreed
        self._scope = export.SymbolicScope() if scope is None else scope
        self._found: dict[Any, tuple[str, Any, Any]] = {}
        self._names = 0
        self._next: str | None = None
        self._wholes: dict[frozenset[Any], Any] = {}
        self._sums: dict[str, str] = {}  # as the wholes, by the sums of their parts
        self._products: dict[str, Any] = {}
        self._covered: dict[Any, tuple[Any, Any]] = {}
        self._rooms: dict[str, Any] = {}
        self.choices: dict[str, tuple[Any, tuple[Any, ...]]] = {}
        self.bounds: dict[str, Any] = {}

    @property
    def mark(self) -> int:
        """Tells sizes found from here on from those found before; see `is_later`."""
        return self._names

    def is_later(self, dim: Any, mark: int) -> bool:
        """Whether a dimension has to do with a size that was found after `mark` was read."""
        return any(int(name.removeprefix(_PREFIX)) > mark for name in _names_in(dim) if name.startswith(_PREFIX))

    def room(self, greatest: Any) -> Any:
        """Returns how many elements there is to be room for, where there are at most so many; None: nothing tells."""
        self._next = None
        if self.limit is not None or greatest is not None:
            return greatest if self.limit is None else self.limit
        # The size is named before it is known which it is.
        self._next = name = self._new_name()
        if name in self._agreed.same:
            dim = self._dim(self._agreed.same[name])
            size = most(dim)
            return dim if size is None else size
        if name in self._agreed.rooms:
            return self._agreed.rooms[name]
        self.open.add(name)
        return self._dim(f"{name} - 1")

    def sizes(self, value: Any) -> np.ndarray:
        """Returns traced whole numbers that are to be sizes as dimensions.

        Args:
          value: a traced scalar or vector of integers.
        """
        if value.shape == ():
            found = [Entry(value, 0)]
        else:
            found = entries(value, value.shape[0])
        out = np.empty(len(found), object)
        out[:] = [e.offset if e.is_known else self._size(e) for e in found]
        return out.reshape(value.shape)

    def number(self, count: Any, likely: Any = None) -> Any:
        """Returns a traced number of things as a dimension.

        Args:
          count: a traced integer.
          likely: the most that it is where all is well. Where nothing else tells how much room there is to be, it is
            taken to be so, and what it is not for is NaN.
        """
        return self._size(Entry(count, 0), likely)

    def settle(self) -> bool:
        """Takes sizes without a limit to be what they are likely to be at most; False where one tells nothing."""
        if not self.open <= self.likely.keys():
            return False
        self._agreed.rooms.update({name: self.likely[name] for name in self.open})
        return True

    def cover(self, ids: Any, rows: Any) -> None:
        """Keeps in mind that ids name all of so many rows, the last one last."""
        self._covered[name_of(ids)] = rows, ids

    def covered(self, ids: Any) -> Any:
        """Returns how many rows ids name if `cover` was told of them, or of what they are a column of; else None."""
        for source in column_sources(ids):
            if (found := self._covered.get(name_of(source))) is not None:
                return found[0]
        return None

    def part(self, places: Any, count: Any, key: Any, kept: Any) -> Any:
        """Returns the first ``count`` of a vector, a size that ``key`` tells from others."""
        return self.first(places, count, key, kept)

    def first(self, rows: Any, count: Any, key: Any, kept: Any, *, is_sure: bool = True) -> Any:
        """Returns the first ``count`` rows of an array, a size that ``key`` tells from others.

        Args:
          rows: an array.
          count: an int32 scalar.
          key: tells the size from others.
          kept: what is not to be dropped as long as the key is used.
          is_sure: whether there are so many; if not, what depends on it is NaN where there are fewer.
        """
        self._next = None
        room = jnp.asarray(rows.shape[0]).astype(np.int32)
        count = jnp.maximum(count, 0) if not is_sure else jnp.clip(count, 0, room)
        return self._prefix((rows,), count, key, kept, is_sure=is_sure)[0]

    def bounded(self, dim: Any, size: Any) -> Any:
        """Returns what a number is at most, in terms of one size rather than of those found within room for that.

        Args:
          dim: a number: an int, or a dimension less another.
          size: a size.
        """
        (own,) = names(parsed(str(size))) if is_found(size) else ("",)
        for _ in range(len(self._rooms)):
            tree = parsed(str(dim))
            inside = {n for n in names(tree) & self._rooms.keys() if own in _names_in(self._within(n))}
            if not inside:
                return dim
            name = min(inside)
            variables = {n: self._dim(n) for n in names(tree)}
            more = value(tree, {**variables, name: variables[name] + 1}) - dim
            if not isinstance(more, int) or more < 0:
                return dim
            dim = value(tree, {**variables, name: self._within(name) + 1})
        return dim

    def _within(self, name: str) -> Any:
        """Returns what a size is at most, be it in terms of others."""
        return self.bounds.get(f"{name} - 1", self._rooms[name])

    def most_where(self, dim: Any, size: Any, greatest: int) -> int | None:
        """Returns the most that a dimension can be where a size is at most so large; None if nothing tells."""
        if isinstance(dim, int):
            return dim
        tree, known = parsed(str(dim)), MOST.get(self._scope, {})
        known = {**known, **dict.fromkeys(names(parsed(str(size))), greatest + 1)}
        return largest(tree, known) if names(tree) <= known.keys() else None

    def reshaped(self, x: Any, shape: Sequence[Any]) -> Any:
        """Returns an array in another shape: a product of sizes is a size of its own."""
        real = self.real(shape)
        known = [is_size(dim) for dim in real]
        if all(known) and real == tuple(shape) and math.prod(x.shape) == math.prod(shape):
            return lax.reshape(x, shape)
        if (many := math.prod(self.real(x.shape))) != math.prod(real):
            sizes = tuple(map(as_size, real))
            if is_found(many) and equal_where_enough(many, wanted := math.prod(sizes)):
                flat, count = self.reshaped(x, [many]), jnp.asarray(many).astype(np.int32)
                return self.reshaped(prefix_p.bind(flat, count, dim=wanted, name="", is_sure=True), sizes)
            self._agree_on_count(self.real(x.shape), real)
            raise OpError(f"nothing tells that {list(x.shape)} has as many elements as {list(shape)}")
        dims, names = list(shape), [""] * len(shape)
        for i, dim in enumerate(real):
            if not known[i]:
                name, dims[i] = self._variable(("product", str(dim)), None, dim)
                names[i] = "" if name in self._products else name
                self._products[name] = dim
        return reshaped_p.bind(x, shape=tuple(dims), real=real, names=tuple(names))

    def real(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Returns a shape with what dimensions come to that are products of others."""
        return tuple(map(self._real, shape))

    def _real(self, dim: Any) -> Any:
        return self._products.get(_named(dim), dim)

    def size_of(self, entry: Entry) -> Any:
        """Returns a number as a dimension if it is one, or one was made of it and it is not below 0; None if not."""
        if entry.is_known:
            return entry.offset
        found = self._found.get((name_of(entry.base), 0))
        return found[1] + entry.offset if found is not None and _counts(value_of(Entry(entry.base, 0))) else None

    def _size(self, entry: Entry, likely: Any = None) -> Any:
        offset, base = entry.offset, value_of(Entry(entry.base, 0))
        if isinstance(offset, int) and offset > 0 and _counts(base):
            return self._size(Entry(entry.base, 0)) + offset  # as what it is compared with is told by its parts
        whole = value_of(entry)
        product = self._product(whole)
        if product is not None:
            return product
        size, count = self.room(natural(whole)), whole.astype(np.int32)
        if self._next and likely is not None:
            greatest, same = most(likely), _named(self._agreed.same.get(self._next, ""))
            self.likely.setdefault(same or self._next, likely if greatest is None else greatest)
        count = jnp.maximum(count if self._next else jnp.minimum(count, size), 0)
        places = lax.iota(np.int32, size)
        return self._prefix((places,), count, (name_of(entry.base), entry.offset), entry.base)[0].shape[0]

    def _product(self, value: Any) -> Any:
        """Returns a multiple of a size as such, so that what is as long can be parted; None if a number is none."""
        name, factors, _ = equation_of(value)
        if name != "mul" or any(not _counts(f) for f in factors):
            return None
        found = [entries(f.reshape(1), 1)[0] for f in factors]
        known = [e.offset for e in found if e.is_known]
        if not any(map(is_found, known)) and (len(known) != 1 or natural(value) is None):
            return None
        dims = [e.offset if e.is_known else self._size(e) for e in found]
        return self.reshaped(lax.broadcasted_iota(np.int32, dims, 0), [math.prod(dims)]).shape[0]

    def _prefix(
        self, arrays: tuple[Any, ...], count: Any, key: Any, kept: Any, *, is_sure: bool = True
    ) -> tuple[Any, ...]:
        room, is_sure = arrays[0].shape[0], is_sure and self._next is None
        name, dim = self._variable(key, kept, room)
        name = "" if name in self._agreed.same else name
        return tuple(prefix_p.bind(jnp.asarray(x), count, dim=dim, name=name, is_sure=is_sure) for x in arrays)

    def _variable(self, key: Any, kept: Any, room: Any) -> tuple[str, Any]:
        name, self._next = self._next, None
        if key not in self._found:
            name = self._new_name() if name is None else name
            dim = self._dim(self._agreed.same.get(name, f"{name} - 1"))
            # What decides is kept, as an array that is dropped may leave its identity to another.
            self._found[key] = (name, dim, kept)
            self._rooms[name] = room
            known = most(room)
            of_scope = MOST.setdefault(self._scope, {})
            of_scope.pop(name, None)  # of another call, or of another trace of this one
            if known is not None and name not in self._agreed.same:
                of_scope[name] = known + 1
        elif name is not None and name in self.open:
            self._agreed.same.setdefault(name, str(self._found[key][1]))
        return self._found[key][:2]

    def _new_name(self) -> str:
        self._names += 1
        return f"{_PREFIX}{self._names}"

    def _dim(self, text: str) -> Any:
        tree, same = parsed(text), self._agreed.same
        variables = {name: self._dim(same[name]) + 1 for name in names(tree) & same.keys()}
        others = names(tree) - same.keys()
        variables |= {name: export.symbolic_shape(name, scope=self._scope)[0] for name in others}
        return value(tree, variables)

    def agrees(
        self, shapes: Sequence[Sequence[Any]], problem: str, fitting: Callable[[], Sequence[Mapping[str, int]]]
    ) -> bool:
        """Takes two sizes to be equal that a node could not put up with; False where there are none such.

        Args:
          shapes: of what the node takes.
          problem: what the node's error says: where it names sizes, only those are looked at.
          fitting: values of variables with which the node was found to work. Sizes that differ in one of those need
            not be equal: of a concatenation, the sizes along its axis.
        """
        named = _listed(problem)
        named = named if any(_PREFIX in text for text in named) else set()
        found = fitting()

        def may_differ(one: Any, other: Any) -> bool:
            trees = parsed(str(one)), parsed(str(other))
            return any(value(trees[0], sizes) != value(trees[1], sizes) for sizes in found)

        for a, b in itertools.combinations(shapes, 2):
            # Shapes are aligned as operands are broadcast, or by what they start with: as more of their sizes fit.
            ways = [_facing(a, b), list(zip(a, b, strict=False))]
            ways.sort(key=_misfits)
            pairs = [pair for pair in itertools.chain(*ways) if not may_differ(*pair)]
            if any(self._agree_where_enough(*sorted(pair, key=_length)) for pair in pairs):
                return True
            # A number that stands elsewhere may be any: only of sizes that are found it is likely to be the same one.
            others = [*zip(a[-1:], b[-2:-1], strict=False)]
            others += [pair for pair in itertools.product(a, b) if all(map(is_found, pair))]
            for one, other in (*pairs, *(pair for pair in others if not may_differ(*pair))):
                if named and not named.issuperset((str(one), str(other))):
                    continue
                if self._agree(one, other) or self._agree(other, one):
                    return True
            for one, other in pairs:
                if (
                    is_found(one)
                    and is_found(other)
                    and (self._agree_on_sum(one, other) or self._agree_on_sum(other, one))
                ):
                    return True
        # Last, sizes that are given: nothing else fits them but 1.
        for a, b in itertools.combinations(shapes, 2):
            pairs = itertools.product(a, b) if found else _facing(a, b)
            if any(not may_differ(*pair) and self._agree_on_given(*pair, is_needed=bool(found)) for pair in pairs):
                return True
        return False

    def _agree_on_given(self, one: Any, other: Any, *, is_needed: bool) -> bool:
        """Takes a size to be a given one that it meets, whichever of two is that; 1 only where it is not broadcast."""
        given, dim = sorted((one, other), key=is_found)
        return not is_found(given) and (is_needed or given not in (0, 1)) and self._agree(dim, given, must=True)

    def _agree_on_sum(self, dim: Any, other: Any) -> bool:
        """Takes a size that is no variable's alone to be another one, which was found before."""
        last, first = (max(int(n) for n in re.findall(rf"\b{_PREFIX}(\d+)", str(d))) for d in (dim, other))
        if last <= first or str(dim) in self._agreed.sums or SINGLE in f"{dim} {other}":
            return False
        self._agreed.sums[str(dim)] = str(other)
        return True

    def _agree_where_enough(self, other: Any, dim: Any) -> bool:
        """Takes a size to be another one that is written shorter, if it is so wherever enough is there.

        Of n parts, a zero and what all but the last of them are is ``max(n - 1, 0) + 1`` together.
        """
        shorter = _length(other) < _length(dim) and is_found(dim) and SINGLE not in str(dim)
        if not shorter or str(dim) in self._agreed.sums or not equal_where_enough(dim, other):
            return False
        self._agreed.sums[str(dim)] = str(other)
        return True

    def unified(self, value: Any) -> Any:
        """Returns an array with the sizes that its own were taken to be as they met others, or as parts were joined.

        A size that is one number whatever the data is that number.
        """
        if not isinstance(value, jax.Array):
            return value
        sums = {**self._sums, **self._agreed.sums}
        for axis, size in enumerate(value.shape):
            if not is_found(size):
                continue
            if isinstance(same := constant_size(size), int):
                count: Any = np.int32(same)
            elif (text := sums.get(str(size))) is not None:
                same, count = self._dim(text), jnp.asarray(size).astype(np.int32)
            else:
                continue
            rows = prefix_p.bind(jnp.moveaxis(value, axis, 0), count, dim=same, name="", is_sure=True)
            value = jnp.moveaxis(rows, 0, axis)
        return value

    def _agree_on_count(self, shape: Sequence[Any], other: Sequence[Any]) -> bool:
        """Takes a size to be what makes two shapes have as many elements, if it is the only one that may not fit."""
        one, two = list(shape), list(other)
        for dim in shape:
            if dim in two:
                one.remove(dim)
                two.remove(dim)
        a, b = ([math.prod(d for d in dims if isinstance(d, int))] for dims in (one, two))
        a += [dim for dim in one if not isinstance(dim, int)]
        b += [dim for dim in two if not isinstance(dim, int)]
        if len(a) > len(b):
            a, b = b, a
        if len(b) != 2 or not b[0] or a[0] % b[0] or (len(a) == 2 and a[0] != b[0]):
            return False
        size = a[1] if len(a) == 2 else a[0] // b[0]
        return self._agree(b[1], size, must=True) or self._agree(size, b[1], must=True)

    def _agree(self, dim: Any, other: Any, *, must: bool = False) -> bool:
        """Takes a size to be what another is, if it was found after that, or one of which there is no other way.

        Args:
          dim: the size.
          other: the other one.
          must: whether nothing else would fit: of two that meet as operands one could be 1.
        """
        found = re.fullmatch(rf"({_PREFIX}(\d+)) - 1", str(dim))
        if found is None or not (must or is_found(other) or self._may_be(found[1], other)):
            return False
        numbers = [int(n) for n in re.findall(rf"\b{_PREFIX}(\d+)", str(other))]
        number, name, size = int(found[2]), found[1], most(other)
        if number in numbers or (str(other) == SINGLE and name not in self.likely):
            return False
        if max(numbers, default=0) > number:
            if name not in self.open or size is None:
                return False
            self._agreed.rooms[name] = size  # the other is taken to be this one once there is room
        elif name in self._agreed.same:
            return False
        else:
            self._agreed.same[name] = str(other)
        return True

    def _may_be(self, name: str, given: Any) -> bool:
        """Whether a size is likely to be one that is given: that is the most it can be, or nothing else tells of it."""
        return given != 1 and (name in self.open or self._rooms.get(name) == given)

    def split(self, sizes: list[Any], whole: Any) -> None:
        """Keeps in mind that so many rows were parted into parts of these sizes."""
        self._wholes[frozenset(sizes)] = whole
        if len(sizes) > 1:
            self._sums[str(sum(sizes))] = str(whole)

    def joined(self, sizes: list[Any]) -> Any:
        """Returns how many rows were parted into parts of these sizes; None if none were."""
        return self._wholes.get(frozenset(sizes))

    def cut(self, arrays: tuple[Any, ...], count: Any, *, of: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns arrays with the same first dimension cut to their first ``count`` rows.

        Args:
          arrays: what is cut.
          count: how many rows are there.
          of: what alone decides how many: an array, and perhaps a number. What it decides twice is one dimension.
        """
        count = jnp.asarray(count, np.int32)
        if self._next is None:
            count = jnp.minimum(count, jnp.asarray(arrays[0].shape[0]).astype(np.int32))
        return self._prefix(arrays, count, tuple(v if isinstance(v, int) else id(v) for v in of), of)


def _names_in(dim: Any) -> set[str]:
    return set() if isinstance(dim, int) else names(parsed(str(dim)))


def _counts(value: Any) -> bool:
    """Whether a traced number is not below 0, whatever the data."""
    least = range_of(value).least
    return least is not None and least >= 0


def _listed(text: str) -> set[str]:
    """Returns what a text has between commas in brackets of any kind."""
    found, starts = set(), []
    for i, sign in enumerate(text):
        if sign in "([":
            starts.append(i + 1)
        elif sign in "),]" and starts:
            found.add(text[starts.pop() : i].strip())
            if sign == ",":
                starts.append(i + 1)
    return found


def _facing(a: Sequence[Any], b: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Returns which dimensions face each other as operands are broadcast."""
    return list(zip(a[::-1], b[::-1], strict=False))


def _length(dim: Any) -> int:
    return len(str(dim))


def _misfits(pairs: list[tuple[Any, Any]]) -> int:
    return sum(one is not other and one != other and 1 not in (one, other) for one, other in pairs)


def natural(count: Any) -> Any:
    """Returns the most that a traced number can be by what it is computed of, if that is no more than arrays have."""
    greatest = range_of(count).most
    if greatest is not None and not isinstance(greatest, float) and is_found(greatest):
        greatest = most(greatest)
    if isinstance(greatest, int):
        return greatest if greatest <= _MOST_ROOM else None
    return None if isinstance(greatest, float) else greatest


def room(bound: int | Extents | None, most: Any, problem: str) -> Any:
    """Returns how many rows a result is to have room for.

    Args:
      bound: what an op of dynamic shape gets.
      most: how many there can be; None if nothing tells but what the result meets.
      problem: what the error says.

    Raises:
      UnboundedError: there is no bound.
    """
    if isinstance(bound, Extents):
        return bound.room(most)
    if isinstance(bound, int):
        return bound
    raise UnboundedError(problem)


def cut(bound: int | Extents | None, count: Callable[[], Any], *arrays: Any, of: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns padded arrays as an op is to return them: cut to ``count()`` rows, or padded as they are.

    See `Extents.cut`.
    """
    return bound.cut(arrays, count(), of=of) if isinstance(bound, Extents) else arrays
