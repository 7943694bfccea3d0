"""A simulation of secure aggregation: the server sees masked sums alone.

After Bonawitz et al. 2017 (pairwise masks, own masks, recovery from dropped clients) and Bell et al. 2020 (masks with
some neighbors only). Numbers become integers modulo 2**k. Client i adds a mask of its own, and for each neighbour j a
mask that both know: i adds it if i < j and subtracts it otherwise. In the sum pairs cancel. At the end
the server learns only the own masks of clients that answered, and the pairwise masks between those and the others.
Everything is arithmetic on integers, so the sum is exact. Key agreement and secret sharing, which would deliver the
seeds, are not simulated: seeds come from the aggregation's key, which processes draw from the operating system.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import Factory, cast_like, float_template, row_norms, rows
from tf2jax_lite.federated.aggregators.quantile import QuantileEstimation
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates, MeasuredProcessOutput
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class SecureSumFactory(Factory):
    """The sum of updates by simulated secure aggregation.

    Usable as a `MeanFactory`'s value_sum_factory. Each number is clipped to [-bound, bound] and rounded to a multiple
    of a step. The step is such that the sum of the cohort fits: about ``bound * num_clients / 2**(modulus_bits - 1)``.
    Weights are ignored. Measures secure_upper_threshold (the round's bound), secure_upper_clipped_count and
    secure_lower_clipped_count (clients with a number above the bound, or below its negative), as TFF does; and
    secure_sum_clipped (numbers beyond the bound), secure_sum_survivors and secure_sum_failed.

    Attributes:
      bound: the largest magnitude of a number, above 0, or a `QuantileEstimation` of the clients' largest magnitudes.
        As a part of a weighted mean it covers updates times weights.
      modulus_bits: k, from 8 to 32.
      num_neighbors: how many others each client shares masks with (even); None for all. The work grows with it.
      min_clients: with fewer survivors the round fails: the result is zero.
    """

    bound: float | QuantileEstimation
    modulus_bits: int = 32
    num_neighbors: int | None = None
    min_clients: int = 1

    def __post_init__(self) -> None:
        check = functools.partial(check_number, "SecureSumFactory")
        if not isinstance(self.bound, QuantileEstimation):
            check("bound, if no QuantileEstimation,", self.bound, above=0)
        check("modulus_bits", self.modulus_bits, least=8, most=32, whole=True)
        check("min_clients", self.min_clients, least=0, whole=True)
        if self.num_neighbors is not None:
            check("num_neighbors", self.num_neighbors, least=2, whole=True)
            if self.num_neighbors % 2:
                raise InputError(f"SecureSumFactory: num_neighbors is even, not {self.num_neighbors}.")

    def levels(self, num_clients: int) -> int:
        """Return the largest integer that one client sends.

        Raises:
          InputError: the modulus is too small for the sum over the clients.
        """
        levels = (2 ** (self.modulus_bits - 1) - 1) // num_clients
        if levels < 1:
            raise InputError(
                f"SecureSumFactory: modulus 2**{self.modulus_bits} is too small for {num_clients} clients."
            )
        # A float32 above 2**24 may round up.
        return levels if levels <= 2**24 else int(np.nextafter(np.float32(levels), np.float32(0)))

    def quantize(self, update: Any, num_clients: int, bound: Any = None) -> Any:
        """Return updates as uint32, in two's complement modulo 2**modulus_bits.

        Args:
          update: the updates.
          num_clients: the size of the cohort.
          bound: the round's bound; the fixed one if None.
        """
        levels = self.levels(num_clients)
        bound = self.bound if bound is None else bound

        def leaf(x: Any) -> Any:
            scaled = jnp.round(jnp.clip(x / bound, -1, 1) * levels).astype(jnp.int32)
            return self._reduced(jax.lax.bitcast_convert_type(scaled, jnp.uint32))

        return jax.tree.map(leaf, update)

    def client_mask(self, template: Any, key: Any, index: Any, num_clients: int) -> Any:
        """Return what client ``index`` adds to its update: a pytree of uint32."""
        mask, offsets = _draw(template, _own_key(key, index)), self._offsets(num_clients)
        if offsets.size:

            def add(k: Any, mask: Any) -> Any:
                return _add(mask, _pair(template, key, index, (index + offsets[k]) % num_clients))

            mask = jax.lax.fori_loop(0, offsets.size, add, mask)
        return jax.tree.map(self._reduced, mask)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "SecureSumFactory")
        estimation = self.bound if isinstance(self.bound, QuantileEstimation) else None

        def bound_of(state: Any) -> Any:
            return self.bound if estimation is None else estimation.bound(state)

        def zero(state: Any, num_clients: int) -> Any:
            del state
            self.levels(num_clients)
            total = jax.tree.map(lambda t: jnp.zeros(t.shape, jnp.uint32), wide)
            return total, jnp.zeros((num_clients,), bool), [jnp.zeros((), jnp.int32) for _ in range(4)]

        def accumulate(state: Any, accumulator: Any, updates: ClientUpdates, key: Any) -> Any:
            total, survived, counts = accumulator
            size, bound = survived.shape[0], bound_of(state)
            update = cast_like(updates.update, wide)
            masks = jax.vmap(lambda i: self.client_mask(wide, key, i, size))(updates.index)
            sent = _add(self.quantize(update, size, bound), masks)
            total = jax.tree.map(lambda t, x: t + _sum(x, updates.mask), total, sent)
            survived = survived.at[jnp.where(updates.mask, updates.index, size)].set(True, mode="drop")
            numbers = sum(
                jnp.sum(rows(updates.mask, x) & (jnp.abs(x) > bound), dtype=jnp.int32) for x in jax.tree.leaves(update)
            )
            kinds = (
                _any_beyond(update, lambda x: x > bound),
                _any_beyond(update, lambda x: x < -bound),
                row_norms(update, math.inf) <= (bound if estimation is None else state),
            )
            clients = [jnp.sum(kind & updates.mask, dtype=jnp.int32) for kind in kinds]
            return total, survived, _add(counts, [numbers, *clients])

        def merge(a: Any, b: Any) -> Any:
            return _add(a[0], b[0]), a[1] | b[1], _add(a[2], b[2])

        def report(state: Any, accumulator: Any, key: Any) -> MeasuredProcessOutput:
            total, survived, (clipped, above, under, within) = accumulator
            size, bound = survived.shape[0], bound_of(state)
            number = jnp.sum(survived, dtype=jnp.int32)
            failed = number < self.min_clients
            total = self._unmask(wide, total, survived, key)
            step = bound / self.levels(size)

            def leaf(x: Any, t: Any) -> Any:
                # Two's complement of k bits: shift up and arithmetically down again.
                spare = 32 - self.modulus_bits
                signed = jax.lax.bitcast_convert_type(x << spare, jnp.int32) >> spare
                return jnp.where(failed, 0, signed.astype(t.dtype) * step)

            result = cast_like(jax.tree.map(leaf, total, wide), template)
            measured = {
                "secure_sum_clipped": clipped,
                "secure_sum_survivors": number,
                "secure_sum_failed": failed,
                "secure_upper_threshold": jnp.asarray(bound, jnp.float32),
                "secure_upper_clipped_count": above,
                "secure_lower_clipped_count": under,
            }
            # Of its own, so that noise of the estimation does not repeat a mask.
            changed = () if estimation is None else estimation.next(state, within, number, jax.random.fold_in(key, 2))
            return MeasuredProcessOutput(changed, result, measured)

        initialize = tuple if estimation is None else estimation.initialize
        return AggregationProcess(
            initialize,
            zero,
            accumulate,
            merge,
            report,
            guarantees=frozenset({"secure aggregation"}),
            is_secret=True,
        )

    def _unmask(self, template: Any, total: Any, survived: Any, key: Any) -> Any:
        """Remove the survivors' own masks, and those shared with dropped clients."""
        size = survived.shape[0]
        offsets = jnp.concatenate([jnp.zeros((1,), jnp.int32), self._offsets(size)])

        def one(k: Any, total: Any) -> Any:
            i, offset = k // offsets.shape[0], offsets[k % offsets.shape[0]]
            j = (i + offset) % size

            def own() -> Any:
                return _draw(template, _own_key(key, i))

            def shared() -> Any:
                return _pair(template, key, i, j)

            def take(total: Any) -> Any:
                return jax.tree.map(jnp.subtract, total, jax.lax.cond(offset == 0, own, shared))

            # A mask is drawn where it is needed, so without dropped clients this costs one draw for each client.
            return jax.lax.cond(survived[i] & ((offset == 0) | ~survived[j]), take, lambda t: t, total)

        return jax.lax.fori_loop(0, size * offsets.shape[0], one, total)

    def _reduced(self, x: Any) -> Any:
        return x & jnp.uint32(2**self.modulus_bits - 1)

    def _offsets(self, size: int) -> jax.Array:
        """Return the distances of each client's neighbors on the circle of clients."""
        if self.num_neighbors is None or self.num_neighbors >= size - 1:
            return jnp.arange(1, size, dtype=jnp.int32)
        half = self.num_neighbors // 2
        return jnp.asarray(sorted({o for k in range(1, half + 1) for o in (k, size - k)}), jnp.int32)


def _own_key(key: Any, index: Any) -> Any:
    return jax.random.fold_in(jax.random.fold_in(key, 0), index)


def _draw(template: Any, key: Any) -> Any:
    leaves, form = jax.tree.flatten(template)
    keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
    return jax.tree.unflatten(
        form, [jax.random.bits(k, t.shape, jnp.uint32) for k, t in zip(keys, leaves, strict=True)]
    )


def _pair(template: Any, key: Any, i: Any, j: Any) -> Any:
    """Return client ``i``'s mask for ``j``: that of the pair, or its negative."""
    low, high = jnp.minimum(i, j), jnp.maximum(i, j)
    pair_key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(key, 1), low), high)
    return jax.tree.map(lambda m: jnp.where(i < j, m, -m), _draw(template, pair_key))


def _any_beyond(update: Any, is_beyond: Any) -> Any:
    """Return whether any number of each client is beyond the bound, bool (n,)."""
    found = [jnp.any(is_beyond(x).reshape(x.shape[0], -1), axis=1) for x in jax.tree.leaves(update)]
    return functools.reduce(jnp.logical_or, found)


def _add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _sum(x: Any, mask: Any) -> Any:
    return jnp.sum(jnp.where(rows(mask, x), x, 0), axis=0, dtype=jnp.uint32)
