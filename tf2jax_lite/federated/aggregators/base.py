"""Common parts of aggregators, and sums and means of clients' updates.

One client must neither end nor ruin a training: a result that is not finite, or so large that a sum of such overflows,
is left out, and an aggregate that is not finite changes nothing.

See tff.aggregators.{SumFactory, MeanFactory, UnweightedMeanFactory}.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates, Guarantee, MeasuredProcessOutput, PyTree
from tf2jax_lite.support.errors import InputError

__all__ = ["ConcatFactory", "Factory", "MeanFactory", "SumFactory", "UnweightedMeanFactory", "concat_factory"]

_ROUNDING = 1e-4  # closer values are rounded to the integer: in floating point, 0.07 * 100 is just above 7


def share_up(fraction: float, number: Any) -> Any:
    """Return ``fraction * number`` rounded up, int64; ``number`` is an int or array."""
    return np.ceil(np.asarray(number) * float(fraction) - _ROUNDING).astype(np.int64)


def share_down(fraction: float, number: Any) -> Any:
    """Return ``fraction * number`` rounded down, int64; ``number`` is an int or array."""
    return np.floor(np.asarray(number) * float(fraction) + _ROUNDING).astype(np.int64)


# Beyond these a result is not usable. 2**31 clients' products of both, and squares of either, are finite in float32.
_MAX_EXPONENT = 61
MAX_WEIGHT = 2.0**31


def usable_rows(tree: PyTree, rows: int, bounded: bool = True) -> Any:
    """Return which rows can be summed, bool (rows,).

    All of their floats are finite, and of a magnitude below 2**61 if ``bounded``.
    """
    found = jnp.ones((rows,), bool)
    for leaf in jax.tree.leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            bound = 2.0**_MAX_EXPONENT if bounded and jnp.finfo(leaf.dtype).maxexp > _MAX_EXPONENT else jnp.inf
            found &= jnp.all(jnp.abs(leaf) < bound, axis=range(1, leaf.ndim))
    return found


def usable_weights(weight: Any) -> Any:
    """Return whether clients' weights are numbers from 0 to `MAX_WEIGHT`."""
    return (weight >= 0) & (weight <= MAX_WEIGHT)


def usable_clients(update: PyTree, weight: Any, more: PyTree = (), bounded: bool = True) -> Any:
    """Return which clients' results can be aggregated, bool (n,).

    Args:
      update: pytree with leaves (n, ...).
      weight: (n,), the clients' weights in the mean.
      more: pytree with leaves (n, ...) of the clients' other results.
      bounded: whether updates' magnitudes are bounded; not where the aggregation bounds their influence itself.
    """
    weight = jnp.asarray(weight)
    n = weight.shape[0]
    return usable_weights(weight) & usable_rows(update, n, bounded) & usable_rows(more, n)


def remains_finite(old: PyTree, new: PyTree) -> Any:
    """Return whether all numbers are finite in ``new`` that are in ``old``, ()."""
    found = jnp.bool_(True)
    for before, after in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        if jnp.issubdtype(jnp.result_type(after), jnp.inexact):
            found &= ~jnp.any(jnp.isfinite(before) & ~jnp.isfinite(after))
    return found


def all_finite(tree: PyTree) -> Any:
    """Return bool (): whether all numbers are finite."""
    return remains_finite(jax.tree.map(jnp.zeros_like, tree), tree)


def chosen(use: Any, new: PyTree, old: PyTree) -> PyTree:
    """Return ``new`` where ``use`` (), else ``old``."""
    return jax.tree.map(lambda n, o: n if n is o else jnp.where(use, n, o), new, old)


@dataclasses.dataclass(frozen=True)
class Factory(abc.ABC):
    """Makes an aggregation for updates of a given form.

    See tff.aggregators.UnweightedAggregationFactory. Factories are frozen dataclasses of options; those that take
    another factory compose. The result of ``create`` screens clients and aggregates, see `screened`; factories and
    processes, which screen once for all, take `as_aggregator`'s.
    """

    _screens = "updates and weights"  # what `screened` checks; less where the aggregation does so itself

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "create" in vars(cls):
            cls._create = create = cls.create  # pyright: ignore[reportAttributeAccessIssue]
            cls.create = functools.wraps(create)(lambda self, template: screened(create(self, template), self._screens))

    @abc.abstractmethod
    def create(self, template: PyTree) -> AggregationProcess:
        """Return the aggregation.

        Args:
          template: one client's update: a pytree of `jax.ShapeDtypeStruct` or arrays.

        Raises:
          InputError: the aggregation cannot take such updates.
        """


