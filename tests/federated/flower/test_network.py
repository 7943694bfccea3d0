"""A superlink and two supernodes on loopback have the simulation's weights.

Slow: Flower starts a process for each message, which imports JAX and compiles the training again.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from tf2jax_lite.federated import flower
from tf2jax_lite.federated.templates.blocks import build_add_finalizer
from tf2jax_lite.federated.templates.compose import compose_learning_process

from . import apps

ROOT = Path(__file__).parents[3]
ROUNDS = 2
BATCHING = apps.BATCHING.replace(skip_shuffle=True)  # which node gets which place is Flower's chance

PYPROJECT = f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "flapp"
version = "1.0.0"
description = "A test"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tests"

[tool.flwr.app.components]
serverapp = "flapp.app:server"
clientapp = "flapp.app:client"

[tool.flwr.app.config]
num-server-rounds = {ROUNDS}
"""

APP = """
import os
import numpy as np
from tests.federated.flower import apps, test_network
from tf2jax_lite.federated import flower

client = flower.client_app(
    apps.MODEL,
    lambda context: apps.clients(2)[context.node_config["partition-id"]],
    client_work=apps.WORK,
    client_batching=test_network.BATCHING,
)


def save(weights, result):
    arrays = {name: array.numpy() for name, array in flower.to_arrays(weights).items()}
    np.savez(os.environ["FLAPP_OUT"] + ".tmp.npz", **arrays)
    os.replace(os.environ["FLAPP_OUT"] + ".tmp.npz", os.environ["FLAPP_OUT"])


strategy = flower.BlocksStrategy(apps.MODEL, aggregator=apps.aggregator(), evaluate=False)
server = flower.server_app(strategy, apps.MODEL, on_result=save)
"""


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _wait_for(port, process):
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError("the superlink has ended")


@pytest.mark.full
def test_superlink_and_two_supernodes(tmp_path):
    (tmp_path / "app" / "flapp").mkdir(parents=True)
    (tmp_path / "app" / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "app" / "flapp" / "__init__.py").touch()
    (tmp_path / "app" / "flapp" / "app.py").write_text(APP)
    link, *nodes = _free_ports(3)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{link}"\ninsecure = true\n'
    )
    bin_folder = Path(sys.executable).parent
    if shutil.which("flower-superlink", path=bin_folder) is None:
        pytest.skip("Flower's commands are not beside Python")
    env = {
        **os.environ,
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLAPP_OUT": str(tmp_path / "weights.npz"),
        "JAX_PLATFORMS": "cpu",
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    processes = []

    def start(name, *command):
        with (tmp_path / f"{name}.log").open("w") as log:
            processes.append(subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT))
        return processes[-1]

    try:
        plain = ["--insecure"]
        superlink = start(
            "superlink", "flower-superlink", *plain, "--disable-runtime-dependency-installation", "--port", str(link)
        )
        _wait_for(link, superlink)
        for place, port in enumerate(nodes):
            config = ["--node-config", f"partition-id={place}", "--port", str(port)]
            start(f"node{place}", "flower-supernode", *plain, "--superlink", f"127.0.0.1:{link}", *config)
        run = start("run", "flwr", "run", "app", "test", "--stream")
        out = tmp_path / "weights.npz"
        while not out.exists():
            log = (tmp_path / "run.log").read_text()
            assert "Exit Code" not in log and superlink.poll() is None, log
            assert run.poll() in (None, 0), log
            time.sleep(0.5)
    finally:
        for process in processes[::-1]:
            process.terminate()
        for process in processes:
            process.wait()
    process = compose_learning_process(
        apps.MODEL,
        client_work=apps.WORK,
        aggregator=apps.aggregator(),
        finalizer=build_add_finalizer(),
        client_batching=BATCHING,
    )
    state = process.initialize()
    for _ in range(ROUNDS):
        state, _ = process.next(state, apps.clients(2))
    expected = {name: array.numpy() for name, array in flower.to_arrays(state.weights).items()}
    with np.load(out, allow_pickle=False) as found:
        assert set(found) == set(expected)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
