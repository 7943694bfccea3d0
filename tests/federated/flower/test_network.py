"""Flower's processes on loopback have the simulation's weights.

Slow: Flower starts a process for each message, which imports JAX and compiles the training again.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from tf2jax_lite.federated import flower
from tf2jax_lite.federated.compose import build_add_finalizer, compose_learning_process

from . import apps

ROOT = Path(__file__).parents[3]
ROUNDS = 2
SECONDS = 900  # that a run takes at most; about 60 on an idle machine
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
import time
from pathlib import Path

import numpy as np

from tests.federated.flower import apps, test_network
from tf2jax_lite.federated import flower
from tf2jax_lite.learning.checkpoints import CheckpointFile

NODES = int(os.environ["FLAPP_NODES"])


def my_data(context):
    place = context.node_config["partition-id"]
    if place == 1 and "FLAPP_HANG" in os.environ:  # once, in the second round
        hangs = Path(os.environ["FLAPP_HANG"])
        first = hangs.with_suffix(".first")
        if first.exists() and not hangs.exists():
            hangs.touch()
            time.sleep(3600)
        first.touch()
    return test_network.data_of(place)


client = flower.client_app(
    apps.MODEL, my_data, client_work=apps.WORK, client_batching=test_network.BATCHING
)


def save(weights, result):
    arrays = {name: array.numpy() for name, array in flower.to_arrays(weights).items()}
    np.savez(os.environ["FLAPP_OUT"] + ".tmp.npz", **arrays)
    os.replace(os.environ["FLAPP_OUT"] + ".tmp.npz", os.environ["FLAPP_OUT"])


strategy = flower.BlocksStrategy(
    apps.MODEL, aggregator=apps.aggregator(), evaluate=False, min_available_nodes=NODES
)
state = os.environ.get("FLAPP_STATE")
server = flower.server_app(
    strategy,
    apps.MODEL,
    on_result=save,
    timeout=float(os.environ.get("FLAPP_TIMEOUT", "3600")),
    checkpoint_dir=None if state is None else CheckpointFile(state),
)
"""


def data_of(place):
    """Return the data of a node of many; they repeat, so their features stay small."""
    return apps.clients(4)[place % 4]


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Network:
    """Flower's processes in one folder, and the app that they run."""

    def __init__(self, folder, nodes, connection="insecure = true", **env):
        self.folder, self.processes = folder, {}
        (self.port,) = _free_ports(1)
        package = folder / "app" / "flapp"
        package.mkdir(parents=True)
        (folder / "app" / "pyproject.toml").write_text(PYPROJECT)
        (package / "__init__.py").touch()
        (package / "app.py").write_text(APP)
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\n{connection}\n'
        )
        self.bin = Path(sys.executable).parent
        if shutil.which("flower-superlink", path=self.bin) is None:
            pytest.skip("Flower's commands are not beside Python")
        self.env = {
            **os.environ,
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLAPP_OUT": str(folder / "weights.npz"),
            "FLAPP_NODES": str(nodes),
            "JAX_PLATFORMS": "cpu",
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **env,
        }

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for name in list(self.processes)[::-1]:
            self.kill(name)

    def start(self, name, *command, cwd=None):
        with (self.folder / f"{name}.log").open("w") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.env,
                cwd=cwd or self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name):
        """End a process with those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].wait()

    def superlink(self, *options):
        """Start the link, and wait until it listens."""
        plain = ("--disable-runtime-dependency-installation", "--port", str(self.port))
        self.start("superlink", "flower-superlink", *options, *plain)
        while self.processes["superlink"].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.2)
        raise AssertionError((self.folder / "superlink.log").read_text())

    def supernode(self, place, *options):
        """Start a client's node; without options one without TLS."""
        link = ("--insecure", "--superlink", f"127.0.0.1:{self.port}", "--node-config", f"partition-id={place}")
        self.start(f"node{place}", "flower-supernode", *(options or link), "--port", str(_free_ports(1)[0]))

    def run(self):
        self.start("run", "flwr", "run", "app", "test", "--stream")

    def wait_for(self, path):
        """Wait for a file that the run writes."""
        deadline = time.monotonic() + SECONDS
        while not path.exists():
            text = "\n".join((self.folder / f"{name}.log").read_text() for name in ("run", "superlink"))
            assert "Exit Code" not in text and self.processes["superlink"].poll() is None, text
            assert self.processes["run"].poll() in (None, 0) and time.monotonic() < deadline, text
            time.sleep(0.5)

    def weights(self):
        """Return the trained weights, when there are any."""
        out = self.folder / "weights.npz"
        self.wait_for(out)
        with np.load(out, allow_pickle=False) as found:
            return dict(found)