NAMED: dict[str, Callable[..., Factory]] = {}
"""Aggregators by their names on the command line."""

_Make = TypeVar("_Make", bound=Callable[..., Factory])


def named(name: str) -> Callable[[_Make], _Make]:
    """Return a decorator that gives a factory a name on the command line.

    The factory's arguments, all of which have defaults, are the aggregator's options.
    """

    def registered(make: _Make) -> _Make:
        NAMED[name] = make
        return make

    return registered


def as_aggregator(aggregator: Any, template: PyTree) -> AggregationProcess:
    """Return an aggregation process, as given, or made by a factory and not screened.

    Raises:
      InputError: it is neither.
    """
    if isinstance(aggregator, AggregationProcess):
        return aggregator
    if hasattr(aggregator, "create") and not isinstance(aggregator, type):
        return getattr(aggregator, "_create", aggregator.create)(template)
    raise InputError(
        f"an aggregator is an AggregationProcess or a factory with create(template), not {type(aggregator).__name__}"
        + (f" (make one: {aggregator.__name__}(...))" if isinstance(aggregator, type) else "")
    )


def float_template(template: PyTree, who: str) -> PyTree:
    """Return the template in the dtype of sums: at least float32.

    Args:
      template: pytree of `jax.ShapeDtypeStruct` or arrays.
      who: the aggregation, for the message.

    Raises:
      InputError: the template has no leaves, or one that is not floating.
    """
    if not jax.tree.leaves(template):
        raise InputError(f"{who}: the update has no arrays.")

    def leaf(path: Any, value: Any) -> jax.ShapeDtypeStruct:
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            raise InputError(f"{who}: update{jax.tree_util.keystr(path)} is a {type(value).__name__}, not an array.")
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise InputError(
                f"{who}: update{jax.tree_util.keystr(path)} is {value.dtype}; it takes floating updates. Leave such "
                "leaves out of the trained params, or convert them."
            )
        return jax.ShapeDtypeStruct(value.shape, jnp.promote_types(value.dtype, jnp.float32))

    return jax.tree_util.tree_map_with_path(leaf, template)


def zeros_like(template: PyTree, leading: tuple[int, ...] = ()) -> PyTree:
    """Return zeros in the template's form, with leading dimensions."""
    return jax.tree.map(lambda t: jnp.zeros((*leading, *t.shape), t.dtype), template)


def cast_like(value: PyTree, template: PyTree) -> PyTree:
    """Return the value in the template's dtypes."""
    return jax.tree.map(lambda v, t: v.astype(t.dtype), value, template)


def rows(factor: Any, leaf: Any) -> Any:
    """Return ``factor`` (n,) shaped to broadcast against ``leaf`` (n, ...)."""
    return jnp.reshape(factor, (-1, *(1,) * (leaf.ndim - 1)))


def keep_rows(update: PyTree, mask: Any) -> PyTree:
    """Return the updates with zeros where ``mask`` (n,) is False, even for NaN."""
    return jax.tree.map(lambda x: jnp.where(rows(mask, x), x, jnp.zeros((), x.dtype)), update)


def scale_rows(update: PyTree, factor: Any) -> PyTree:
    """Scale each client's update by ``factor`` (n,), in float32; 0 gives 0."""

    def scale(x: Any) -> Any:
        x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        by = rows(factor, x).astype(x.dtype)
        return jnp.where(by == 0, jnp.zeros((), x.dtype), x * by)

    return jax.tree.map(scale, update)


def sum_rows(x: Any, dtype: Any = None) -> Any:
    """Return the sum over the clients of a leaf (n, ...).

    It is accumulated in ``dtype``, the leaf's own by default.
    """
    return jax.lax.reduce_sum(x if dtype is None else x.astype(dtype), (0,))


def row_norms(update: PyTree, order: float = 2.0) -> Any:
    """Return each client's norm over all leaves, float32 or wider (n,).

    Args:
      update: pytree with leaves (n, ...).
      order: 1, 2 or infinity.
    """
    every = jax.tree.leaves(update)
    filled = [x.reshape(x.shape[0], -1) for x in every if x.size]
    if not filled:
        return jnp.zeros(every[0].shape[0], jnp.float32)
    leaves = [jnp.abs(x.astype(jnp.promote_types(x.dtype, jnp.float32))) for x in filled]
    largest = jnp.max(jnp.stack([jnp.max(x, axis=1) for x in leaves]), axis=0)
    if order == math.inf:
        return largest
    if order == 1:
        return sum(jnp.sum(x, axis=1) for x in leaves)
    factor = factor_to_one(largest)
    small = [x * rows(factor, x).astype(x.dtype) for x in leaves]
    return jnp.sqrt(jnp.asarray(sum(jnp.sum(jnp.square(x), axis=1) for x in small))) / factor


