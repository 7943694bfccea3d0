"""Several devices and processes give one's result, in fresh processes."""

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.federated import workload

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
sys.path.insert(0, {root!r})
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count={devices}"
import jax
if {processes} > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize("127.0.0.1:{port}", {processes}, int(sys.argv[1]))
import numpy as np, optax
from tests.federated import workload
from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.execution import for_each_client
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
assert len(jax.devices()) == {devices} * {processes}
process = build_weighted_fed_avg(
    workload.jax_logistic(6, 4),
    optax.sgd(0.5),
    client_batching=ShuffleRepeatBatchHParams(batch_size=10, skip_shuffle=True, fill_remainder=False),
    mesh=jax.make_mesh((len(jax.devices()),), ("clients",)),
)
clients = [ClientDataset(c) for c in workload.make_clients(7, seed=1, low=3, high=30, shape=(6,), classes=4)]
state = process.initialize()
for _ in range(2):
    state, metrics = process.next(state, [*clients, None])
assert int(metrics["clients"]["participated"]) == 7 and int(metrics["clients"]["dropped"]) == 1
if {processes} == 1:
    each = for_each_client(lambda shared, own: own, lambda state, batch: state + batch["x"].sum(), backend="sharded")
    found = each(None, [(i, [{{"x": np.full(2, i)}}], np.int32(1)) for i in range(5)])
    assert {{i: int(total) for i, total in found}} == {{i: 1 + 2 * i for i in range(5)}}
np.savez(sys.argv[2], **process.get_model_weights(state).trainable)
"""


def run(tmp_path, devices, processes):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = PROGRAM.format(root=str(ROOT), devices=devices, processes=processes, port=port)
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(i), str(tmp_path / f"{i}.npz")], cwd=ROOT)
        for i in range(processes)
    ]
    assert [p.wait(timeout=300) for p in started] == [0] * processes
    clients = workload.make_clients(7, seed=1, low=3, high=30, shape=(6,), classes=4)
    expected = workload.fed_avg(workload.Logistic.zeros(6, 4), [clients] * 2, lr=0.5, size=10)
    for i in range(processes):
        with np.load(tmp_path / f"{i}.npz") as found:
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5)


@pytest.mark.full
def test_four_devices(tmp_path):
    run(tmp_path, 4, 1)


@pytest.mark.full
def test_two_processes(tmp_path):
    """jax.distributed over loopback, with gloo's collectives."""
    run(tmp_path, 1, 2)
