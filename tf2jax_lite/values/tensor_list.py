"""The tensor list value, and batches of lists.

The ops are in `tf2jax_lite.ops.containers`.

A list of static length holds its elements separately (``items``): static elements stay static, and shapes may differ.
In loops, and after branches chosen at run time, a list is *packed*: one buffer with the elements stacked on a new first
axis. Its length may then be traced. The buffer has a static capacity; elements past the length are zeros or
uninitialized.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.support.errors import OpError

from . import specs
from .static import UNKNOWN, DType, Shape, canonical, static_value
from .variant import Variant

ElementShape = Shape | None
"""An element's shape, with None for unknown dimensions; None for unknown rank."""


class ListCapacityError(OpError):
    """A read of a list in a loop that may exceed the list's capacity.

    The loop is traced again with a larger capacity.
    """


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True, eq=False)
class TensorList(Variant):
    """A list of elements.

    Attributes:
      buffer: of a packed list, the elements stacked on a new first axis (a pytree of arrays, since elements may be
        lists), or None while the shape of an element is unknown.
      length: number of elements: an int, a symbolic dimension, or a traced int32 scalar.
      dtype: element dtype as the graph declares it (None for lists of lists).
      shape: element shape as the graph declares it, None for unknown dimensions or rank.
      limit: maximum number of elements (TensorFlow's max_num_elements), or -1.
      owner: the TensorArray whose contents these are (ops/containers/tensor_array.py), or None.
      items: of a list that is not packed, its elements, None for unset ones. The length is their number.
      has_capacity: whether the capacity is sufficient for what a loop forwards of the list. The list does not grow
        then; ``free_slots`` becomes negative instead.
      free_slots: of a list of traced length, a lower bound of the number of free slots. Negative: that many may be
        missing, and the list cannot be read. None: unknown; then the list does not grow, writes past the capacity are
        dropped, and reads of them are NaN (for inexact dtypes).
      uninitialized_tail: of such a list, whether elements past its length may be old ones, not zeros.
      uniform_element: the value of every element, if a loop has set all to the same one: TensorFlow's gradients keep
        a list of the weights that a loop reads, one for each iteration. Reading an element needs no buffer then.
      max_length: the largest static length of this list, or of the lists that it was made of; only for
        `lowering.loops.trip_count`.
    """

    buffer: Any
    length: Any
    dtype: DType | None = None
    shape: ElementShape = None
    limit: int = -1
    owner: Any = None
    items: tuple[Any, ...] | None = None
    has_capacity: bool = False
    free_slots: int | None = 0
    uninitialized_tail: bool = False
    uniform_element: Any = None
    max_length: int = 0

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """Return children and auxiliary data: a static length is not a child."""
        capacity = (self.has_capacity, self.free_slots, self.uninitialized_tail)
        rest = (self.dtype, self.shape, self.limit, self.owner, capacity)
        if self.is_traced:
            return (self.buffer, self.items, self.uniform_element, self.length), (True, None, *rest)
        return (self.buffer, self.items, self.uniform_element), (False, self.length, *rest)

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> TensorList:
        """Undo `tree_flatten`."""
        traced, length, *rest, (has_capacity, free_slots, uninitialized_tail) = aux
        buffer, items, uniform_element, *lengths = children
        return cls(
            buffer,
            lengths[0] if traced else length,
            *rest,
            items=items,
            has_capacity=has_capacity,
            free_slots=free_slots,
            uninitialized_tail=uninitialized_tail,
            uniform_element=uniform_element,
        )

    @property
    def capacity(self) -> Any:
        """Number of slots of the buffer."""
        leaves = jax.tree.leaves(self.buffer)
        return leaves[0].shape[0] if leaves else (0 if self.is_traced else self.length)

    @property
    def required_capacity(self) -> Any:
        """The capacity, or the one needed once an element's shape is known."""
        return self.capacity - min(self.free_slots or 0, 0) if self.buffer is None else self.capacity

    @property
    def length_bound(self) -> Any:
        """Upper bound of the length; ``free_slots`` must not be None."""
        return self.capacity - self.free_slots

    def free_slots_at(self, capacity: Any) -> int | None:
        """Return the value of ``free_slots`` at another capacity."""
        if self.free_slots is None:
            return None
        slots = capacity - self.length_bound
        return slots if isinstance(slots, int) else min(self.free_slots, 0)

    @property
    def is_traced(self) -> bool:
        """Whether the length is a traced value."""
        return isinstance(self.length, jax.Array | jax.ShapeDtypeStruct | np.ndarray)

    @property
    def is_foldable(self) -> bool:
        """Whether NumPy alone can evaluate ops on it.

        Its length is an int, and no element is traced.
        """
        if self.is_traced or not isinstance(self.length, int):
            return False
        return self.buffer is UNKNOWN or all(
            isinstance(leaf, (np.ndarray, np.generic)) for leaf in jax.tree.leaves(self)
        )

    def with_buffer(self, buffer: Any, length: Any = None) -> TensorList:
        """Return the list packed, with another buffer and no free slots.

        The length stays unless ``length`` is given.
        """
        length = self.length if length is None else length
        max_length = max(self.max_length, length) if isinstance(length, int) else self.max_length
        new = dataclasses.replace(
            self, buffer=buffer, items=None, length=length, uniform_element=None, max_length=max_length
        )
        if not new.is_traced:
            return dataclasses.replace(new, free_slots=0, uninitialized_tail=False)
        return new.with_free_slots(None if self.free_slots is None else min(self.free_slots, 0))

    def with_free_slots(self, free_slots: int | None) -> TensorList:
        """Return the list with another bound of its free slots."""
        return self if free_slots == self.free_slots else dataclasses.replace(self, free_slots=free_slots)

    def with_capacity(self, capacity: Any) -> TensorList:
        """Return a packed list truncated, or padded with zeros, to another capacity."""
        if self.buffer is None or self.capacity == capacity:
            return self
        lst = self
        if self.is_traced and self.free_slots is None:  # else zeros would stand for dropped elements
            lst = self.invalidated()
        return dataclasses.replace(lst.with_buffer(resized(lst, capacity)), free_slots=self.free_slots_at(capacity))

    def with_items(self, items: tuple[Any, ...]) -> TensorList:
        """Return the list with other elements, not packed."""
        count = len(items)
        max_length = max(self.max_length, count)
        return dataclasses.replace(
            self, buffer=None, items=items, length=count, uniform_element=None, max_length=max_length
        )

    def abstracted(self, length: int | None = None) -> TensorList:
        """Return a list of which only the length is known, for evaluation by NumPy."""
        return self.with_buffer(UNKNOWN, length)

    def resolved(self) -> TensorList:
        """Return the list with its length as an int if concrete, as outside ``jit``."""
        count = static_value(self.length) if self.is_traced else None
        if count is None:
            return self
        return dataclasses.replace(self.with_buffer(resized(self, int(count)), int(count)), has_capacity=False)

    def packed(self) -> TensorList:
        """Return the list with its elements in one buffer."""
        if self.items is None:
            return self
        if all(item is None for item in self.items):
            full = bool(self.items) and is_fully_defined(self.shape) and self.dtype is not None
            return self.with_buffer(zero_buffer(self.length, self.shape, self.dtype) if full else None)
        try:
            rows = specs.coerce_all(self.items)
        except OpError as error:
            raise OpError(f"a tensor list whose elements differ is put into one array: {error}") from None
        return self.with_buffer(jax.tree.map(_stacked, *rows))

    def unpacked(self) -> TensorList:
        """Return a list of static length with its elements separate."""
        if self.items is not None or not isinstance(self.length, int):
            return self
        if self.buffer is None:
            return self.with_items((None,) * self.length)
        return self.with_items(tuple(jax.tree.map(lambda leaf: leaf[i, ...], self.buffer) for i in range(self.length)))  # noqa: B023

    def invalidated(self) -> TensorList:
        """Return a packed list, with NaN elements if its length exceeds its capacity.

        Only elements of inexact dtype become NaN.
        """
        over = self.length > self.capacity

        def one(leaf: Any) -> Any:
            if not jnp.issubdtype(leaf.dtype, jnp.inexact):
                return leaf
            return jnp.where(over, jnp.asarray(jnp.nan, leaf.dtype), leaf)

        return self.with_buffer(jax.tree.map(one, self.buffer)).with_free_slots(self.free_slots)

    def checked(self) -> TensorList:
        """Return the list to read from: a packed one of traced length is complete, or NaN.

        Raises:
          ListCapacityError: elements may be missing; the surrounding loop traces again.
        """
        if not self.is_traced or self.buffer is None:
            return self
        if self.free_slots is None:
            return self.invalidated()
        if self.free_slots < 0:
            raise ListCapacityError(
                "a tensor list that a loop reads may be longer than the capacity that the loop carries"
            )
        return self

    def cleared(self) -> TensorList:
        """Return a packed list whose slots past its length are zeros."""
        if not self.is_traced or not self.uninitialized_tail or self.buffer is None:
            return self
        inside = jnp.arange(self.capacity) < self.length

        def one(leaf: Any) -> Any:
            mask = inside.reshape(-1, *[1] * (leaf.ndim - 1))
            return jnp.where(mask, leaf, jnp.zeros((), leaf.dtype))

        cleared = self.with_buffer(jax.tree.map(one, self.buffer))
        return dataclasses.replace(cleared, free_slots=self.free_slots, uninitialized_tail=False)

    def zeros_like(self) -> TensorList:
        """Return a list of as many zeros, unset if zeros of the elements need no sizes."""
        if any(isinstance(v, Variant) and v.zeros_are_unset for v in (self.buffer, *(self.items or ()))):
            if self.is_traced:
                raise OpError("gradients of variants in a list whose length depends on data")
            return unset_list(self.length)
        buffer, items = (jax.tree.map(jnp.zeros_like, part) for part in (self.buffer, self.items))
        return dataclasses.replace(self, buffer=buffer, items=items, uniform_element=None)

    def add(self, other: Any) -> TensorList:
        """Return the elementwise sum, where unset elements are zeros.

        An ``other`` that is not a list adds nothing. TF1's gradients add the flows of TensorArrays so: see
        `tf2jax_lite.ops.containers.tensor_array`.
        """
        if not isinstance(other, TensorList):
            return self
        if self.items is not None and other.items is not None and self.length == other.length:
            pairs = zip(self.items, other.items, strict=True)
            return self.with_items(tuple(y if x is None else x if y is None else _sum(x, y) for x, y in pairs))
        a, b = self.packed(), other.packed()
        if a.buffer is None or b.buffer is None:
            return a if b.buffer is None else b
        a, b = specs.coerce_all([a.checked(), b.checked()])
        return a.with_buffer(_sum(a.buffer, b.buffer)).with_free_slots(a.free_slots)

    def stack(self, others: Sequence[TensorList]) -> ListBatch:
        """Return this list and others of the same length as a batch."""
        lists = [lst.resolved() for lst in (self, *others)]
        first = lists[0]
        if any(lst.is_traced or lst.length != first.length for lst in lists):
            raise OpError("tensor lists of lengths that differ, or that are not known while tracing, make no batch")
        rows = specs.coerce_all([lst.packed() for lst in lists])
        buffers = [row.buffer for row in rows if row.buffer is not None]
        buffer = jax.tree.map(lambda *leaves: jnp.stack(leaves, 1), *buffers) if buffers else None
        return ListBatch(dataclasses.replace(first.with_buffer(buffer), shape=None), len(lists), first.shape)

    def common_spec(self, other: TensorList) -> TensorList:
        """Return the spec to which lists of both specs coerce: packed, larger capacity."""
        a, b = _packed_spec(self), _packed_spec(other)
        capacity = max(a.required_capacity, b.required_capacity)
        buffer = specs.join_specs([None if x is None else _element_spec(x) for x in (a.buffer, b.buffer)])
        buffer = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((capacity, *leaf.shape), leaf.dtype), buffer)
        same = not a.is_traced and not b.is_traced and a.length == b.length
        shape, dtype = (b.shape, b.dtype) if a.buffer is None else (a.shape, a.dtype)
        length = a.length if same else jax.ShapeDtypeStruct((), np.dtype(np.int32))
        has_capacity = a.has_capacity and b.has_capacity
        spec = dataclasses.replace(a.with_buffer(buffer, length), shape=shape, dtype=dtype, has_capacity=has_capacity)
        if not spec.is_traced:
            return spec
        slots = [x.free_slots_at(spec.capacity) for x in (a, b)]
        free_slots = None if any(n is None for n in slots) else min(n for n in slots if n is not None)
        tail = a.uninitialized_tail or b.uninitialized_tail
        return dataclasses.replace(spec, free_slots=free_slots, uninitialized_tail=tail)

    def coerce(self, spec: TensorList) -> TensorList:
        """Return the list in a spec that `common_spec` returned."""
        lst = self.packed()
        buffer = lst.buffer
        if buffer is None and spec.buffer is not None:
            buffer = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), spec.buffer)
        elif buffer is not None:
            buffer = _coerce_elements(lst, spec).with_capacity(spec.capacity).buffer
        length = jnp.asarray(lst.length, np.int32) if spec.is_traced else lst.length
        return dataclasses.replace(spec, buffer=buffer, length=length, items=None, uniform_element=None, max_length=0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ListBatch(Variant):
    """A vector of handles of lists of equal length: one list of batched elements.

    The batch axis comes first.

    Attributes:
      count: how many lists there are.
    """

    is_pytree_handle = False

    stacked: TensorList
    count: int = dataclasses.field(metadata={"static": True})
    shape: Any = dataclasses.field(metadata={"static": True})

    def unstack(self) -> list[TensorList]:
        """Return the lists of the batch."""
        stacked = self.stacked.packed()

        def one(index: int) -> TensorList:
            buffer = jax.tree.map(lambda leaf: leaf[:, index], stacked.buffer)
            return dataclasses.replace(stacked.with_buffer(buffer), shape=self.shape)

        return [one(index) for index in range(self.count)]


def _packed_spec(spec: TensorList) -> TensorList:
    if spec.items is None:
        return spec
    return jax.eval_shape(lambda lst: lst.packed(), spec)


def _element_spec(buffer: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), buffer)


