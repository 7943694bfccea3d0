"""Integers beyond 32 bits, which JAX wraps, at every entry of data."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.errors import DataError, InputError
from tf2jax_lite.finetuning import finetune

KEY = jax.random.key(3)
LARGE = {"x": np.array([[2**33 + 5]] * 2), "y": np.zeros(2, np.int32)}


def id_model():
    return fed.create_model_from_fn(
        {"w": jnp.zeros(())}, lambda p, batch: batch["x"][:, 0] * p["w"], lambda batch, out: out + batch["y"]
    )


def one_round(examples):
    process = fed.build_weighted_fed_avg(id_model(), optax.sgd(0.1), client_batching=fed.BatchHParams(2))
    process.next(process.initialize(), [fed.ClientDataset(examples)])


def ready_batches(examples):
    process = fed.build_weighted_fed_avg(id_model(), optax.sgd(0.1))
    process.next(process.initialize(), [[examples]])


def evaluated(examples):
    process = fed.build_fed_eval(id_model(), client_batching=fed.BatchHParams(2))
    process.next(process.initialize(), [fed.ClientDataset(examples)])


def central(examples):
    finetune(id_model(), examples, optimizer=optax.sgd(0.1), epochs=1, batch_size=2)


def central_evaluation(examples):
    fine = {"x": np.zeros((2, 1)), "y": np.zeros(2, np.int32)}
    finetune(id_model(), fine, optimizer=optax.sgd(0.1), epochs=1, batch_size=2, eval_examples=examples)


def rows(examples):
    central([{name: value[i] for name, value in examples.items()} for i in range(2)])


ENTRIES = {
    "a round": one_round,
    "ready batches": ready_batches,
    "evaluation": evaluated,
    "evaluate_model": lambda examples: fed.evaluate_model(id_model(), {"w": jnp.zeros(())}, [examples]),
    "model_grad": lambda examples: fed.model_grad(id_model())({"w": jnp.zeros(())}, examples, KEY),
    "each client": lambda examples: list(
        fed.for_each_client(lambda shared, own: shared, lambda state, batch: state)(0, [("a", [examples], 0)])
    ),
    "average loss": lambda examples: fed.evaluate_average_loss(
        {"w": jnp.zeros(())}, [examples], KEY, fed.model_per_example_loss(id_model())
    ),
    "central": central,
    "central evaluation": central_evaluation,
    "rows": rows,
}


@pytest.mark.default_cases("int64-a round", "label-central", "uint64-evaluate_model", "below-ready batches")
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", np.array([[1], [2**33 + 5]])),
        ("x", np.array([[1], [-(2**31) - 1]])),
        ("x", np.array([[1], [2**32]], np.uint64)),
        ("y", np.array([2**31, 0])),
        ("y", np.array([2**40, 0], ">i8")),
    ],
    ids=["int64", "below", "uint64", "label", "big-endian"],
)
def test_integers_beyond_32_bits_are_refused_by_name(entry, name, value):
    good = {"x": np.array([[1], [2]]), "y": np.array([2**31 - 1, -(2**31)])}
    if entry == "rows":
        pytest.importorskip("grain")
    with pytest.raises((InputError, DataError), match=f"'{name}' has integers from"):
        ENTRIES[entry](good | {name: value})
    if value.dtype.kind == "i" and name == "x" and value.min() < 0:
        ENTRIES[entry](good)


def test_with_64_bits_integers_are_taken_as_they_are():
    with jax.enable_x64(True):
        found = fed.evaluate_model(id_model(), {"w": jnp.ones(())}, [LARGE])
    assert float(found["loss"]) == 2**33 + 5
