"""What a tensor list is here; the ops on it are in ops/containers/tensor_list_elements.py and
ops/containers/tensor_list_stack.py.

A list whose length is known while tracing holds its elements one by one (``items``): they keep what is known of them,
and may differ in shape. In loops, and after branches that data picks, a list is *packed*: one buffer whose elements
are stacked on a first axis. Then its length may be traced, the buffer is a fixed capacity, and elements past the
length are zeros or stale.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import OpError

from . import specs
from .static import UNKNOWN, canonical, known

__all__ = [
    "ElementShape",
    "ListLacksRoomError",
    "TensorList",
    "add_lists",
    "is_full",
    "reaching",
    "resized",
    "zeros_like_list",
]

ElementShape = tuple[Any, ...] | None


class ListLacksRoomError(OpError):
    """A list is read that is longer within a loop's iteration than its room: the loop makes more and starts anew."""


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class TensorList:
    """A list of elements.

    Attributes:
      buffer: of a packed list, the elements stacked on a new first axis (a pytree of arrays, so that elements may be
        lists themselves), or None as long as nothing is known of an element's shape.
      length: number of elements: an int, a symbolic dimension, or a traced int32 scalar.
      dtype: element dtype as the graph declares it (None for lists of lists).
      shape: element shape as the graph declares it, None for unknown dimensions or rank.
      limit: most elements it may hold, or -1.
      owner: which TensorArray's contents these are (ops/containers/tensor_array.py), or None.
      items: of a list that is not packed, its elements, None for those never set. Its length is their number.
      roomy: whether the capacity is known to be enough for what a loop hands on of it. It does not grow then, and
        ``spare`` goes below zero instead.
      spare: of a list whose length is traced, how many places are known to be free, whatever its length is. Below zero,
        so many may be missing: then it cannot be read. None if nothing is known: then it does not grow, what is put
        past its capacity is lost, and is NaN where it is read (as far as there is one).
      stale: of such a list, whether what lies past its length may be what was there before, not zeros.
      alike: what each element is, if a loop has put the same into every one: TensorFlow's gradients keep a list of the
        weights that a loop reads, once for each iteration. What takes an element has it without reading the buffer.
      most: the most elements that it, or one that it was made of, was known to have; for `lowering.trip_count` alone.
    """

    buffer: Any
    length: Any
    dtype: Any = None
    shape: ElementShape = None
    limit: int = -1
    owner: Any = None
    items: tuple[Any, ...] | None = None
    roomy: bool = False
    spare: int | None = 0
    stale: bool = False
    alike: Any = None
    most: int = 0

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Returns children and auxiliary data: a static length is not a child."""
        rest = (self.dtype, self.shape, self.limit, self.owner, (self.roomy, self.spare, self.stale))
        if self.is_traced:
            return (self.buffer, self.items, self.alike, self.length), (True, None, *rest)
        return (self.buffer, self.items, self.alike), (False, self.length, *rest)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> TensorList:
        """Undoes `tree_flatten`."""
        traced, length, *rest, marks = aux
        buffer, items, alike, *lengths = children
        roomy, spare, stale = marks
        length = lengths[0] if traced else length
        return cls(buffer, length, *rest, items=items, roomy=roomy, spare=spare, stale=stale, alike=alike)

    @property
    def capacity(self) -> Any:
        """Elements that there is room for."""
        leaves = jax.tree.leaves(self.buffer)
        return leaves[0].shape[0] if leaves else (0 if self.is_traced else self.length)

    @property
    def places(self) -> Any:
        """Elements that there is room for, or would have to be if anything was known of them."""
        return self.capacity - min(self.spare or 0, 0) if self.buffer is None else self.capacity

    @property
    def longest(self) -> Any:
        """The most elements that it may have: ``spare`` must be known."""
        return self.capacity - self.spare

    def spare_of(self, capacity: Any) -> int | None:
        """Returns what ``spare`` would be if it had another capacity."""
        if self.spare is None:
            return None
        spare = capacity - self.longest
        return spare if isinstance(spare, int) else min(self.spare, 0)

    @property
    def is_traced(self) -> bool:
        """Whether the length is a traced value."""
        return isinstance(self.length, jax.Array | jax.ShapeDtypeStruct | np.ndarray)

    @property
    def is_host(self) -> bool:
        """Whether numpy alone can go on with it: its length is an int, and no element is traced."""
        if self.is_traced or not isinstance(self.length, int):
            return False
        return self.buffer is UNKNOWN or all(
            isinstance(leaf, (np.ndarray, np.generic)) for leaf in jax.tree.leaves(self)
        )

    def with_buffer(self, buffer: Any, length: Any = None) -> TensorList:
        """Returns the list packed, with another buffer, and another length if given; no place of it is free then."""
        length = self.length if length is None else length
        most = max(self.most, length) if isinstance(length, int) else self.most
        new = dataclasses.replace(self, buffer=buffer, items=None, length=length, alike=None, most=most)
        if not new.is_traced:
            return dataclasses.replace(new, spare=0, stale=False)
        return new.with_spare(None if self.spare is None else min(self.spare, 0))

    def with_spare(self, spare: int | None) -> TensorList:
        """Returns the list with another number of places that are known to be free."""
        return self if spare == self.spare else dataclasses.replace(self, spare=spare)

    def with_capacity(self, capacity: Any) -> TensorList:
        """Returns a packed list cut, or padded with zeros, to another capacity."""
        if self.buffer is None or self.capacity == capacity:
            return self
        lst = self.poisoned() if self.is_traced and self.spare is None else self  # zeros would stand for what is lost
        return dataclasses.replace(lst.with_buffer(resized(lst, capacity)), spare=self.spare_of(capacity))

    def with_items(self, items: tuple[Any, ...]) -> TensorList:
        """Returns the list with other elements, not packed."""
        count = len(items)
        return dataclasses.replace(self, buffer=None, items=items, length=count, alike=None, most=max(self.most, count))

    def forgotten(self, length: int | None = None) -> TensorList:
        """Returns a list of which only the length is known, for numpy to go on with."""
        return self.with_buffer(UNKNOWN, length)

    def settled(self) -> TensorList:
        """Returns the list with its length as an int where that is known now, as it always is outside ``jit``."""
        count = known(self.length) if self.is_traced else None
        if count is None:
            return self
        return dataclasses.replace(self.with_buffer(resized(self, int(count)), int(count)), roomy=False)

    def packed(self) -> TensorList:
        """Returns the list with its elements in one buffer.

        Raises:
          OpError: they differ in shape or dtype.
        """
        if self.items is None:
            return self
        if all(item is None for item in self.items):
            full = bool(self.items) and is_full(self.shape) and self.dtype is not None
            return self.with_buffer(zeros(self.length, self.shape, self.dtype) if full else None)
        try:
            rows = specs.aligned(self.items)
        except OpError as error:
            raise OpError(f"a tensor list whose elements differ is put into one array: {error}") from None
        return self.with_buffer(jax.tree.map(_stacked, *rows))

    def unpacked(self) -> TensorList:
        """Returns a list of known length with its elements apart."""
        if self.items is not None or not isinstance(self.length, int):
            return self
        if self.buffer is None:
            return self.with_items((None,) * self.length)
        return self.with_items(tuple(jax.tree.map(lambda leaf: leaf[i, ...], self.buffer) for i in range(self.length)))  # noqa: B023

    def poisoned(self) -> TensorList:
        """Returns a packed list with NaN for elements, where they can be, if it has run over its capacity."""
        over = self.length > self.capacity

        def one(leaf: Any) -> Any:
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                return leaf
            return jnp.where(over, jnp.asarray(jnp.nan, leaf.dtype), leaf)

        return self.with_buffer(jax.tree.map(one, self.buffer)).with_spare(self.spare)

    def checked(self) -> TensorList:
        """Returns the list to read from: a packed one whose length is traced holds what it should, or NaN.

        Raises:
          ListLacksRoomError: elements of it may be missing; the loop around starts anew.
        """
        if not self.is_traced or self.buffer is None:
            return self
        if self.spare is None:
            return self.poisoned()
        if self.spare < 0:
            raise ListLacksRoomError("a tensor list is read within a loop that is longer than what the loop hands on")
        return self

    def cleared(self) -> TensorList:
        """Returns a packed list whose places past its length are zeros."""
        if not self.is_traced or not self.stale or self.buffer is None:
            return self
        inside = jnp.arange(self.capacity) < self.length

        def one(leaf: Any) -> Any:
            mask = inside.reshape(-1, *[1] * (leaf.ndim - 1))
            return jnp.where(mask, leaf, jnp.zeros((), leaf.dtype))

        cleared = self.with_buffer(jax.tree.map(one, self.buffer))
        return dataclasses.replace(cleared, spare=self.spare, stale=False)

    def common_form(self, other: TensorList) -> TensorList:
        """Returns the form that both forms fit: see `tf2jax_lite.values.specs`."""
        a, b = _packed_form(self), _packed_form(other)
        capacity = max(a.places, b.places)
        buffer = specs.joint_form([None if x is None else _element_form(x) for x in (a.buffer, b.buffer)])
        buffer = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((capacity, *leaf.shape), leaf.dtype), buffer)
        same = not a.is_traced and not b.is_traced and a.length == b.length
        shape, dtype = (b.shape, b.dtype) if a.buffer is None else (a.shape, a.dtype)
        length = a.length if same else jax.ShapeDtypeStruct((), np.dtype(np.int32))
        form = dataclasses.replace(a.with_buffer(buffer, length), shape=shape, dtype=dtype, roomy=a.roomy and b.roomy)
        if not form.is_traced:
            return form
        spares = [x.spare_of(form.capacity) for x in (a, b)]
        spare = None if any(n is None for n in spares) else min(n for n in spares if n is not None)
        return dataclasses.replace(form, spare=spare, stale=a.stale or b.stale)

    def fitted(self, form: TensorList) -> TensorList:
        """Returns the list in a form that `common_form` gave."""
        lst = self.packed()
        buffer = lst.buffer
        if buffer is None and form.buffer is not None:
            buffer = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), form.buffer)
        elif buffer is not None:
            buffer = _fit_elements(lst, form).with_capacity(form.capacity).buffer
        length = jnp.asarray(lst.length, np.int32) if form.is_traced else lst.length
        return dataclasses.replace(form, buffer=buffer, length=length, items=None, alike=None, most=0)


def _packed_form(form: TensorList) -> TensorList:
    if form.items is None:
        return form
    return jax.eval_shape(lambda lst: lst.packed(), form)


def _element_form(buffer: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), buffer)


def _fit_elements(lst: TensorList, form: TensorList) -> TensorList:
    """Brings elements that are handles themselves to the form's, one by one under vmap."""
    element = _element_form(form.buffer)
    if specs.same_form(_element_form(lst.buffer), element):
        return lst
    fitted = lst.with_buffer(jax.vmap(lambda value: specs.fitted(value, element))(lst.buffer))
    return fitted.with_spare(lst.spare)


