"""Compression of clients' messages.

See tff.learning.compression_aggregator, fedjax.aggregators.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from tf2jax_lite.federated._utils.validation import check_number
from tf2jax_lite.federated.aggregators.base import (
    Factory,
    Stage,
    as_aggregator,
    before,
    cast_like,
    client_keys,
    float_template,
)
from tf2jax_lite.federated.aggregators.codecs import FLOAT_BITS, Codec, UniformQuantizer
from tf2jax_lite.federated.aggregators.mean import MeanFactory
from tf2jax_lite.federated.templates.process import AggregationProcess, ClientUpdates
from tf2jax_lite.support.errors import InputError


@dataclasses.dataclass(frozen=True)
class CompressionFactory(Factory):
    """Aggregates updates that clients encode and the server decodes.

    Leaves are encoded separately. Measures, over the clients that count: ``bits_per_client`` (the mean of the bits in
    fact sent), ``compression_ratio`` (32 bits a number over that) and ``distortion`` (squared error over squared norm,
    of those whose squared norms float32 holds).

    Attributes:
      codec: the code.
      inner_agg_factory: the aggregation of the decoded updates; the weighted mean by default.
      threshold: leaves with fewer numbers are sent as they are.
    """

    codec: Codec = dataclasses.field(default_factory=UniformQuantizer)
    inner_agg_factory: Factory = dataclasses.field(default_factory=MeanFactory)
    threshold: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise InputError(f"CompressionFactory: codec is a Codec, such as Drive(); not {self.codec!r}.")
        check_number("CompressionFactory", "threshold", self.threshold, least=0, whole=True)

    def create(self, template: Any) -> AggregationProcess:
        """See `Factory.create`."""
        wide = float_template(template, "CompressionFactory")
        total = sum(math.prod(t.shape) for t in jax.tree.leaves(wide))

        def client(update: Any, key: Any, shared: Any) -> tuple[Any, Any, Any, Any]:
            leaves, form = jax.tree.flatten(update)
            decoded, bits = [], jnp.zeros((), jnp.float32)
            for i, x in enumerate(leaves):
                if x.size < max(self.threshold, 1):
                    decoded.append(x)
                    bits += FLOAT_BITS * x.size
                    continue
                keys = jax.random.fold_in(key, i), jax.random.fold_in(shared, i)
                sent = self.codec.encode(x.reshape(-1), *keys)
                decoded.append(self.codec.decode(sent, x.size, *keys).reshape(x.shape))
                bits += self.codec.bits(sent, x.size)
            error = sum(jnp.sum(jnp.square(a - b)) for a, b in zip(decoded, leaves, strict=True))
            energy = sum(jnp.sum(jnp.square(b)) for b in leaves)
            return jax.tree.unflatten(form, decoded), bits, error, energy

        def transform(state: Any, updates: ClientUpdates, key: Any) -> tuple[ClientUpdates, Any]:
            del state
            shared, own = jax.random.split(key)
            update = cast_like(updates.update, wide)
            decoded, *measured = jax.vmap(client, in_axes=(0, 0, None))(update, client_keys(own, updates.index), shared)
            bits, error, energy = measured
            held = updates.mask & jnp.isfinite(error) & jnp.isfinite(energy)
            kept = ((bits, updates.mask), (error, held), (energy, held))
            tally = [jnp.sum(jnp.where(mask, v, 0), dtype=jnp.float32) for v, mask in kept]
            tally.append(jnp.sum(updates.mask, dtype=jnp.float32))
            return updates._replace(update=cast_like(decoded, template)), tally

        def finish(state: Any, tally: Any, key: Any) -> tuple[Any, dict[str, Any]]:
            del key
            bits, error, energy, clients = tally
            mean = bits / jnp.maximum(clients, 1.0)
            return state, {
                "bits_per_client": mean,
                "compression_ratio": jnp.where(mean > 0, FLOAT_BITS * total / jnp.where(mean > 0, mean, 1.0), 0.0),
                "distortion": jnp.where(energy > 0, error / jnp.where(energy > 0, energy, 1.0), 0.0),
            }

        stage = Stage(lambda: (), lambda: [jnp.zeros((), jnp.float32) for _ in range(4)], transform, finish)
        return before(stage, as_aggregator(self.inner_agg_factory, template), "compression")
