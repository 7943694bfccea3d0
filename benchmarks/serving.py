"""Suite serving: requests a second and latencies of `serve`, beside TensorFlow.

Each backend answers the same requests, of one example each: our server; the same server with TensorFlow's function of
the SavedModel in place of ours; and, without HTTP, loops of single calls of both.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

import tf2jax_lite.demo
from tf2jax_lite.artifacts.convert import convert_model
from tf2jax_lite.artifacts.options import ConvertOptions, ServeOptions
from tf2jax_lite.serving.function import Checked, ServedFunction

from .records import ROOT, Result

CONNECTIONS = 16
MODEL = Path(tf2jax_lite.demo.__file__).parent / "digits_cnn"


class TensorFlowFunction(ServedFunction):
    """The same batches, run by TensorFlow."""

    signature: Any = None

    def run(self, requests: Sequence[Checked]) -> list[dict[str, np.ndarray]]:
        """Return the results of requests, as `ServedFunction` pads and splits them."""
        self._programs = {key: lambda params, arrays, rng: self.signature(**arrays) for key in self._programs}
        return super().run(requests)


def load(options: Any) -> Iterator[Result]:
    """Yield the rates and latencies of each backend, in turns."""
    import tensorflow as tf

    signature = tf.saved_model.load(str(MODEL)).signatures["serving_default"]
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "digits"
        convert_model(MODEL, artifact, ConvertOptions(platforms="cpu"))
        seconds = 1.0 if options.size == "small" else options.budget
        served = {"jax": ServedFunction, "tensorflow": TensorFlowFunction}
        functions = {}
        for name, kind in served.items():
            functions[name] = kind(artifact, None, batch_sizes=ServeOptions().padded_sizes, dimensions={})
            functions[name].signature = signature  # type: ignore[attr-defined]
            functions[name].compile()
        rounds = options.rounds or 1
        found: dict[str, list[float]] = {}
        rates: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, function in functions.items():
                for kind, measure in (("serve", _requests), ("loop", _loop)):
                    times, elapsed = measure(function, seconds)
                    found.setdefault(f"{kind} {name}", []).extend(times)
                    rates.setdefault(f"{kind} {name}", []).append(len(times) / elapsed)
    for name, times in found.items():
        case = {"model": "digits", "backend": name, "connections": CONNECTIONS if name.startswith("serve") else 1}
        values = {"p50": float(np.median(times)), "p99": float(np.percentile(times, 99))}
        yield case, {"rates": float(np.median(rates[name])), "seconds": {k: {"median": v} for k, v in values.items()}}


def _loop(function: ServedFunction, seconds: float) -> tuple[list[float], float]:
    """Return the times of single calls, one after another, and the time of all."""
    arrays = {t.name: np.ones((1, *t.shape[1:]), t.dtype) for t in function.inputs}
    times, begin = [], time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        function.run([function.check(arrays, str)])
        times.append(time.perf_counter() - now)
    return times, time.perf_counter() - begin


def _requests(function: ServedFunction, seconds: float) -> tuple[list[float], float]:
    """Return the times of requests of several clients at once, and the time of all."""
    with _server(function) as port:
        tensor = function.inputs[0]
        body = json.dumps({"instances": np.ones((1, *tensor.shape[1:])).tolist()})
        command = [sys.executable, "-m", "benchmarks.serving", str(port), str(seconds), str(CONNECTIONS)]
        done = subprocess.run(command, input=body, capture_output=True, text=True, check=True, cwd=ROOT)
    times = json.loads(done.stdout)
    return times, seconds


@contextlib.contextmanager
def _server(function: ServedFunction) -> Iterator[int]:
    import uvicorn

    from tf2jax_lite.serving.http import Server

    given, ready = ServeOptions(), threading.Event()
    server = Server(
        "model",
        {function.name: function},
        function.name,
        wait_seconds=given.batch_ms / 1000,
        max_waiting=given.max_waiting,
        max_bytes=given.max_request_bytes,
        max_examples=given.max_request_examples,
        read_seconds=given.read_seconds,
        on_ready=ready.set,
    )
    config = uvicorn.Config(server.app, host="127.0.0.1", port=0, log_level="warning", access_log=False)
    running, socket = uvicorn.Server(config), config.bind_socket()
    thread = threading.Thread(target=lambda: running.run(sockets=[socket]))
    thread.start()
    ready.wait()
    try:
        yield socket.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join()


def _client(port: int, seconds: float, connections: int, body: str) -> list[float]:
    """Return the times of requests that several threads send, each on its connection."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def ask() -> None:
        connection = HTTPConnection("127.0.0.1", port)
        while (begin := time.perf_counter()) < end:
            connection.request("POST", "/v1/models/model:predict", body)
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise RuntimeError(f"status {response.status}")
            times.append(time.perf_counter() - begin)

    threads: list[Any] = [threading.Thread(target=ask) for _ in range(connections)]
    each: Callable[[Any], None]
    for each in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            each(thread)
    return times


if __name__ == "__main__":
    print(json.dumps(_client(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.stdin.read())))