def _stacked(*leaves: Any) -> Any:
    if all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves):
        return np.stack(leaves)
    return jnp.stack([jnp.asarray(leaf) for leaf in leaves])


def is_full(shape: ElementShape) -> bool:
    """Whether every dimension of an element is known."""
    return shape is not None and all(d is not None for d in shape)


def zeros(count: Any, shape: ElementShape, dtype: Any) -> Any:
    """Returns a buffer for elements of a fully known shape."""
    assert shape is not None
    return jnp.zeros((count, *shape), canonical(dtype))


def resized(target: TensorList, capacity: Any) -> Any:
    """Returns the buffer of a packed list cut or padded with zeros to ``capacity`` elements."""

    def one(leaf: Any) -> Any:
        have = leaf.shape[0]
        if have == capacity:
            return leaf
        if isinstance(have, int) and isinstance(capacity, int) and have > capacity:
            return leaf[:capacity]
        return jnp.concatenate([jnp.asarray(leaf), jnp.zeros((capacity - have, *leaf.shape[1:]), leaf.dtype)])

    return jax.tree.map(one, target.buffer)


def reaching(lst: TensorList, indices: Any) -> TensorList:
    """Returns a packed list whose length is traced, as long as its elements at ``indices`` need; new ones are zeros."""
    lst, positions = lst.cleared(), known(indices)
    if positions is None:  # what lies past its capacity is lost, and NaN where it is read
        length = jnp.maximum(lst.length, jnp.max(jnp.asarray(indices)).astype(np.int32) + 1)
        return dataclasses.replace(lst, length=length, spare=None)
    needed = int(positions.max()) + 1
    if not lst.roomy:
        lst = lst.with_capacity(max(lst.capacity, needed))
    spare = None if lst.spare is None else min(lst.spare, lst.capacity - needed)
    return dataclasses.replace(lst, length=jnp.maximum(lst.length, needed), spare=spare)