def _coerce_elements(lst: TensorList, spec: TensorList) -> TensorList:
    """Coerce elements that are variants themselves, each under vmap."""
    element = _element_spec(spec.buffer)
    if specs.same_spec(_element_spec(lst.buffer), element):
        return lst
    coerced = lst.with_buffer(jax.vmap(lambda value: specs.coerce(value, element))(lst.buffer))
    return coerced.with_free_slots(lst.free_slots)


def _stacked(*leaves: Any) -> Any:
    if all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in leaves):
        return np.stack(leaves)
    return jnp.stack([jnp.asarray(leaf) for leaf in leaves])


def _sum(a: Any, b: Any) -> Any:
    if isinstance(a, Variant):
        return a.add(b)
    return jax.tree.map(lambda x, y: jnp.asarray(x) + y, a, b)


def is_fully_defined(shape: ElementShape) -> bool:
    """Return whether an element shape is known (`tf.TensorShape.is_fully_defined`)."""
    return shape is not None and all(d is not None for d in shape)


def zero_buffer(count: Any, shape: ElementShape, dtype: Any) -> Any:
    """Return a buffer of ``count`` zero elements of a fully defined shape."""
    assert shape is not None
    return jnp.zeros((count, *shape), canonical(dtype))


def unset_list(count: Any) -> TensorList:
    """Return a list of ``count`` unset elements of unknown dtype and shape."""
    return TensorList(None, count, items=(None,) * count if isinstance(count, int) else None)


