"""Federated computations against numpy: every intrinsic, placement, type."""

import jax.numpy as jnp
import numpy as np
import pytest

fl = pytest.importorskip("federated_language")

from tf2jax_lite.errors import FederatedTypeError  # noqa: E402
from tf2jax_lite.federated import core  # noqa: E402
from tf2jax_lite.learning import data  # noqa: E402

F32 = np.float32
CLIENTS_F32 = fl.FederatedType(F32, fl.CLIENTS)
STRUCT = core.to_type({"a": (F32, [2]), "b": {"c": np.float64}})
CLIENTS_STRUCT = fl.FederatedType(STRUCT, fl.CLIENTS)
RNG = np.random.default_rng(0)
STRUCTS = [{"a": RNG.normal(size=2).astype(F32), "b": {"c": RNG.normal()}} for _ in range(5)]
WEIGHTS = [0.5, 3.0, 0.0, 1.25, 2.0]


@pytest.fixture(autouse=True)
def _context():
    with fl.framework.get_context_stack().install(core.ExecutionContext(default_num_clients=3)):
        yield


@core.jax_computation(F32, F32)
def add(x, y):
    return x + y


@core.jax_computation(F32)
def half(x):
    return x / 2


def _stacked(path):
    return np.array([s["a"] if path == "a" else s["b"]["c"] for s in STRUCTS], np.float64)


@pytest.mark.parametrize(
    ("intrinsic", "oracle"),
    [
        (fl.federated_sum, lambda x: x.sum(0)),
        (fl.federated_mean, lambda x: x.mean(0)),
        (fl.federated_min, lambda x: x.min(0)),
        (fl.federated_max, lambda x: x.max(0)),
    ],
)
def test_aggregations_of_structures(intrinsic, oracle):
    result = fl.federated_computation(lambda x: intrinsic(x), CLIENTS_STRUCT)(STRUCTS)
    assert result["a"].dtype == F32 and result["b"]["c"].dtype == np.float64
    np.testing.assert_allclose(result["a"], oracle(_stacked("a")), rtol=1e-7)
    np.testing.assert_allclose(result["b"]["c"], oracle(_stacked("b")), rtol=1e-14)


def test_weighted_mean():
    f = fl.federated_computation(lambda x, w: fl.federated_mean(x, w), CLIENTS_STRUCT, CLIENTS_F32)
    result = f(STRUCTS, WEIGHTS)
    np.testing.assert_allclose(result["a"], np.average(_stacked("a"), axis=0, weights=WEIGHTS), rtol=1e-7)
    np.testing.assert_allclose(result["b"]["c"], np.average(_stacked("b"), weights=WEIGHTS), rtol=1e-14)
    assert np.isnan(f(STRUCTS, [0.0] * 5)["b"]["c"])


def test_sums_of_many_small_numbers_keep_them():
    """A float32 accumulator would stop growing at 2**24."""
    f = fl.federated_computation(lambda x: fl.federated_sum(x), CLIENTS_F32)
    assert f([2.0**24, 1.0, 1.0, 1.0, 1.0]) == 2.0**24 + 4


def test_integers():
    kind = fl.FederatedType(np.int32, fl.CLIENTS)
    assert fl.federated_computation(lambda x: fl.federated_sum(x), kind)([3, -4, 2]) == 1
    wide = fl.federated_computation(lambda x: fl.federated_sum(x), fl.FederatedType(np.int64, fl.CLIENTS))
    assert wide([2**53, 1]) == 2**53 + 1


def test_no_clients():
    def run(intrinsic, dtype):
        return fl.federated_computation(lambda x: intrinsic(x), fl.FederatedType(dtype, fl.CLIENTS))([])

    assert run(fl.federated_sum, F32) == 0 and np.isnan(run(fl.federated_mean, F32))
    assert run(fl.federated_min, np.int32) == 2**31 - 1 and run(fl.federated_max, F32) == -np.inf


def test_map_broadcast_and_zip():
    @fl.federated_computation(fl.FederatedType(F32, fl.SERVER), CLIENTS_F32)
    def f(server, clients):
        pairs = fl.federated_zip((fl.federated_broadcast(server), clients))
        return fl.federated_map(add, pairs), fl.federated_map(half, server), fl.federated_broadcast(server)

    assert str(f.type_signature.result) == "<{float32}@CLIENTS,float32@SERVER,float32@CLIENTS>"
    assert f(10.0, [1.0, 2.0]) == ([11.0, 12.0], 5.0, 10.0)