def add_lists(items: list[Any]) -> TensorList:
    """Returns the element by element sum of lists (and of numbers, which count for nothing), as AddN does."""
    total, *more = [item for item in items if isinstance(item, TensorList)]
    for other in more:
        total = _added(total, other)
    return total


def _added(a: TensorList, b: TensorList) -> TensorList:
    if a.items is not None and b.items is not None and a.length == b.length:
        pairs = zip(a.items, b.items, strict=True)
        return a.with_items(tuple(y if x is None else x if y is None else _sum(x, y) for x, y in pairs))
    a, b = a.packed(), b.packed()
    if a.buffer is None or b.buffer is None:
        return a if b.buffer is None else b
    a, b = specs.aligned([a.checked(), b.checked()])
    return a.with_buffer(_sum(a.buffer, b.buffer)).with_spare(a.spare)


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, TensorList):
        return _added(a, b)
    if hasattr(a, "added"):
        return a.added(b)
    return jax.tree.map(lambda x, y: jnp.asarray(x) + y, a, b)


def zeros_like_list(value: TensorList) -> TensorList:
    """Returns a list of as many zeros."""
    return dataclasses.replace(
        value,
        buffer=jax.tree.map(jnp.zeros_like, value.buffer),
        items=jax.tree.map(jnp.zeros_like, value.items),
        alike=None,
    )