def tree_norm(tree: PyTree) -> Any:
    """Return a pytree's L2 norm () in float32 or wider; 0 if it is empty."""
    filled = [x[None] for x in jax.tree.leaves(tree) if x.size]
    return row_norms(filled)[0] if filled else jnp.float32(0)


def factor_to_one(largest: Any) -> Any:
    """Return powers of two that scale numbers to about 1.

    Squares of scaled numbers neither overflow nor underflow. They and their reciprocals are normal numbers: XLA writes
    quotients by one number as products with its reciprocal, and takes that of 1e38 for 0.

    Args:
      largest: float (n,), the largest magnitudes; where they are not finite the factor is 1.
    """
    _, exponent = jnp.frexp(jnp.where(jnp.isfinite(largest), largest, 1.0))
    most = jnp.finfo(largest.dtype).maxexp
    return jnp.ldexp(jnp.ones((), largest.dtype), jnp.clip(-exponent, 8 - most, most - 26))


def screened(process: AggregationProcess, which: str = "updates and weights") -> AggregationProcess:
    """Return an aggregation that leaves out clients whose values are not usable.

    See `usable_clients`. Where its aggregate is not finite, that is zero, and the state stays.
    """

    def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
        checked = updates.update if which == "updates and weights" else ()
        mask = updates.mask
        if which:
            mask = mask & usable_clients(checked, updates.weight, bounded=not process.bounds_updates)
        return process.accumulate(state, accumulator, updates._replace(mask=mask), key)

    def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
        found = process.report(state, accumulator, key)
        finite = all_finite((found.result, found.state))
        zeros = jax.tree.map(jnp.zeros_like, found.result)
        return found._replace(state=chosen(finite, found.state, state), result=chosen(finite, found.result, zeros))

    return dataclasses.replace(process, accumulate=accumulate, report=report)


def client_keys(key: Any, index: Any) -> Any:
    """Return each client's key, (n,), by the round's key and the client's index."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(index)


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage that transforms updates before another aggregation.

    Attributes:
      initialize: ``() -> state``.
      zero: ``() -> tally``: a pytree of zeros, each an array of its own (they may be donated). Tallies of chunks are
        added.
      transform: ``(state, updates, key) -> (updates, tally)``. Masked rows must not reach the tally.
      finish: ``(state, tally, key) -> (state, measurements)``.
    """

    initialize: Callable[[], PyTree]
    zero: Callable[[], PyTree]
    transform: Callable[[PyTree, ClientUpdates, Any], tuple[ClientUpdates, PyTree]]
    finish: Callable[[PyTree, PyTree, Any], tuple[PyTree, dict[str, Any]]]


def before(stage: Stage, inner: AggregationProcess, name: str) -> AggregationProcess:
    """Return the inner aggregation with a stage before it.

    The inner aggregation's measurements are under ``name`` if there are any, as in TFF. The stage and the inner
    aggregation have different keys, so that the same stage can be used twice in a row.
    """

    def own(key: Any) -> Any:
        return jax.random.fold_in(key, 0)

    def rest(key: Any) -> Any:
        return jax.random.fold_in(key, 1)

    def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
        updates, tally = stage.transform(state[0], updates, own(key))
        total = jax.tree.map(jnp.add, accumulator[0], tally)
        return total, inner.accumulate(state[1], accumulator[1], updates, rest(key))

    def merge(a: Any, b: Any) -> Any:
        return jax.tree.map(jnp.add, a[0], b[0]), inner.merge(a[1], b[1])

    def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
        changed, measured = stage.finish(state[0], accumulator[0], own(key))
        found = inner.report(state[1], accumulator[1], rest(key))
        nested = {name: found.measurements} if found.measurements else {}
        return MeasuredProcessOutput((changed, found.state), found.result, {**measured, **nested})

    return dataclasses.replace(
        inner,
        initialize=lambda: (stage.initialize(), inner.initialize()),
        zero=lambda state, num_clients: (stage.zero(), inner.zero(state[1], num_clients)),
        accumulate=accumulate,
        merge=merge,
        report=report,
    )