def _simulated(*cohorts):
    """Return the weights after a round of each cohort."""
    process = compose_learning_process(
        apps.MODEL,
        client_work=apps.WORK,
        aggregator=apps.aggregator(),
        finalizer=build_add_finalizer(),
        client_batching=BATCHING,
    )
    state = process.initialize()
    for cohort in cohorts:
        state, _ = process.next(state, cohort)
    return {name: array.numpy() for name, array in flower.to_arrays(state.weights).items()}


def _assert_same(found, expected, rtol=1e-5, atol=1e-6):
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=rtol, atol=atol)


@pytest.mark.full
def test_superlink_and_two_supernodes(tmp_path):
    with Network(tmp_path, 2) as network:
        network.superlink("--insecure")
        for place in range(2):
            network.supernode(place)
        network.run()
        found = network.weights()
    _assert_same(found, _simulated(*[apps.clients(2)] * ROUNDS))


def _deployment(port, folder):
    """Return the blocks of the page on deployment, for a link on this machine."""
    page = (ROOT / "docs" / "flower.md").read_text().partition("\n## Deployment\n")[2]
    for remote, local in (
        ("fed.example.org:8000", f"localhost:{port}"),
        ("fed.example.org", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("/home/operator", str(folder)),
    ):
        assert remote in page
        page = page.replace(remote, local)
    return re.findall(r"^```\n(.*?)^```", page, re.M | re.S)


def _commands(block):
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


@pytest.mark.nightly
def test_simulation_engine_with_a_hundred_clients(tmp_path):
    """Flower's actors, one for two cores, train all clients in both rounds."""
    pytest.importorskip("ray")
    with Network(tmp_path, 100, "insecure = true\noptions.num-supernodes = 100") as network:
        network.superlink("--insecure", "--simulation")
        network.run()
        found = network.weights()
    # Updates are added up in the order of arrival.
    _assert_same(found, _simulated(*[[data_of(place) for place in range(100)]] * ROUNDS), rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
def test_deployment_of_the_page(tmp_path):
    """TLS, and nodes with keys; one without a registered key does not train."""
    with Network(tmp_path, 2) as network:
        server, client, connection, operator = _deployment(network.port, tmp_path)
        (tmp_path / "home" / "config.toml").write_text(connection)
        *keys, (_, *options) = _commands(server)
        for command in keys:
            subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        network.superlink(*options)
        for place in range(3):
            own = [_commands(b.replace("-3", f"-{place}").replace("=3", f"={place}")) for b in (client, operator)]
            (key, (_, *options)), (register, run) = own
            subprocess.run(key, cwd=tmp_path, check=True, capture_output=True)
            if place < 2:
                network.start("register", *register)
                assert network.processes["register"].wait() == 0, (tmp_path / "register.log").read_text()
            network.supernode(place, *options)
        network.start("run", *run, cwd=tmp_path / "app")
        found = network.weights()
        logs = [(tmp_path / f"node{place}.log").read_text() for place in range(3)]
    assert ["train message" in log for log in logs] == [True, True, False]
    _assert_same(found, _simulated(*[apps.clients(2)] * ROUNDS))


@pytest.mark.nightly
def test_a_supernode_that_is_killed_in_a_round(tmp_path):
    hangs = tmp_path / "hangs"
    with Network(tmp_path, 2, FLAPP_HANG=str(hangs), FLAPP_TIMEOUT="90") as network:
        network.superlink("--insecure")
        for place in range(2):
            network.supernode(place)
        network.run()
        network.wait_for(hangs)
        network.kill("node1")
        found = network.weights()
    first, second = apps.clients(2)
    _assert_same(found, _simulated([first, second], [first, None]))


@pytest.mark.nightly
def test_a_server_that_is_killed_in_a_round_resumes(tmp_path):
    """The link's database keeps the nodes; the run is started again."""
    hangs = tmp_path / "hangs"
    env = {"FLAPP_HANG": str(hangs), "FLAPP_STATE": str(tmp_path / "state")}
    with Network(tmp_path, 2, **env) as network:
        network.superlink("--insecure", "--database", "superlink.db")
        for place in range(2):
            network.supernode(place)
        network.run()
        network.wait_for(hangs)
        for name in ("superlink", "run", "node1"):
            network.kill(name)
        assert not (tmp_path / "weights.npz").exists()
        network.superlink("--insecure", "--database", "superlink.db")
        network.supernode(1)
        network.run()
        found = network.weights()
    _assert_same(found, _simulated(*[apps.clients(2)] * ROUNDS))
