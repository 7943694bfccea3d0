"""Interleaved timing, the cost of compilation, and memory.

Machines are shared, so each contestant runs once per round: other load affects all of them equally.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import multiprocessing
import os
import re
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import jax
import jax.extend.core as jex
import jax.numpy as jnp

T = TypeVar("T")

AROUND = "TF2JAX_LITE_BENCH_AROUND"
"""Names the environment variable with the command that `quiet` runs; ``--around`` sets it."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run the user's command around the timed part, to hold other work off.

    The command is called as ``CMD begin PID`` and ``CMD end PID``, PID being this process: a command that stops other
    processes must spare it and its children. Without a command nothing happens.

    Raises:
      subprocess.CalledProcessError: the command failed.
    """
    command = shlex.split(os.environ.get(AROUND, ""))
    if not command:
        yield
        return
    subprocess.run([*command, "begin", str(os.getpid())], check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "end", str(os.getpid())], check=True)


def seconds(fn: Callable[[], Any]) -> float:
    """Return the seconds that one call takes; ``fn`` must wait for its results."""
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def waited(compiled: Callable[..., Any], *args: Any) -> Callable[[], float]:
    """Return a function that calls a JAX function once and returns the seconds."""
    return lambda: seconds(lambda: jax.block_until_ready(compiled(*args)))


def waited_tf(fn: Callable[..., Any], *args: Any) -> Callable[[], float]:
    """Return a function that calls a TensorFlow function once and returns the seconds."""
    import tensorflow as tf

    return lambda: seconds(lambda: [t.numpy() for t in tf.nest.flatten(fn(*args))])


def in_turns(
    contestants: Mapping[str, Callable[[], float]], *, rounds: int = 15, budget: float = 20.0
) -> dict[str, dict[str, float]]:
    """Run contestants in turns.

    Args:
      contestants: name to a function that runs once and returns the seconds it took. Each is run once before
        anything counts.
      budget: seconds, the uncounted round included, after which no further round starts; three are always run.

    Returns:
      For each name ``median`` and ``best`` in seconds, ``rounds``, and ``cpu``: the median processor time in seconds of
      this process.
    """
    with quiet():
        start = time.perf_counter()
        for run in contestants.values():
            run()
        wall: dict[str, list[float]] = {name: [] for name in contestants}
        cpu: dict[str, list[float]] = {name: [] for name in contestants}
        for count in range(rounds):
            if count >= 3 and time.perf_counter() - start > budget:
                break
            for name in list(contestants)[:: -1 if count % 2 else 1]:
                begin = time.process_time()
                wall[name].append(contestants[name]())
                cpu[name].append(time.process_time() - begin)
    return {
        name: {
            "median": statistics.median(times),
            "best": min(times),
            "rounds": len(times),
            "cpu": statistics.median(cpu[name]),
        }
        for name, times in wall.items()
    }


def ratios(times: Mapping[str, Mapping[str, float]], key: str = "median") -> dict[str, float]:
    """Return the time of tf2jax_lite divided by each other's: below 1 it is faster.

    Args:
      times: as `in_turns` returns them; without tf2jax_lite, the first takes its part.
    """
    ours = "tf2jax_lite" if "tf2jax_lite" in times else next(iter(times))
    return {name: times[ours][key] / found[key] for name, found in times.items() if name != ours and found.get(key)}


# --- Processes and memory


def in_process(function: Callable[..., T], *args: Any, **environment: str) -> T:
    """Call a function in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with (
        mock.patch.dict(os.environ, environment),
        concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool,
    ):
        return pool.submit(function, *args).result()


def resident(what: str = "VmHWM") -> int:
    """Return the peak (``VmHWM``) or present (``VmRSS``) memory, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def reset_peak() -> None:
    """Reset the peak of `resident`, where the system permits it."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


# --- Compilation


@functools.cache
def warm() -> None:
    """Warm up XLA's process-wide initialization; Keras does so in the native process."""
    jax.jit(lambda x: jnp.tanh(x @ x)).lower(jnp.ones((8, 8))).compile()


def optimizer_step(forward: Callable[[Any, Any], Any], trainable: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step of SGD with momentum on a smooth loss, and its state."""
    import optax

    optimizer = optax.sgd(1e-3, momentum=0.9)

    def step(trainable: Any, state: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            return sum(jnp.mean(jnp.square(r)) for r in jax.tree.leaves(forward(weights, x)))

        value, grads = jax.value_and_grad(loss)(trainable)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(trainable, updates), state, value

    return step, optimizer.init(trainable)


def compile_once(fn: Any, args: Any) -> tuple[Any, dict[str, Any]]:
    """Trace and compile.

    Returns:
      The compiled function; and seconds of ``trace``, ``compile`` and ``cpu`` (processor time of both together), how
      many ``equations`` there are, how many ``kernels``, and how many ``different`` ones.
    """
    start, begun = time.perf_counter(), time.process_time()
    traced = fn.trace(*args)
    middle = time.perf_counter()
    compiled = traced.lower().compile()
    end, cpu = time.perf_counter(), time.process_time() - begun
    sizes = {
        "equations": equations(traced.jaxpr),
        "kernels": kernels(compiled),
        "different": different_kernels(compiled.as_text()),
    }
    return compiled, {"trace": middle - start, "compile": end - middle, "cpu": cpu, **sizes}


def equations(closed: Any) -> int:
    """Return the number of a jaxpr's equations, with those of called jaxprs."""
    count = 0
    for eqn in closed.jaxpr.eqns:
        inner = [j for v in eqn.params.values() for j in (v if isinstance(v, (tuple, list)) else [v])]
        closed_inner = [
            j if isinstance(j, jex.ClosedJaxpr) else jex.ClosedJaxpr(j, ())
            for j in inner
            if isinstance(j, (jex.ClosedJaxpr, jex.Jaxpr))
        ]
        count += sum(map(equations, closed_inner)) if closed_inner else 1
    return count


def kernels(compiled: Any) -> int:
    """Return the number of fusions, which XLA compiles separately."""
    return sum(" fusion(" in line for line in compiled.as_text().splitlines())


def different_kernels(text: str) -> int:
    """Return the number of different fusions, without library calls."""
    bodies: dict[str, list[str]] = {}
    body: list[str] = []
    for line in text.splitlines():
        if line.endswith("{") and " -> " in line:
            body = bodies[line.split(" ", 1)[0]] = []
        else:
            body.append(re.sub(r", (metadata|backend_config)=.*", "", line))
    return len(
        {
            (form, _renamed("\n".join(bodies[called])))
            for form, kind, called in re.findall(r"= (\S+) fusion\(.*kind=(\w+), calls=([^\s,]+)", text)
            if kind != "kCustom"
        }
    )


def _renamed(body: str) -> str:
    """Return a computation with its values called by numbers."""
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda found: names.setdefault(found[0], f"%{len(names)}"), body)