@dataclasses.dataclass(frozen=True)
class SumFactory(Factory):
    """The sum of updates; weights are ignored.

    Integer leaves are summed exactly (modulo their dtype).
    """

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = jax.tree.map(
            lambda t: jax.ShapeDtypeStruct(
                t.shape, jnp.promote_types(t.dtype, jnp.float32) if jnp.issubdtype(t.dtype, jnp.floating) else t.dtype
            ),
            template,
        )

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            del state, key
            kept = keep_rows(updates.update, updates.mask)
            return jax.tree.map(lambda a, x: a + sum_rows(x, a.dtype), accumulator, kept)

        # A sum of nothing tells nothing.
        guarantees = frozenset() if jax.tree.leaves(template) else frozenset(get_args(Guarantee))
        return AggregationProcess(
            guarantees=guarantees,
            initialize=lambda: (),
            zero=lambda state, num_clients: jax.tree.map(lambda t: np.zeros(t.shape, t.dtype), wide),
            accumulate=accumulate,
            merge=lambda a, b: jax.tree.map(jnp.add, a, b),
            report=lambda state, accumulator, key: MeasuredProcessOutput((), cast_like(accumulator, template), {}),
        )


@dataclasses.dataclass(frozen=True)
class MeanFactory(Factory):
    """The weighted mean of updates.

    Zero if the weights are zero, so a round without clients changes nothing.

    Attributes:
      value_sum_factory: how updates times weights are summed; `SumFactory` by default.
    """

    value_sum_factory: Factory | None = None
    weighted = True

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, type(self).__name__)
        inner = as_aggregator(self.value_sum_factory or SumFactory(), wide)
        if self.weighted and inner.refuses_weights:
            raise InputError(
                f"MeanFactory: {inner.refuses_weights}, and a weighted mean does not. Use UnweightedMeanFactory."
            )

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            given = updates.weight if self.weighted else jnp.ones(updates.mask.shape, jnp.float32)
            weight = jnp.where(updates.mask, given, 0).astype(jnp.float32)
            update = scale_rows(updates.update, weight) if self.weighted else updates.update
            scaled = updates._replace(update=cast_like(update, wide))
            return accumulator[0] + jnp.sum(weight), inner.accumulate(state, accumulator[1], scaled, key)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            total, found = accumulator[0], inner.report(state, accumulator[1], key)
            safe = jnp.where(total > 0, total, 1.0)
            mean = jax.tree.map(lambda x: jnp.where(total > 0, x / safe.astype(x.dtype), 0), found.result)
            measured = {"mean_value": found.measurements} if found.measurements else {}
            return MeasuredProcessOutput(found.state, cast_like(mean, template), measured)

        return dataclasses.replace(
            inner,
            zero=lambda state, num_clients: (np.float32(0), inner.zero(state, num_clients)),
            accumulate=accumulate,
            merge=lambda a, b: (a[0] + b[0], inner.merge(a[1], b[1])),
            report=report,
        )


@dataclasses.dataclass(frozen=True)
class UnweightedMeanFactory(MeanFactory):
    """The mean of updates; weights are ignored. Without any client it is zero.

    Attributes:
      value_sum_factory: the sum of the updates.
    """

    weighted = False


@dataclasses.dataclass(frozen=True)
class ConcatFactory(Factory):
    """Aggregates all leaves of an update as one vector.

    A compression, say, then has one scale for all.

    Attributes:
      inner_agg_factory: the aggregation of the vectors; the weighted mean by default.
    """

    inner_agg_factory: Factory = dataclasses.field(default_factory=MeanFactory)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        leaves, form = jax.tree.flatten(float_template(template, "ConcatFactory"))
        sizes = [math.prod(leaf.shape) for leaf in leaves]
        dtype = jnp.result_type(*(leaf.dtype for leaf in leaves))
        inner = as_aggregator(self.inner_agg_factory, jax.ShapeDtypeStruct((sum(sizes),), dtype))

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            rows = [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in jax.tree.leaves(updates.update)]
            return inner.accumulate(state, accumulator, updates._replace(update=jnp.concatenate(rows, 1)), key)

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            found = inner.report(state, accumulator, key)
            parts = jnp.split(found.result, np.cumsum(sizes)[:-1])
            whole = form.unflatten([part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
            return found._replace(result=cast_like(whole, template))

        return dataclasses.replace(inner, accumulate=accumulate, report=report)


def concat_factory(inner_agg_factory: Factory) -> ConcatFactory:
    """Return a `ConcatFactory`. See tff.aggregators.concat_factory.

    Args:
      inner_agg_factory: the aggregation of the vectors.
    """
    return ConcatFactory(inner_agg_factory)


@named("mean")
def _weighted_mean() -> Factory:
    return MeanFactory()


@named("unweighted_mean")
def _unweighted_mean() -> Factory:
    return UnweightedMeanFactory()
