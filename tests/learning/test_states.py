"""Training arrays are committed to their device: nothing compiles twice."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.finetuning.central_training import finetune
from tf2jax_lite.learning.data import BatchHParams, ClientDataset
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.states import commit_to_device

# The predictions are logits, which cannot be seen from a StableHLO module.
LOSS = named_loss("sparse_categorical_crossentropy", from_logits=True)


def exported_model():
    """Return a model that calls an export of jax.export, as artifacts do."""
    spec = jax.ShapeDtypeStruct((2, 3), jnp.float32), jax.ShapeDtypeStruct((4, 2), jnp.float32)
    exported = jax.export.export(jax.jit(lambda w, x: x @ w))(*spec)
    predict = jax.export.deserialize(exported.serialize(vjp_order=1)).call
    weights = {"w": np.zeros((2, 3), np.float32)}
    return fed.create_model_from_fn(weights, lambda p, b: predict(p["w"], b["x"]), LOSS)


DATA = {"x": np.arange(16, dtype=np.float32).reshape(8, 2) / 16, "y": np.arange(8) % 3}


def compiled(caplog):
    found = [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]
    caplog.clear()
    return found


@pytest.mark.full
def test_rounds_are_compiled_once(caplog):
    process = fed.build_weighted_fed_avg(exported_model(), optax.sgd(0.1), client_batching=BatchHParams(4))
    state = process.initialize()
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        state = process.next(state, [ClientDataset(DATA)] * 3).state
        assert compiled(caplog)
        state = process.next(state, [ClientDataset(DATA)] * 3).state
        assert not compiled(caplog)
        process.next(process.set_model_weights(state, {"w": np.ones((2, 3), np.float32)}), [ClientDataset(DATA)] * 3)
        assert not [text for text in compiled(caplog) if "jit(begin)" in text or "jit(run)" in text]


@pytest.mark.full
def test_finetuning_is_compiled_once(caplog):
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        finetune(exported_model(), DATA, optimizer=optax.sgd(0.1), epochs=2, batch_size=4)
        assert len([text for text in compiled(caplog) if "jit(step)" in text]) == 1


@pytest.mark.full
@pytest.mark.parametrize("fixed", [True, False])
def test_all_arrays_are_committed(fixed):
    first = jax.device_put(jnp.ones(2), jax.devices()[0]) if fixed else jnp.ones(2)
    host, name = np.ones(2), "name"
    found = commit_to_device([jnp.zeros(3), first, host, name])
    assert found[0].committed and found[1].committed
    assert found[2] is host and found[3] is name
    assert commit_to_device(found) is found
