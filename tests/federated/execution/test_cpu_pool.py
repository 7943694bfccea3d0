"""The pool of threads: parallel chunks, JAX's thread-local options, and errors."""

import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tf2jax_lite.federated.algorithms.fed_avg import build_weighted_fed_avg
from tf2jax_lite.federated.execution.cpu_pool import Arena, Programs, Workers
from tf2jax_lite.learning.data import ClientDataset, ShuffleRepeatBatchHParams
from tf2jax_lite.learning.sources import create_model_from_fn


def zero() -> Any:
    return Total(np.float32(0), np.int32(0))


def workers(count=2) -> Any:
    return Workers(zero, [ThreadPoolExecutor(1) for _ in range(count)], [Arena() for _ in range(count)])


def nothing():
    """Write no chunk."""


@jax.tree_util.register_pytree_node_class
class Total(SimpleNamespace):
    def __init__(self, value, participated):
        super().__init__(value=value, participated=participated)

    def tree_flatten(self):
        return (self.value, self.participated), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def adding(amount, seen=None):
    def run(total):
        if seen is not None:
            seen.append(threading.get_ident())
        return Total(total.value + amount, total.participated + 1), amount

    return run


def test_all_chunks_are_folded_in_turns():
    found = workers(3)
    outputs = [found.fold(nothing, adding(float(i))) for i in range(8)]
    total = found.merged(lambda a, b: Total(a.value + b.value, a.participated + b.participated))
    found.close()
    assert [get() for get in outputs] == [float(i) for i in range(8)]
    assert float(total.value) == sum(range(8)) and int(total.participated) == 8


def test_each_worker_has_a_thread():
    found, seen = workers(), []
    for _ in range(6):
        found.fold(nothing, adding(1.0, seen))
    found.wait()
    found.close()
    assert len(set(seen)) == 2 and threading.get_ident() not in seen


def test_memory_is_not_written_to_before_it_is_read():
    """Chunks read memory a while after it was written, without interference."""
    found, seen = workers(), []
    for i in range(12):
        memory = found.arena().empty("x", (1000,), np.float32)

        def run(total, memory=memory):
            time.sleep(0.001)
            seen.append(sorted(set(memory.tolist())))
            return Total(total.value, total.participated + 1), ()

        found.fold(functools.partial(memory.fill, i), run)
    found.wait()
    found.close()
    assert sorted(seen) == [[i] for i in range(12)]


def test_what_a_chunk_raises_is_raised_where_it_is_waited_for():
    found = workers()

    def run(total):
        raise ZeroDivisionError("of a chunk")

    get = found.fold(nothing, run)
    for _ in range(3):
        found.fold(nothing, adding(1.0))
    with pytest.raises(ZeroDivisionError, match="of a chunk"):
        found.fold(nothing, adding(1.0))  # the first worker's third turn: it has one in line
    with pytest.raises(ZeroDivisionError):
        get()
    found.close()


def test_closing_waits_for_running_work_and_starts_none():
    found, begun, held = workers(), [], threading.Event()

    def run(total):
        begun.append(held.wait(600))
        return total, ()

    for _ in range(4):
        found.fold(nothing, run)
    while not found._pending[0][0].running():  # the first chunk of each worker may have begun, none behind it
        time.sleep(0.001)
    threading.Timer(0.05, held.set).start()
    found.close()
    assert 1 <= len(begun) <= 2 and all(begun)


def test_programs_keep_the_options_of_where_they_were_made():
    """64-bit mode belongs to a thread; a worker's thread has the defaults."""
    programs = Programs(jax.jit(lambda x, static: x * jnp.pi + static, static_argnums=1))
    with jax.enable_x64(True):
        wide = programs.get(np.float64(1), 0)
    narrow = programs.get(np.float32(1), 0)
    found = []
    worker = threading.Thread(target=lambda: found.extend([wide(np.float64(1)), narrow(np.float32(1))]))
    worker.start()
    worker.join()
    assert [v.dtype.name for v in found] == ["float64", "float32"]
    assert float(found[0]) == np.pi


@pytest.mark.full
def test_programs_are_compiled_once_for_each_shape():
    traced = []

    def fn(x, static):
        traced.append(x.shape)
        return x + static

    programs = Programs(jax.jit(fn, static_argnums=1))
    for size in (2, 3, 2, 3):
        program = programs.get(np.zeros(size, np.float32), 1)
        np.testing.assert_array_equal(program(np.zeros(size, np.float32)), np.ones(size))
    assert traced == [(2,), (3,)]
    assert programs.get(np.zeros(2, np.float32), 1) is programs.get(jnp.ones(2), 1)
    assert programs.get(np.zeros(2, np.float32), 1) is not programs.get(np.zeros(2, np.float32), 2)
    assert programs.get(np.zeros(2, np.float32), 1) is not programs.get(np.zeros(2, np.float32), 1, one_core=True)


@pytest.mark.full
def test_a_round_in_64_bit_mode():
    """The caller's mode holds in the workers' threads, too."""
    rng = np.random.default_rng(0)
    clients = [{"x": rng.normal(size=(7, 3)), "y": rng.normal(size=7)} for _ in range(8)]

    def weights():
        model = create_model_from_fn(
            {"w": np.zeros(3)}, lambda params, batch: batch["x"] @ params["w"], "mean_squared_error"
        )
        batching = ShuffleRepeatBatchHParams(batch_size=2, num_epochs=1, fill_remainder=False)
        process = build_weighted_fed_avg(
            model, optax.sgd(0.1), client_batching=batching, clients_per_chunk=2, client_execution="cpu_pool"
        )
        state = process.initialize(jax.random.key(3))
        for _ in range(2):
            state, _ = process.next(state, [ClientDataset(c) for c in clients])
        return process.get_model_weights(state).trainable["w"]

    with jax.enable_x64(True):
        wide = weights()
    narrow = weights()
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(narrow, wide, rtol=1e-5)
    assert np.any(np.asarray(narrow, np.float64) != np.asarray(wide))
