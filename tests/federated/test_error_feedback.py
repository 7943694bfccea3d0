"""Error feedback adds to an update the losses of earlier codes."""

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import aggregators as agg

MODEL = fed.create_model_from_fn({"w": np.zeros((8,), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
WORK = fed.build_model_delta_client_work(MODEL, optax.sgd(0.1))


def test_sent_updates_and_the_error_sum_to_all_updates():
    rng = np.random.default_rng(0)
    work, states = fed.with_error_feedback(MODEL, WORK, agg.TopK(0.25))
    message, own, sent, wanted = MODEL.init(jax.random.key(0)), states.of("new"), 0, 0
    for number in range(3):
        batch = {"x": rng.normal(size=(4, 8)).astype(np.float32), "y": np.ones(4, np.float32)}
        key = jax.random.key(number)
        found = work.next(work.initialize(), message, [batch], key, own).result
        wanted = wanted + np.asarray(WORK.next(WORK.initialize(), message, [batch], key).result.update["w"])
        assert np.count_nonzero(found.update["w"]) == 2
        sent, own = sent + np.asarray(found.update["w"]), found.output
        np.testing.assert_allclose(sent + own["w"], wanted, atol=1e-6)
    assert np.abs(own["w"]).max() > 0


@pytest.mark.full
def test_it_trains_where_compression_alone_is_far_off():
    """One client, one of eight numbers a round: all weights arrive."""
    x = np.eye(8, dtype=np.float32) * np.linspace(1, 2, 8, dtype=np.float32)
    batch = {"x": x, "y": x @ np.arange(1, 9, dtype=np.float32)}
    work, states = fed.with_error_feedback(MODEL, WORK, agg.TopK(1 / 8))
    process = fed.compose_learning_process(
        MODEL,
        client_work=work,
        client_states=states,
        aggregator=agg.MeanFactory(),
        finalizer=fed.build_add_finalizer(),
    )
    state = process.initialize()
    for _ in range(400):
        state, _ = process.next(state, [("a", [batch])])
    np.testing.assert_allclose(state.params["w"], np.arange(1, 9), atol=0.2)


def test_other_codes_raise():
    with pytest.raises(InputError, match="codec is a Codec"):
        fed.with_error_feedback(MODEL, WORK, 8)
