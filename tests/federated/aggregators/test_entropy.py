"""Keys of the operating system's entropy, and noise drawn with them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg
from tf2jax_lite.federated.aggregators import privacy as entropy
from tf2jax_lite.federated.compose import round_keys
from tf2jax_lite.learning import data
from tf2jax_lite.learning.checkpoints import CheckpointFile
from tf2jax_lite.learning.states import state_arrays


def test_the_cipher_is_rfc_8439s():
    """The block of section 2.3.2."""
    key = jnp.asarray(np.frombuffer(bytes(range(32)), "<u4"))
    nonce = np.frombuffer(bytes.fromhex("000000090000004a00000000"), "<u4")
    block = np.asarray(entropy.chacha20(key, jnp.asarray([1], jnp.uint32), nonce)[0]).astype("<u4").tobytes()
    assert block.hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_keys_draw_all_kinds_of_numbers():
    key = entropy.fresh_key()
    for width in (8, 16, 32):
        bits = np.asarray(jax.random.bits(key, (4096,), f"uint{width}")).astype(np.float64)
        assert abs(bits.mean() / 2.0**width - 0.5) < 5 / np.sqrt(12 * 4096)
    found = np.asarray(jax.jit(jax.random.normal, static_argnums=1)(key, (50_000,)))
    assert abs(found.mean()) < 5 / np.sqrt(found.size) and abs(found.std() - 1) < 5 / np.sqrt(2 * found.size)
    derived = [*jax.random.split(key, 4), *(jax.random.fold_in(key, i) for i in range(4)), entropy.fresh_key()]
    assert len({np.asarray(jax.random.key_data(k)).tobytes() for k in derived}) == len(derived)
    by_client = jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i)))(jnp.arange(3))
    assert [int(b) for b in by_client] == [int(jax.random.bits(jax.random.fold_in(key, i))) for i in range(3)]


MODEL = fed.create_model_from_fn({"w": np.zeros((4, 3), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
ZEROS = [data.ClientDataset({"x": np.zeros((4, 4), np.float32), "y": np.zeros((4, 3), np.float32)}) for _ in range(3)]
FACTORIES = {
    "fixed": lambda **o: agg.DifferentiallyPrivateFactory(1.0, 3, 1.0, **o),
    "clipped": lambda **o: agg.ClippingFactory(2.0, agg.DifferentiallyPrivateFactory(1.0, 3, 1.0, **o)),
    "distributed": lambda **o: agg.UnweightedMeanFactory(agg.DistributedDpSumFactory(1.0, 3, 20, 1.0, **o)),
}


def process(factory):
    return fed.build_unweighted_fed_avg(
        MODEL, optax.sgd(0.1), aggregator=factory, client_batching=fed.BatchHParams(batch_size=4)
    )


def noise(training, state=None):
    state = training.initialize() if state is None else state
    return np.asarray(training.next(state, ZEROS).state.params["w"])


@pytest.mark.parametrize("name", FACTORIES)
def test_a_round_never_has_the_same_noise_unless_a_test_asks(name):
    """Updates are 0 here, so the round's result is its noise."""
    training = process(FACTORIES[name]())
    assert np.abs(noise(training) - noise(training)).min() > 0
    seeded = process(FACTORIES[name](noise_seed=5))
    np.testing.assert_array_equal(noise(seeded), noise(seeded))
    other = process(FACTORIES[name](noise_seed=6))
    assert np.abs(noise(seeded) - noise(other)).min() > 0


def test_noise_is_not_drawn_with_a_key_that_others_have():
    """Return the keys of clients, aggregation and training, each and split."""
    training = process(FACTORIES["fixed"]())
    found = noise(training) * 3
    keys = round_keys(jax.random.key(0), 0)
    for key in (*keys, jax.random.key(0), jax.random.fold_in(keys.aggregator, 0)):
        for used in (key, jax.random.fold_in(key, 0), *jax.random.split(jax.random.fold_in(key, 0), 1)):
            assert np.abs(found + np.asarray(jax.random.normal(used, (4, 3)))).max() > 1e-3


def test_a_resumed_training_draws_new_noise(tmp_path):
    def trained(rounds, folder):
        return fed.run_rounds(
            process(FACTORIES["fixed"]()),
            lambda number: ZEROS,
            rounds,
            checkpoint_dir=CheckpointFile(tmp_path / folder),
        )[0]

    trained(1, "a")
    for file in (tmp_path / "a").rglob("*"):
        if file.is_file():
            (tmp_path / "b").mkdir(exist_ok=True)
            (tmp_path / "b" / file.name).write_bytes(file.read_bytes())
    assert np.abs(trained(2, "a").params["w"] - trained(2, "b").params["w"]).min() > 0


def test_a_state_has_no_key_of_the_noise():
    training = process(FACTORIES["fixed"]())
    first = training.initialize()
    names = set(state_arrays(first))
    after = state_arrays(training.next(first, ZEROS).state)
    assert set(after) == names
    np.testing.assert_array_equal(after["key"], state_arrays(first)["key"])


@pytest.mark.parametrize("seed", [-1, 1.5, 2**32, True])
def test_a_noise_seed_is_an_integer(seed):
    with pytest.raises(InputError, match="noise_seed"):
        agg.DifferentiallyPrivateFactory(1.0, 3, 1.0, noise_seed=seed)