def resized(target: TensorList, capacity: Any) -> Any:
    """Return a packed list's buffer, truncated or zero-padded to ``capacity``."""

    def one(leaf: Any) -> Any:
        have = leaf.shape[0]
        if have == capacity:
            return leaf
        if isinstance(have, int) and isinstance(capacity, int) and have > capacity:
            return leaf[:capacity]
        return jnp.concatenate([jnp.asarray(leaf), jnp.zeros((capacity - have, *leaf.shape[1:]), leaf.dtype)])

    return jax.tree.map(one, target.buffer)


def extended_to(lst: TensorList, indices: Any) -> TensorList:
    """Return a packed list of traced length, zero-extended to contain ``indices``."""
    lst, static_indices = lst.cleared(), static_value(indices)
    if static_indices is None:  # writes past the capacity are dropped, and reads of them NaN
        length = jnp.maximum(lst.length, jnp.max(jnp.asarray(indices)).astype(np.int32) + 1)
        return dataclasses.replace(lst, length=length, free_slots=None)
    needed = int(static_indices.max()) + 1
    if not lst.has_capacity:
        lst = lst.with_capacity(max(lst.capacity, needed))
    free_slots = None if lst.free_slots is None else min(lst.free_slots, lst.capacity - needed)
    return dataclasses.replace(lst, length=jnp.maximum(lst.length, needed), free_slots=free_slots)
