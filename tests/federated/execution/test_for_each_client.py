"""``for_each_client``: all backends agree with a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tf2jax_lite.federated as fed
from tf2jax_lite.errors import ForEachClientError, InputError

CLIENTS = [
    ("a", [{"x": np.arange(4.0)}, {"x": np.arange(4.0) + 2}, {"x": np.arange(2.0)}], {"start": jnp.float32(1)}),
    ("b", [], {"start": jnp.float32(5)}),
    ("c", [{"x": np.arange(4.0) - 1}], {"start": jnp.float32(0)}),
    ("d", [{"x": np.arange(4.0) + 1}, {"x": np.arange(4.0)}], {"start": jnp.float32(2)}),
]


def client_init(shared_input, client_input):
    return {"limit": shared_input["limit"], "count": client_input["start"]}


def client_step(state, batch):
    above = jnp.sum(batch["x"] > state["limit"])
    return {**state, "count": state["count"] + above}, {"above": above}


def client_final(shared_input, state):
    return {"count": state["count"] * shared_input["factor"]}


def expected():
    above = {name: [int((b["x"] > 1).sum()) for b in batches] for name, batches, _ in CLIENTS}
    return {name: (10 * (float(own["start"]) + sum(above[name])), above[name]) for name, _, own in CLIENTS}


@pytest.mark.default_cases("debug", "vmap")
@pytest.mark.parametrize("backend", ["debug", "jit", "pmap", "scan", "sharded", "vmap"])
def test_for_each_client_agrees_with_a_loop(backend):
    run = fed.for_each_client(client_init, client_step, client_final, with_step_result=True)
    with fed.for_each_client_backend(backend):
        found = list(run({"limit": 1.0, "factor": 10.0}, CLIENTS))
    assert fed.get_for_each_client_backend() == "jit"
    assert {
        name: (float(out["count"]), [int(r["above"]) for r in results]) for name, out, results in found
    } == expected()


@pytest.mark.full
def test_a_mesh_has_the_devices_of_the_sharded_backend():
    mesh = jax.make_mesh((1,), ("clients",), devices=jax.local_devices()[:1])
    run = fed.for_each_client(client_init, client_step, client_final, True, backend="sharded", mesh=mesh)
    found = {name: float(out["count"]) for name, out, _ in run({"limit": 1.0, "factor": 10.0}, CLIENTS)}
    assert found == {name: value for name, (value, _) in expected().items()}


@pytest.mark.full
def test_for_each_client_without_results():
    def step(state, batch):
        return client_step(state, batch)[0]

    run = fed.for_each_client(client_init, step, backend="scan")
    found = {name: float(state["count"]) for name, state in run({"limit": 1.0, "factor": 10.0}, CLIENTS)}
    assert found == {name: value / 10 for name, (value, _) in expected().items()}


def test_debug_backend_names_client_and_stage():
    def step(state, batch):
        if batch["x"].shape == (2,):
            raise ValueError("two")
        return client_step(state, batch)

    run = fed.for_each_client(client_init, step, client_final, with_step_result=True, backend="debug")
    with pytest.raises(ForEachClientError, match="client 'a', client_step 2: ValueError: two") as found:
        list(run({"limit": 1.0, "factor": 10.0}, CLIENTS))
    assert found.value.context["batch"]["x"].shape == (2,) and isinstance(found.value.base, ValueError)
    with pytest.raises(ForEachClientError, match="client 'a', client_init"):
        list(run({}, CLIENTS))
    assert not jax.config.jax_disable_jit


def test_unknown_backend():
    with pytest.raises(InputError, match="one of debug, jit, scan, sharded, vmap, not 'tpu'"):
        fed.set_for_each_client_backend("tpu")