def test_zip_of_nested_structures_and_of_equal_values():
    @fl.federated_computation(CLIENTS_F32, fl.FederatedType(np.int32, fl.SERVER))
    def f(x, n):
        n = fl.federated_broadcast(n)
        return fl.federated_zip({"x": x, "both": (x, n)}), fl.federated_zip((n, n))

    nested, equal = f([1.0, 2.0], 7)
    assert nested == [{"x": 1.0, "both": (1.0, 7)}, {"x": 2.0, "both": (2.0, 7)}]
    assert equal == (7, 7) or equal == [(7, 7), (7, 7)]  # as its type says: all equal, or one for each client


def test_values_and_evaluations():
    @fl.federated_computation()
    def f():
        draw = core.jax_computation(lambda: jnp.float32(2.5))
        return (
            fl.federated_value(4, fl.SERVER),
            fl.federated_sum(fl.federated_eval(draw, fl.CLIENTS)),
            fl.federated_eval(draw, fl.SERVER),
            fl.federated_sum(fl.federated_value(1, fl.CLIENTS)),
        )

    assert f() == (4, 7.5, 2.5, 3), "the context has three clients by default"


def test_aggregate_and_its_report():
    zero = core.jax_computation(lambda: {"sum": jnp.float32(0), "n": jnp.int32(0)})
    kind = zero.type_signature.result
    accumulate = core.jax_computation(kind, F32)(lambda acc, x: {"sum": acc["sum"] + x * x, "n": acc["n"] + 1})
    merge = core.jax_computation(kind, kind)(lambda x, y: {k: x[k] + y[k] for k in x})
    report = core.jax_computation(kind)(lambda acc: jnp.sqrt(acc["sum"] / acc["n"]))

    @fl.federated_computation(CLIENTS_F32)
    def rms(x):
        return fl.federated_aggregate(x, zero(), accumulate, merge, report)

    np.testing.assert_allclose(rms([3.0, 4.0, 12.0]), np.sqrt((9 + 16 + 144) / 3), rtol=1e-6)


def test_select():
    rows = core.to_type((F32, [4, 2]))
    pick = core.jax_computation(rows, np.int32)(lambda table, key: table[key])

    @fl.federated_computation(
        fl.FederatedType((np.int32, [2]), fl.CLIENTS),
        fl.FederatedType(np.int32, fl.SERVER),
        fl.FederatedType(rows, fl.SERVER),
    )
    def f(keys, max_key, table):
        return fl.federated_select(keys, max_key, table, pick)

    table = np.arange(8, dtype=F32).reshape(4, 2)
    result = f([np.array([0, 3], np.int32), np.array([1, 0], np.int32)], 4, table)
    np.testing.assert_array_equal(result, [table[[0, 3]], table[[1, 0]]])
    with pytest.raises(FederatedTypeError, match="key 3 is not from 0 to max_key 2"):
        f([np.array([0, 3], np.int32)], 2, table)


@pytest.mark.parametrize(
    ("call", "limit"),
    [(lambda x: fl.federated_secure_sum(x, 7), 7), (lambda x: fl.federated_secure_sum_bitwidth(x, 3), 7)],
)
def test_secure_sums(call, limit):
    f = fl.federated_computation(call, fl.FederatedType(np.int32, fl.CLIENTS))
    assert f([limit, 0, 3]) == limit + 3
    for wrong in (limit + 1, -1):
        with pytest.raises(FederatedTypeError, match=f"not from 0 to {limit}"):
            f([0, wrong])


def test_sequences():
    sequence = fl.SequenceType(F32)
    reduce = fl.federated_computation(lambda s, z: fl.sequence_reduce(s, z, add), sequence, F32)
    assert reduce([1.0, 2.0, 3.5], 10.0) == 16.5 and reduce([], 10.0) == 10.0
    mapped = fl.federated_computation(lambda s: fl.sequence_map(half, s), sequence)
    assert mapped(x for x in (2.0, 4.0)) == [1.0, 2.0]
    total = fl.federated_computation(lambda s: fl.sequence_sum(s), fl.SequenceType(STRUCT))
    np.testing.assert_allclose(total(STRUCTS)["a"], _stacked("a").sum(0), rtol=1e-7)


