"""Random bits, and the bits of numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tf2jax_lite.jaxprs.compat import threefry2x32_p
from tf2jax_lite.support.errors import UnsupportedError
from tf2jax_lite.values.static import canonical

from .core import NAMED, OpContext, materialize, rule

_ALGORITHMS = {
    "DEFAULT": lax.RandomAlgorithm.RNG_DEFAULT,
    "THREE_FRY": lax.RandomAlgorithm.RNG_THREE_FRY,
    "PHILOX": lax.RandomAlgorithm.RNG_PHILOX,
}


@dataclasses.dataclass(frozen=True, eq=False)
class _Wide:
    """A vector of 64-bit words where JAX has none: pairs of 32-bit words."""

    pairs: Any
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.pairs.shape[:-1])


@rule("stablehlo.rng_bit_generator", lazy=True)
def _rng_bit_generator(ctx: OpContext, state: Any) -> Any:
    return random_bits(ctx, state, ctx.op.types[1].shape)


def random_bits(ctx: OpContext, state: Any, shape: tuple[Any, ...]) -> Any:
    """Return the new state and random bits of the dtype of the op's second result."""
    wide = isinstance(state, _Wide)
    key = state.pairs.reshape(-1) if wide else materialize(state)
    narrow = key.dtype == np.uint32
    if not narrow:
        key = lax.bitcast_convert_type(key, np.uint32).reshape(-1)
    out = ctx.op.types[1].dtype
    words: Any = np.dtype(f"uint{out.itemsize * 8}")
    if canonical(words) != words:
        raise UnsupportedError("64-bit random numbers need jax_enable_x64")
    new, bits = lax.rng_bit_generator(
        key, shape, dtype=words, algorithm=_ALGORITHMS[ctx.attr("rng_algorithm", "DEFAULT")]
    )
    if out != words:
        bits = lax.bitcast_convert_type(bits, out)
    if wide:
        return _Wide(new.reshape(-1, 2), state.dtype), bits
    return (new if narrow else lax.bitcast_convert_type(new.reshape(-1, 2), np.uint64)), bits


@rule("stablehlo.rng")
def _rng(ctx: OpContext, low: Any, high: Any, shape: Any) -> Any:
    sizes = tuple(int(d) for d in ctx.static(shape, "the shape of random numbers"))
    if ctx.attr("rng_distribution") != "UNIFORM":
        raise UnsupportedError("normal random numbers of the compiler's own generator have no counterpart in jax.lax")
    return lax.rng_uniform(low, high, sizes)


@rule("stablehlo.bitcast_convert", lazy=True)
def _bitcast(ctx: OpContext, x: Any) -> Any:
    target = ctx.type.dtype
    if isinstance(x, _Wide):
        if target.itemsize == 4:
            return x.pairs if target == np.uint32 else lax.bitcast_convert_type(x.pairs, target)
        return _Wide(x.pairs, target)
    x = materialize(x)
    if target.kind in "iu" and target.itemsize == 8 and not jax.config.read("jax_enable_x64") and x.dtype.itemsize == 4:
        source = ctx.op.operand_types[0].dtype
        if source.itemsize == 4 and jnp.ndim(x) and x.shape[-1] == 2:
            return _Wide(lax.bitcast_convert_type(x, np.uint32), target)
    return x if x.dtype == ctx.dtype else lax.bitcast_convert_type(x, ctx.dtype)


def threefry(*words: Any) -> Any:
    """Return two words of random bits for each pair of a key's and a counter's words."""
    # Symbolic sizes of the module, and the platform's number, come before the words.
    return threefry2x32_p.bind(*map(jnp.asarray, words[-4:]))


NAMED["threefry2x32"] = (threefry, frozenset({"constant", "xor", "broadcast_in_dim", "add", "while"}))
