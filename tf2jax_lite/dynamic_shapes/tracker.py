"""Track the data-dependent dimensions of one trace.

TensorFlow's XLA bridge calls them bounded dynamic dimensions. An op whose result size depends on values (`tf.where`,
`tf.unique`) pads its result to an upper bound and counts the valid rows. `DynamicShapes.truncate` gives the result a
symbolic first dimension (``jax.export``'s symbolic dimensions), and the rest of the program is traced with that symbol,
as for export. `tf2jax_lite.dynamic_shapes.driver` then evaluates the jaxpr with padded arrays of fixed shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from tf2jax_lite.jaxprs.compat import equation_of
from tf2jax_lite.support.errors import OpError
from tf2jax_lite.values.static import is_symbolic

from .bounds import (
    VARIABLE_BOUNDS,
    as_size,
    constant_size,
    dim_upper_bound,
    equal_where_large,
    is_data_dependent,
    is_size,
)
from .dim_expr import DYNAMIC, largest, names_in, value, variable
from .intervals import interval_of
from .partitions import Partitions
from .primitives import dynamic_reshape_p, truncate_p
from .provenance import Entry, column_sources, entries, moved_from, name_of, value_of
from .unification import Equalities, Unifier, variable_of

# An inferred upper bound above this is no reason to allocate as many rows.
_MAX_CAPACITY = 1 << 26


class UnboundedError(OpError):
    """A result size depends on traced values; `DynamicShapes` may compute it."""

    def __init__(self, problem: str):
        super().__init__(f"{problem}; convert with override_config('dynamic_shape_bound', n), its upper bound")


class DynamicShapes:
    """The data-dependent dimensions of one call.

    Attributes:
      limit: the capacity of all results (`dynamic_shape_bound`); None: the upper bound of each.
      unbounded: the variables without an upper bound; while there are any, the jaxpr cannot be evaluated.
      expected_bounds: the upper bound of such a variable's dimension that holds for valid inputs, by variable name.
      branch_sizes: for a dimension that a branch returned: the index of the branch, and the size in each
        (lowering/merging/branch_variants.py).

    Args:
      equalities: the assumptions of earlier traces of the program.
    """

    def __init__(
        self,
        limit: int | None = None,
        scope: export.SymbolicScope | None = None,
        equalities: Equalities | None = None,
    ):
        self.limit = limit
        self.unbounded: set[str] = set()
        self.expected_bounds: dict[str, Any] = {}
        self.branch_sizes: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
        self.symbolic_bounds: dict[Any, Any] = {}
        self._equalities = Equalities() if equalities is None else equalities
        self._scope = export.SymbolicScope() if scope is None else scope
        self._variables: dict[Any, tuple[str, Any, Any]] = {}
        self._count = 0
        self._reserved: str | None = None
        self._totals: dict[frozenset[Any], Any] = {}
        self._totals_of_sums: dict[Any, Any] = {}
        self._partitions = Partitions()
        self._certain_totals: list[tuple[Any, Any]] = []  # sums of dimensions, and the totals that they are
        self._products: dict[str, Any] = {}
        self._row_ids: dict[Any, tuple[Any, Any]] = {}
        self._indices: dict[Any, Any] = {}  # by name; kept, since names hold ids
        self._capacities: dict[str, Any] = {}
        self._unifier = Unifier(self._equalities, self.unbounded, self.expected_bounds, self._capacities)

    @property
    def mark(self) -> int:
        """Separate later dimensions from those created before; see `is_later`."""
        return self._count

    def is_later(self, dim: Any, mark: int) -> bool:
        """Return whether a dimension's variable was created after ``mark``."""
        return any(int(name.removeprefix(DYNAMIC)) > mark for name in names_in(dim) if name.startswith(DYNAMIC))

    def capacity(self, bound: Any) -> Any:
        """Return the capacity of at most ``bound`` rows; None without upper bound."""
        self._reserved = None
        if self.limit is not None or bound is not None:
            return bound if self.limit is None else self.limit
        # The variable is named before its operands are known.
        self._reserved = name = self._new_name()
        if name in self._equalities.dims:
            dim = self._dim(self._equalities.dims[name])
            size = dim_upper_bound(dim)
            return dim if size is None else size
        if name in self._equalities.capacities:
            return self._equalities.capacities[name]
        self.unbounded.add(name)
        return self._size_of(name)

    def as_dims(self, value: Any, expected_bound: Any = None) -> np.ndarray:
        """Return traced integers that become sizes as dimensions."""
        if value.shape == ():
            found = [Entry(value, 0)]
        else:
            found = entries(value, value.shape[0])
        out = np.empty(len(found), object)
        out[:] = [e.offset if e.is_known else self._size(e, expected_bound) for e in found]
        return out.reshape(value.shape)

    def as_dim(self, count: Any, expected_bound: Any = None) -> Any:
        """Return a traced count as a dimension.

        Args:
          expected_bound: its upper bound for valid inputs. It becomes the capacity where no other bound is known;
            larger counts make the results NaN.
        """
        return self._size(Entry(count, 0), expected_bound)

    def assume_expected_bounds(self) -> bool:
        """Bound unbounded dimensions by expected bounds; return False if one has none."""
        if not self.unbounded <= self.expected_bounds.keys():
            return False
        self._equalities.capacities.update({name: self.expected_bounds[name] for name in self.unbounded})
        return True

    def record_row_ids(self, ids: Any, rows: Any) -> None:
        """Record that ``ids`` is sorted, and its last element is ``rows - 1``."""
        self._row_ids[name_of(ids)] = rows, ids

    def row_count_of_ids(self, ids: Any) -> Any:
        """Return the number of rows recorded for ``ids``, a column or not, or None."""
        for source in column_sources(ids):
            if (found := self._row_ids.get(name_of(source))) is not None:
                return found[0]
        return None

    def record_indices(self, results: Sequence[Any]) -> None:
        """Record an op's results of dynamic size: integers in the padding are -1 or 0."""
        for array in results:
            if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, np.signedinteger):
                self._indices[name_of(array)] = array

    def are_indices(self, value: Any) -> bool:
        """Return whether a value consists of elements of one result of `record_indices`."""
        return any(name_of(source) in self._indices for source in moved_from(value))

    def prefix(self, rows: Any, count: Any, key: Any, kept: Any, *, is_sure: bool = True) -> Any:
        """Return the first ``count`` rows of an array.

        Args:
          count: an int32 scalar.
          key: identifies the dimension: calls with one key return the same dimension.
          kept: objects that live as long as the key, since it may hold their ids.
          is_sure: whether there are as many rows; if not, and there are fewer, dependent results are NaN.
        """
        self._reserved = None
        capacity = jnp.asarray(rows.shape[0]).astype(np.int32)
        count = jnp.maximum(count, 0) if not is_sure else jnp.clip(count, 0, capacity)
        return self._truncated((rows,), count, key, kept, is_sure=is_sure)[0]

    def bound_in_terms_of(self, dim: Any, size: Any) -> Any:
        """Return an upper bound of a number, for variables bounded by ``size``."""
        (own,) = names_in(size) if is_data_dependent(size) else ("",)
        for _ in range(len(self._capacities)):
            inside = {n for n in names_in(dim) & self._capacities.keys() if own in names_in(self._bound_of(n))}
            if not inside:
                return dim
            name = min(inside)
            variables = {n: self._dim(variable(n, self._scope)) for n in names_in(dim)}
            step = value(dim, {**variables, name: variables[name] + 1}) - dim
            if not isinstance(step, int) or step < 0:
                return dim
            dim = value(dim, {**variables, name: self._bound_of(name) + 1})
        return dim

    def _bound_of(self, name: str) -> Any:
        """Return the upper bound of a variable's dimension, which may be symbolic."""
        return self.symbolic_bounds.get(variable(name, self._scope) - 1, self._capacities[name])

    def upper_bound_where(self, dim: Any, size: Any, bound: int) -> int | None:
        """Return a dimension's upper bound if ``size`` is at most ``bound``, or None."""
        if isinstance(dim, int):
            return dim
        known = {**VARIABLE_BOUNDS.get(self._scope, {}), **dict.fromkeys(names_in(size), bound + 1)}
        return largest(dim, known) if names_in(dim) <= known.keys() else None

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        """Return a reshaped array; a product of dimensions becomes a new variable."""
        real = self.expand_products(shape)
        known = [is_size(dim) for dim in real]
        if all(known) and real == tuple(shape) and math.prod(x.shape) == math.prod(shape):
            return lax.reshape(x, shape)
        if (count := math.prod(self.expand_products(x.shape))) != math.prod(real):
            sizes = tuple(map(as_size, real))
            if is_data_dependent(count) and equal_where_large(count, wanted := math.prod(sizes)):
                flat, rows = self.reshape(x, [count]), jnp.asarray(count).astype(np.int32)
                return self.reshape(truncate_p.bind(flat, rows, dim=wanted, name="", is_sure=True), sizes)
            self._unifier.unify_counts(self.expand_products(x.shape), real)
            raise OpError(f"{list(x.shape)} is not known to have as many elements as {list(shape)}")
        dims, defined = list(shape), [""] * len(shape)
        for i, dim in enumerate(real):
            if not known[i]:
                name, dims[i] = self._variable(("product", dim), None, dim)
                defined[i] = "" if name in self._products else name
                self._products[name] = dim
        return dynamic_reshape_p.bind(x, shape=tuple(dims), real=real, names=tuple(defined))

    def expand_products(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return a shape with dimensions of `reshape` as the products they stand for."""
        return tuple(self._products.get(variable_of(dim), dim) for dim in shape)

    def dim_of(self, entry: Entry) -> Any:
        """Return a number as a dimension if it is static or already has one, or None."""
        if entry.is_known:
            return entry.offset
        found = self._variables.get((name_of(entry.base), 0))
        if found is None or not _is_nonnegative(value_of(Entry(entry.base, 0))):
            return None
        return found[1] + entry.offset

    def _size(self, entry: Entry, expected_bound: Any = None) -> Any:
        offset, base = entry.offset, value_of(Entry(entry.base, 0))
        if isinstance(offset, int) and offset > 0 and _is_nonnegative(base):
            return self._size(Entry(entry.base, 0)) + offset  # comparable to other sums of this base
        total = value_of(entry)
        product = self._product(total)
        if product is not None:
            return product
        size, count = self.capacity(inferred_bound(total)), total.astype(np.int32)
        if self._reserved and expected_bound is not None:
            bound, same = dim_upper_bound(expected_bound), variable_of(self._equalities.dims.get(self._reserved, 0))
            self.expected_bounds.setdefault(same or self._reserved, expected_bound if bound is None else bound)
        count = jnp.maximum(count if self._reserved else jnp.minimum(count, size), 0)
        rows = lax.iota(np.int32, size)
        return self._truncated((rows,), count, (name_of(entry.base), entry.offset), entry.base)[0].shape[0]

    def _product(self, value: Any) -> Any:
        """Return a traced product as a product of dimensions, to split it, or None."""
        name, factors, _ = equation_of(value)
        if name != "mul" or any(not _is_nonnegative(f) for f in factors):
            return None
        found = [entries(f.reshape(1), 1)[0] for f in factors]
        known = [e.offset for e in found if e.is_known]
        if not any(map(is_data_dependent, known)) and (len(known) != 1 or inferred_bound(value) is None):
            return None
        dims = [e.offset if e.is_known else self._size(e) for e in found]
        return self.reshape(lax.broadcasted_iota(np.int32, dims, 0), [math.prod(dims)]).shape[0]

    def _truncated(
        self, arrays: tuple[Any, ...], count: Any, key: Any, kept: Any, *, is_sure: bool = True
    ) -> tuple[Any, ...]:
        capacity, is_sure = arrays[0].shape[0], is_sure and self._reserved is None
        name, dim = self._variable(key, kept, capacity)
        name = "" if name in self._equalities.dims else name
        return tuple(truncate_p.bind(jnp.asarray(x), count, dim=dim, name=name, is_sure=is_sure) for x in arrays)

    def _variable(self, key: Any, kept: Any, capacity: Any) -> tuple[str, Any]:
        """Return the name of a key's variable and its dimension, new ones for a new key."""
        name, self._reserved = self._reserved, None
        if key not in self._variables:
            name = self._new_name() if name is None else name
            dim = self._size_of(name)
            # Keys hold ids of arrays; another array could get the id of one that is collected.
            self._variables[key] = (name, dim, kept)
            self._capacities[name] = capacity
            bound = dim_upper_bound(capacity)
            of_scope = VARIABLE_BOUNDS.setdefault(self._scope, {})
            of_scope.pop(name, None)  # of another call, or of an earlier trace
            if bound is not None and name not in self._equalities.dims:
                of_scope[name] = bound + 1
        elif name is not None and name in self.unbounded:
            self._equalities.dims.setdefault(name, self._variables[key][1])
        return self._variables[key][:2]

    def _new_name(self) -> str:
        self._count += 1
        return f"{DYNAMIC}{self._count}"

    def _size_of(self, name: str) -> Any:
        """Return the dimension of a variable, or the one that is assumed to equal it."""
        return self._dim(self._equalities.dims.get(name, variable(name, self._scope) - 1))

    def _dim(self, dim: Any) -> Any:
        """Return a dimension with variables replaced by equal dimensions."""
        names, same = names_in(dim), self._equalities.dims
        if names.isdisjoint(same):
            return dim
        variables = {name: self._dim(same[name]) + 1 for name in names & same.keys()}
        variables |= {name: variable(name, self._scope) for name in names - same.keys()}
        return value(dim, variables)

    def unify(self, shapes: Sequence[Sequence[Any]], fitting: Callable[[], Sequence[Mapping[str, int]]]) -> bool:
        """Assume that two dimensions of a node's operands are equal; see `Unifier.unify`."""
        return self._unifier.unify(shapes, fitting)

    def apply_equalities(self, value: Any) -> Any:
        """Return an array or a shape with dimensions replaced by equal ones."""
        if is_symbolic(value) and self._certain_totals:
            found = np.empty_like(value)
            found.flat[:] = [self._simplified(dim) if is_data_dependent(dim) else dim for dim in value.flat]
            return found
        if not isinstance(value, jax.Array):
            return value
        expressions = {**self._totals_of_sums, **self._equalities.expressions}
        for axis, size in enumerate(value.shape):
            if not is_data_dependent(size):
                continue
            if (same := self._simplified(size)) is not size:
                count: Any = np.int32(0)  # certain
            elif (other := expressions.get(size)) is not None:
                same, count = self._dim(other), jnp.asarray(size).astype(np.int32)
            else:
                continue
            rows = truncate_p.bind(jnp.moveaxis(value, axis, 0), count, dim=same, name="", is_sure=True)
            value = jnp.moveaxis(rows, 0, axis)
        return value

    def _simplified(self, dim: Any) -> Any:
        """Return a dimension with certain sums replaced by totals, or constant."""
        for parts, total in self._certain_totals:
            name = min(names_in(parts))
            if name in names_in(dim):
                variables = {n: self._dim(variable(n, self._scope)) for n in names_in(dim) | names_in(parts)}
                times = value(dim, {**variables, name: variables[name] + 1}) - value(dim, variables)
                rest = dim - times * parts if isinstance(times, int) else dim
                if names_in(rest).isdisjoint(names_in(parts)):
                    dim = rest + times * total
        return constant_size(dim)

    def record_mask(self, mask: Any, size: Any) -> None:
        """Record that ``size`` is the number of true values of a mask.

        With masks that were recorded before it may partition the array: then the sizes add up to the array's.
        """
        if is_data_dependent(size):
            total = math.prod(mask.shape)
            for sizes, is_certain in self._partitions.add(mask, size):
                self.record_split(sizes, total)
                if is_certain and (self.limit is None or (isinstance(total, int) and total <= self.limit)):
                    self._certain_totals.append((sum(sizes), total))

    def record_split(self, sizes: list[Any], total: Any) -> None:
        """Record that ``total`` rows were split into parts of these sizes."""
        self._totals[frozenset(sizes)] = total
        if len(sizes) > 1:
            self._totals_of_sums[sum(sizes)] = total

    def split_total(self, sizes: list[Any]) -> Any:
        """Return how many rows were split into parts of these sizes; None if none were."""
        return self._totals.get(frozenset(sizes))

    def truncate(self, arrays: tuple[Any, ...], count: Any, *, of: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return arrays of one first dimension truncated to their first ``count`` rows.

        Args:
          of: the values that determine the count: an array, and perhaps an int. Equal values give one dimension.
        """
        count = jnp.asarray(count, np.int32)
        if self._reserved is None:
            count = jnp.minimum(count, jnp.asarray(arrays[0].shape[0]).astype(np.int32))
        return self._truncated(arrays, count, tuple(v if isinstance(v, int) else id(v) for v in of), of)


def _is_nonnegative(value: Any) -> bool:
    """Return whether a traced number is at least 0 for all inputs."""
    lower = interval_of(value).lower
    return lower is not None and lower >= 0


def inferred_bound(count: Any) -> Any:
    """Return a traced number's bound by interval analysis; None if not useful."""
    bound = interval_of(count).upper
    if bound is not None and not isinstance(bound, float) and is_data_dependent(bound):
        bound = dim_upper_bound(bound)
    if isinstance(bound, int):
        return bound if bound <= _MAX_CAPACITY else None
    return None if isinstance(bound, float) else bound


def row_capacity(bound: int | DynamicShapes | None, upper_bound: Any, problem: str) -> Any:
    """Return the number of rows to which an op of dynamic shape pads its result.

    Args:
      upper_bound: of the number of rows; None if only operands of later nodes tell.

    Raises:
      UnboundedError: there is no bound.
    """
    if isinstance(bound, DynamicShapes):
        return bound.capacity(upper_bound)
    if isinstance(bound, int):
        return bound
    raise UnboundedError(problem)


def keep_rows(bound: int | DynamicShapes | None, mask: Any, *arrays: Any, of: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `truncate_rows` to the count of a mask, which is recorded."""
    arrays = truncate_rows(bound, lambda: jnp.count_nonzero(mask), *arrays, of=of)
    if isinstance(bound, DynamicShapes):
        bound.record_mask(mask, arrays[0].shape[0])
    return arrays


def truncate_rows(
    bound: int | DynamicShapes | None, count: Callable[[], Any], *arrays: Any, of: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return an op's padded results, truncated to ``count()`` rows.

    If ``bound`` is an int they keep their padding. See `DynamicShapes.truncate`.
    """
    return bound.truncate(arrays, count(), of=of) if isinstance(bound, DynamicShapes) else arrays
