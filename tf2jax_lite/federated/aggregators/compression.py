"""Compress clients' updates: rotations, codecs, the aggregator.

See tff.learning.compression_aggregator, fedjax.aggregators, fedjax.aggregators.walsh_hadamard.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from tf2jax_lite.federated.aggregators.base import (
    Factory,
    MeanFactory,
    Stage,
    as_aggregator,
    before,
    cast_like,
    client_keys,
    factor_to_one,
    float_template,
    named,
    share_up,
)
from tf2jax_lite.learning.checks import check_number
from tf2jax_lite.learning.process import AggregationProcess, ClientUpdates
from tf2jax_lite.support.errors import InputError

__all__ = [
    "Codec",
    "CompressionFactory",
    "Drive",
    "EliasGamma",
    "RotatedUniformQuantizer",
    "TernGrad",
    "TopK",
    "UniformQuantizer",
]


def walsh_hadamard(x: Any) -> Any:
    """Return the orthonormal, self-inverse transform of a vector (2^k,)."""
    d = x.shape[0]
    step = 1
    while step < d:
        pairs = x.reshape(-1, 2, step)
        x = jnp.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        step *= 2
    return x.reshape(d) * d**-0.5


def rotated_size(size: int) -> int:
    """Return the smallest power of two that is at least ``size``."""
    return 1 << max(size - 1, 0).bit_length()


def rotate(x: Any, key: Any) -> Any:
    """Return a random rotation of (d,) padded: random signs, then Hadamard."""
    size = rotated_size(x.shape[0])
    padded = jnp.concatenate([x, jnp.zeros((size - x.shape[0],), x.dtype)])
    return walsh_hadamard(padded * jax.random.rademacher(key, (size,), x.dtype))


def rotate_back(x: Any, size: int, key: Any) -> Any:
    """Invert `rotate` with the same key; ``size`` is the original size of the vector."""
    return (walsh_hadamard(x) * jax.random.rademacher(key, x.shape, x.dtype))[:size]


FLOAT_BITS = 32


@dataclasses.dataclass(frozen=True)
class Codec(abc.ABC):
    """A lossy code for vectors.

    Keys are known to both sides (a client's seed can be sent or agreed on). Decoded values are finite if the vector is;
    they saturate at the largest float.
    """

    @abc.abstractmethod
    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """Return the encoded message: a pytree of arrays.

        Args:
          x: float32 (d,).
          key: the client's key.
          shared_key: the same for all clients of a round.
        """

    @abc.abstractmethod
    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """Return the vector, float32 (size,), from the message and the keys."""

    @abc.abstractmethod
    def bits(self, sent: Any, size: int) -> Any:
        """Return the number of bits of the message, float32 ()."""


_Codec = TypeVar("_Codec", bound=Callable[..., Codec])


def _coded(name: str) -> Callable[[_Codec], _Codec]:
    """Return a decorator of codecs that names the aggregator of updates in them.

    Its options are the codec's.
    """

    def registered(make: _Codec) -> _Codec:
        def compressed(**options: Any) -> Factory:
            return CompressionFactory(make(**options))

        compressed.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
        named(name)(compressed)
        return make

    return registered


def _near_one(x: Any) -> tuple[Any, Any]:
    """Return numbers times a power of two that makes them about 1, and that power."""
    factor = factor_to_one(jnp.max(jnp.abs(x)))
    return x * factor, factor


def _finite(x: Any) -> Any:
    """Return the numbers, the largest that there is in place of infinity."""
    most = jnp.finfo(x.dtype).max
    return jnp.clip(x, -most, most)


@_coded("quantized")
@dataclasses.dataclass(frozen=True)
class UniformQuantizer(Codec):
    """Unbiased stochastic rounding to evenly spaced levels.

    The levels span the smallest to the largest number. See fedjax.aggregators.uniform_stochastic_quantizer (Suresh et
    al., 2017).

    Attributes:
      num_levels: the number of levels, from 2 to 65536.
      coding: "fixed": each number takes the bits of a level index. "entropy": the bits of an ideal entropy coder for
        the observed levels, and 32 bits for the count of each level; "fixed" if that is less.
    """

    num_levels: int = 256
    coding: str = "fixed"

    def __post_init__(self) -> None:
        check_number(type(self).__name__, "num_levels", self.num_levels, least=2, most=65536, whole=True)
        if self.coding not in ("fixed", "entropy"):
            raise InputError(f'{type(self).__name__}: coding is "fixed" or "entropy", not {self.coding!r}.')

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`: int32 levels (d,), minimum, and half a level's distance."""
        del shared_key
        return self._encoded(*_near_one(x), key)

    def _encoded(self, x: Any, factor: Any, key: Any) -> Any:
        """Return the message for ``x / factor``; the unscaled level distance may overflow."""
        low, high = jnp.min(x), jnp.max(x)
        step = (high - low) / (self.num_levels - 1)
        place = (x - low) / jnp.where(step > 0, step, 1.0)
        level = jnp.clip(jnp.floor(place + jax.random.uniform(key, x.shape)), 0, self.num_levels - 1)
        low, half = _finite(low / factor), _finite(0.5 * step / factor)
        return {"level": level.astype(jnp.int32), "low": low, "half": half}

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        return _finite(2 * (0.5 * sent["low"] + sent["level"].astype(sent["low"].dtype) * sent["half"]))

    def bits(self, sent: Any, size: int) -> Any:
        """See `Codec.bits`."""
        header = 2.0 * FLOAT_BITS
        number = sent["level"].shape[0]
        fixed = jnp.float32(number * math.ceil(math.log2(self.num_levels)))
        if self.coding == "fixed":
            return header + fixed
        counts = jnp.zeros((self.num_levels,), jnp.float32).at[sent["level"]].add(1.0)
        shares = counts / number
        entropy = -jnp.sum(jnp.where(counts > 0, counts * jnp.log2(jnp.where(counts > 0, shares, 1.0)), 0.0))
        return header + jnp.minimum(fixed, jnp.ceil(entropy) + FLOAT_BITS * self.num_levels)


@_coded("rotated")
@dataclasses.dataclass(frozen=True)
class RotatedUniformQuantizer(UniformQuantizer):
    """`UniformQuantizer` after a random rotation, unbiased.

    All clients share the rotation, which evens out large numbers. See
    fedjax.aggregators.rotated_uniform_stochastic_quantizer (Suresh et al., 2017). Vectors are padded to a power of two,
    and the padding is sent too.

    Attributes:
      num_levels: see `UniformQuantizer`.
      coding: see `UniformQuantizer`.
    """

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`."""
        x, factor = _near_one(x)
        return self._encoded(rotate(x, shared_key), factor, key)

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        rotated, factor = _near_one(super().decode(sent, rotated_size(size), key, shared_key))
        return _finite(rotate_back(rotated, size, shared_key) / factor)


@_coded("drive")
@dataclasses.dataclass(frozen=True)
class Drive(Codec):
    """One bit a number: the signs after a rotation of the client's own, and one scale.

    See Vargaftik et al. 2021, "DRIVE: One-bit Distributed Mean Estimation";
    fedjax.aggregators.structured_drive_quantizer.

    Attributes:
      unbiased: whether the scale makes the mean over rotations exact (the paper's theorem 2), or the error of a single
        vector least.
    """

    unbiased: bool = True

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`: bits, bool (d,), and the scale."""
        del shared_key
        x, factor = _near_one(x)
        rotated = rotate(x, key)
        total = jnp.sum(jnp.abs(rotated))
        if self.unbiased:
            scale = jnp.where(total > 0, jnp.sum(jnp.square(rotated)) / jnp.where(total > 0, total, 1.0), 0.0)
        else:
            scale = total / rotated.shape[0]
        return {"positive": rotated >= 0, "scale": _finite(scale / factor)}

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        signs = jnp.where(sent["positive"], 1, -1).astype(sent["scale"].dtype)
        return _finite(rotate_back(signs, size, key) * sent["scale"])

    def bits(self, sent: Any, size: int) -> Any:
        """See `Codec.bits`."""
        return jnp.float32(rotated_size(size) + FLOAT_BITS)


@_coded("tern_grad")
@dataclasses.dataclass(frozen=True)
class TernGrad(Codec):
    """Ternary values: zero or the largest magnitude, with sign.

    Random in proportion to magnitude: unbiased unless it clips. See Wen et al. 2017, "TernGrad";
    fedjax.aggregators.terngrad_quantizer. Five such numbers take a byte.

    Attributes:
      clip_stddevs: numbers beyond this many standard deviations (above 0) are clipped first (the paper's 2.5); None for
        none.
    """

    clip_stddevs: float | None = None

    def __post_init__(self) -> None:
        if self.clip_stddevs is not None:
            check_number("TernGrad", "clip_stddevs", self.clip_stddevs, above=0, infinite=True)

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`: int8 (d,) of -1, 0 and 1, and the magnitude."""
        del shared_key
        x, factor = _near_one(x)
        if self.clip_stddevs is not None:
            bound = self.clip_stddevs * jnp.std(x)
            x = jnp.clip(x, -bound, bound)
        scale = jnp.max(jnp.abs(x))
        share = jnp.abs(x) / jnp.where(scale > 0, scale, 1.0)
        chosen = jax.random.uniform(key, x.shape) < share
        return {"sign": jnp.where(chosen, jnp.sign(x), 0).astype(jnp.int8), "scale": scale / factor}

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        return sent["sign"].astype(sent["scale"].dtype) * sent["scale"]

    def bits(self, sent: Any, size: int) -> Any:
        """See `Codec.bits`."""
        return jnp.float32(8 * -(-size // 5) + FLOAT_BITS)


@dataclasses.dataclass(frozen=True)
class EliasGamma(Codec):
    """Unbiased stochastic rounding to multiples of a step, in Elias gamma codes.

    A number that is not zero is coded as the length of the run of zeros before it, its sign and its magnitude. See
    Mitchell et al. 2022, "Optimizing the Communication-Accuracy Trade-off in Federated Learning with Rate-Distortion
    Theory"; tff.aggregators.StochasticDiscretizationFactory and EliasGammaEncodedSumFactory.

    Attributes:
      step_size: the distance of levels, above 0. Numbers beyond about 2**31 steps saturate.
    """

    step_size: float = 0.5

    def __post_init__(self) -> None:
        check_number("EliasGamma", "step_size", self.step_size, above=0)

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`: int32 levels (d,)."""
        del shared_key
        most = np.nextafter(np.float32(2**31), np.float32(0))  # its neighbor above is no int32
        level = jnp.floor(x / self.step_size + jax.random.uniform(key, x.shape))
        return {"level": jnp.clip(level, -most, most).astype(jnp.int32)}

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        return _finite(sent["level"].astype(jnp.float32) * self.step_size)

    def bits(self, sent: Any, size: int) -> Any:
        """See `Codec.bits`: bytes as of TensorFlow Compression's run_length_gamma_encode."""
        level = sent["level"]
        index = jnp.arange(size, dtype=jnp.int32)
        coded = level != 0
        last = jnp.concatenate([jnp.full(1, -1, jnp.int32), jax.lax.cummax(jnp.where(coded, index, -1))])
        each = _gamma_bits(index - last[:-1]) + 1 + _gamma_bits(jnp.abs(level))
        zeros = size - 1 - last[-1]
        number = jnp.sum(jnp.where(coded, each, 0), dtype=jnp.float32)
        return 8 * jnp.ceil((number + jnp.where(zeros > 0, _gamma_bits(zeros + 1), 0)) / 8)


def _gamma_bits(number: Any) -> Any:
    """Return the lengths of Elias gamma codes of integers above 0."""
    return 2 * (31 - jax.lax.clz(number)) + 1


@_coded("top_k")
@dataclasses.dataclass(frozen=True)
class TopK(Codec):
    """The numbers of largest magnitude, the rest being zero: biased.

    Attributes:
      fraction: the share of numbers that is sent, in (0, 1]; at least one number.
    """

    fraction: float = 0.01

    def __post_init__(self) -> None:
        check_number("TopK", "fraction", self.fraction, above=0, most=1)

    def encode(self, x: Any, key: Any, shared_key: Any) -> Any:
        """See `Codec.encode`: values (k,) and indices, int32 (k,)."""
        del key, shared_key
        number = max(1, int(share_up(self.fraction, x.shape[0])))
        _, index = jax.lax.top_k(jnp.abs(x), number)
        return {"value": x[index], "index": index}

    def decode(self, sent: Any, size: int, key: Any, shared_key: Any) -> Any:
        """See `Codec.decode`."""
        return jnp.zeros((size,), sent["value"].dtype).at[sent["index"]].set(sent["value"])

    def bits(self, sent: Any, size: int) -> Any:
        """See `Codec.bits`: indices as integers or as a bit mask, whichever is smaller."""
        number = sent["value"].shape[0]
        indices = min(number * math.ceil(math.log2(max(size, 2))), size)
        return jnp.float32(number * FLOAT_BITS + indices)


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
