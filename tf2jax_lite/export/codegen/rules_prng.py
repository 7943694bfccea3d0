"""Keys and random bits as calls of ``jax.random``."""

from __future__ import annotations

from tf2jax_lite.support.errors import ExportError

from . import literals
from .registry import Equation, Raw, call, rule

__all__: list[str] = []


@rule("philox_key")
def _philox_key(eqn: Equation) -> str:
    return call("_philox_key", eqn.typed[0])


@rule("philox_uniform", "philox_normal")
def _philox_numbers(eqn: Equation) -> str:
    return call(f"_{eqn.name}", *eqn.typed, literals.shape(eqn.outputs[0].shape))


@rule("philox_dropout")
def _philox_dropout(eqn: Equation) -> str:
    return call("_philox_dropout", eqn.typed[0], literals.value(eqn.params["rate"]), eqn.typed[1])


@rule("jax_uniform", "jax_normal")
def _jax_numbers(eqn: Equation) -> str:
    name = eqn.name.removeprefix("jax_")
    return call(f"jax.random.{name}", eqn.typed[0], literals.shape(eqn.outputs[0].shape), "np.float32")


@rule("jax_dropout")
def _jax_dropout(eqn: Equation) -> str:
    p = eqn.params
    return call("_dropout", *eqn.typed, layer=p["layer"], rate=p["rate"])


@rule("batch_norm")
def _batch_norm(eqn: Equation) -> str:
    x, params, _ = eqn.typed
    epsilon, momentum = eqn.params["epsilon"], eqn.params["momentum"]
    return call("_batch_norm", x, params, train=Raw(eqn.loose[2]), epsilon=epsilon, momentum=momentum)


@rule("random_wrap")
def _random_wrap(eqn: Equation) -> str:
    return call("jax.random.wrap_key_data", eqn.typed[0], impl=eqn.params["impl"].name)


@rule("random_unwrap")
def _random_unwrap(eqn: Equation) -> str:
    return call("jax.random.key_data", eqn.typed[0])


@rule("random_seed")
def _random_seed(eqn: Equation) -> str:
    return call("jax.random.key", eqn.typed[0], impl=eqn.params["impl"].name)


@rule("random_fold_in")
def _random_fold_in(eqn: Equation) -> str:
    return call("jax.random.fold_in", eqn.typed[0], eqn.loose[1])


@rule("random_bits")
def _random_bits(eqn: Equation) -> str:
    p = eqn.params
    return call("jax.random.bits", eqn.typed[0], literals.shape(p["shape"]), f"np.uint{p['bit_width']}")


@rule("random_split")
def _random_split(eqn: Equation) -> str:
    return call("jax.random.split", eqn.typed[0], literals.shape(eqn.params["shape"]))


@rule("random_gamma")
def _random_gamma(eqn: Equation) -> str:
    key, alpha = eqn.inputs
    if key.shape not in ((), alpha.shape):
        raise ExportError("gamma variates of keys of neither one nor alpha's shape cannot be written as source")
    fn = "jax.random.loggamma" if eqn.params["log_space"] else "jax.random.gamma"
    dtype = literals.dtype(alpha.dtype)
    if key.shape == ():
        return call(fn, *eqn.typed, dtype=Raw(dtype))
    mapped = f"lambda key, alpha: {fn}(key, alpha, dtype={dtype})"
    for _ in alpha.shape:
        mapped = f"jax.vmap({mapped})"
    return call(mapped if alpha.shape else f"({mapped})", *eqn.typed)


@rule("rng_bit_generator")
def _rng_bit_generator(eqn: Equation) -> str:
    p = eqn.params
    return call(
        "lax.rng_bit_generator", eqn.typed[0], literals.shape(p["shape"]), literals.dtype(p["dtype"]),
        algorithm=p["algorithm"],
    )  # fmt: skip