@pytest.mark.full
def test_client_datasets_are_sequences():
    clients = data.InMemoryFederatedData({"a": {"x": np.arange(5, dtype=F32)}, "b": {"x": np.ones(2, F32)}})
    batch = core.to_type({"x": (F32, [None])})
    total = core.jax_computation(F32, batch)(lambda acc, b: acc + b["x"].sum())
    local = fl.federated_computation(lambda s: fl.sequence_reduce(s, 0.0, total), fl.SequenceType(batch))
    f = fl.federated_computation(
        lambda d: fl.federated_map(local, d), fl.FederatedType(fl.SequenceType(batch), fl.CLIENTS)
    )
    assert f([dataset.batch(batch_size=2) for _, dataset in clients.clients()]) == [10.0, 2.0]


def test_functions_as_arguments_and_nested_scopes():
    @fl.federated_computation(fl.FunctionType(F32, F32), F32)
    def twice(f, x):
        return f(f(x))

    assert twice(half, 8.0) == 2.0

    @fl.federated_computation(F32)
    def outer(x):
        @fl.federated_computation(F32)
        def inner(y):  # the inner x is another one
            return twice(fl.federated_computation(lambda x: add(x, y), F32), x)

        return inner(add(x, 1.0))

    assert outer(3.0) == 3 + 4 + 4


def test_generic_arithmetic():
    """These have no Python operators; compilers of the language make them."""
    blocks = fl.framework
    pair = fl.StructType([STRUCT, STRUCT])
    oracles = {"generic_plus": np.add, "generic_multiply": np.multiply, "generic_divide": np.divide}
    for uri, oracle in oracles.items():
        call = blocks.Call(blocks.Intrinsic(uri, fl.FunctionType(pair, STRUCT)), blocks.Reference("x", pair))
        f = blocks.ConcreteComputation.from_building_block(blocks.Lambda("x", pair, call))
        result = f([STRUCTS[0], STRUCTS[1]])
        np.testing.assert_allclose(result["a"], oracle(STRUCTS[0]["a"], STRUCTS[1]["a"]))
        np.testing.assert_allclose(result["b"]["c"], oracle(STRUCTS[0]["b"]["c"], STRUCTS[1]["b"]["c"]))
    zero = blocks.Lambda(None, None, blocks.Intrinsic("generic_zero", STRUCT))
    assert not blocks.ConcreteComputation.from_building_block(zero)()["a"].any()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f: f([1.0], [1.0, 2.0]), "values for 2 clients, others are for 1"),
        (lambda f: f(1.0, [1.0]), "list with one value for each client"),
        (lambda f: f([1.0, "a"], [1.0, 2.0]), r"argument.x, client 1: float32 is needed"),
    ],
)
def test_arguments_that_do_not_fit(call, match):
    f = fl.federated_computation(lambda x, y: (fl.federated_sum(x), fl.federated_sum(y)), CLIENTS_F32, CLIENTS_F32)
    with pytest.raises(FederatedTypeError, match=match):
        call(f)


def test_what_cannot_run_here():
    other = half.to_proto().__class__()
    other.CopyFrom(half.to_proto())
    other.xla.hlo_module.type_url = "type.googleapis.com/another"
    with pytest.raises(FederatedTypeError, match="not made by jax_computation"):
        fl.framework.ConcreteComputation.from_proto(other)(1.0)
    with pytest.raises(FederatedTypeError, match="default_num_clients"):
        core.ExecutionContext(-1)


def test_default_context():
    stack = fl.framework.get_context_stack()
    before = stack._stack[0]
    try:
        core.set_default_context(default_num_clients=2)
        assert isinstance(stack._stack[0], core.ExecutionContext)
    finally:
        stack.set_default_context(before)


def test_without_the_library(monkeypatch):
    import importlib
    import sys

    from tf2jax_lite.errors import MissingLibraryError

    for name in [n for n in sys.modules if n.startswith("tf2jax_lite.federated.core")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "federated_language", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'tf2jax-lite\[core\]'"):
        importlib.import_module("tf2jax_lite.federated.core")
