"""JAX functions as computations: types, StableHLO, dimensions, nesting."""

import collections

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

fl = pytest.importorskip("federated_language")

from tf2jax_lite.errors import FederatedTypeError, InputError  # noqa: E402
from tf2jax_lite.federated import core  # noqa: E402

Point = collections.namedtuple("Point", "a b")


@pytest.fixture(autouse=True)
def _context():
    with fl.framework.get_context_stack().install(core.ExecutionContext()):
        yield


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (np.int32, "int32"),
        (np.dtype("float32"), "float32"),
        ((np.float32, [2, None]), "float32[2,?]"),
        (jnp.float32, "float32"),
        ((jnp.bfloat16, [2]), "bfloat16[2]"),
        ({"n": jnp.int32, "x": (bool, ())}, "<n=int32,x=bool>"),
        (jax.ShapeDtypeStruct((3,), jnp.bfloat16), "bfloat16[3]"),
        (np.zeros((2, 1), bool), "bool[2,1]"),
        (jnp.zeros(4), "float32[4]"),
        ({"b": np.int32, "a": (np.float32, [1])}, "<b=int32,a=float32[1]>"),
        ([np.int32, np.int32], "<int32,int32>"),
        ((np.int32, np.float32), "<int32,float32>"),
        (Point(np.int32, {"c": np.float32}), "<a=int32,b=<c=float32>>"),
        ([("x", np.int32), ("y", [np.int8])], "<x=int32,y=<int8>>"),
        (fl.FederatedType(np.int32, fl.CLIENTS), "{int32}@CLIENTS"),
        (optax.adam(0.1).init({"w": jnp.zeros(2)}), "<<count=int32,mu=<w=float32[2]>,nu=<w=float32[2]>>,<>>"),
    ],
)
def test_types_from_many_things(spec, text):
    assert str(core.to_type(spec)) == text


@pytest.mark.parametrize("spec", ["words", 3, None, {1: np.int32}, jax.random.key(0)])
def test_what_is_no_type(spec):
    with pytest.raises(FederatedTypeError):
        core.to_type(spec)


def test_signature_value_and_stablehlo():
    @core.jax_computation(np.int32, np.int32)
    def add(x, y):
        return x + y

    assert str(add.type_signature) == "(<x=int32,y=int32> -> int32)"
    assert add(2, 3) == 5 and add(y=2, x=3) == 5 and isinstance(add(2, 3), np.int32)
    text = core.stablehlo(add)
    assert "stablehlo.add" in text and "tensor<i32>" in text


def test_all_forms_of_declaration():
    forms = {
        "(<x=int32,y=int32> -> int32)": core.jax_computation(lambda x, y: x * y, np.int32, np.int32),
        "(<x=float32,y=float32> -> float32)": core.jax_computation([("x", np.float32), ("y", np.float32)])(
            lambda x, y: x * y
        ),
        "( -> int32)": core.jax_computation(lambda: jnp.int32(7)),
        "(<a=int32,b=int32> -> int32)": core.jax_computation(Point(np.int32, np.int32))(lambda p: p.a * p.b),
    }
    for text, computation in forms.items():
        assert str(computation.type_signature) == text
    whole = core.jax_computation(np.int32, [("a", np.int32)])(lambda both: both)
    assert str(whole.type_signature) == "(<int32,<a=int32>> -> <int32,<a=int32>>)"
    assert [f(2, 3) if "<x" in t else None for t, f in forms.items()][:2] == [6, 6.0]
    assert list(forms.values())[2]() == 7
    assert list(forms.values())[3](Point(2, 5)) == 10


def test_polymorphic():
    traced = []

    @core.jax_computation
    def double(x):
        traced.append(jax.tree.map(lambda a: a.dtype, x))
        return jax.tree.map(lambda a: a * 2, x)

    assert double(4) == 8
    np.testing.assert_array_equal(double({"a": np.ones(3, np.float32)})["a"], [2, 2, 2])
    np.testing.assert_array_equal(double(jnp.arange(3)), [0, 2, 4])
    double(5)
    assert len(traced) == 3, "once for each type"
    with pytest.raises(FederatedTypeError, match="has no StableHLO"):
        core.stablehlo(double)


def test_serialized_and_read_back():
    """The proto alone is enough: another process can run it."""

    @core.jax_computation({"w": (np.float32, [2]), "k": np.int32})
    def f(p):
        return {"z": p["w"] * p["k"], "a": p["k"]}

    content = f.to_proto().SerializeToString()
    proto = type(f.to_proto()).FromString(content)
    again = fl.framework.ConcreteComputation.from_proto(proto)
    assert str(again.type_signature) == "(<w=float32[2],k=int32> -> <z=float32[2],a=int32>)"
    result = again({"w": np.array([1, 2], np.float32), "k": 3})
    assert list(result) == ["z", "a"] and result["a"] == 3
    np.testing.assert_array_equal(result["z"], [3, 6])
    assert "stablehlo.multiply" in core.stablehlo(again)
    inner = core.jax_computation((np.float32, [2]))(lambda w: again({"w": w, "k": jnp.int32(5)})["z"])
    np.testing.assert_array_equal(inner(np.ones(2, np.float32)), [5, 5])


def _damaged(change):
    """Return a computation whose proto was changed in transit."""
    made = core.jax_computation({"w": (np.float32, [2]), "k": np.int32})(lambda p: {"z": p["w"] * p["k"], "a": p["k"]})
    proto = type(made.to_proto()).FromString(made.to_proto().SerializeToString())
    change(proto)
    return fl.framework.ConcreteComputation.from_proto(proto)


def _cut(proto):
    proto.xla.hlo_module.value = proto.xla.hlo_module.value[:-200]


def _scrambled(proto):
    content = bytearray(proto.xla.hlo_module.value)
    start = content.index(b"ML\xefR")
    content[start + 4 : start + 200] = bytes(255 - b for b in content[start + 4 : start + 200])
    proto.xla.hlo_module.value = bytes(content)


def _no_bytecode(proto):
    proto.xla.hlo_module.value = proto.xla.hlo_module.value.replace(b"ML\xefR", b"ML\xefS")


def _of_another_parameter(proto):
    added = proto.type.function.parameter.struct.element.add()
    added.CopyFrom(proto.type.function.parameter.struct.element[0])
    added.name = "v"


def _of_another_result(proto):
    proto.type.function.result.struct.element[1].value.CopyFrom(proto.type.function.result.struct.element[0].value)


@pytest.mark.parametrize("change", [_cut, _scrambled, _no_bytecode, _of_another_parameter, _of_another_result])
def test_damaged_protos_are_refused(change):
    """A process reads the StableHLO first, as MLIR may crash; wrong types raise."""
    damaged = _damaged(change)
    w = np.ones(2, np.float32)
    given = [w, np.int32(3), w] if change is _of_another_parameter else [w, np.int32(3)]
    for call in (lambda: damaged(given), lambda: core.stablehlo(damaged)):
        with pytest.raises(FederatedTypeError, match=r"proto (cannot be read|contradicts itself)"):
            call()


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int64, np.uint64, np.complex128, np.float16, ml_dtypes.bfloat16, bool]
)
def test_dtypes_are_kept_without_enable_x64(dtype):
    assert not jax.config.jax_enable_x64
    f = core.jax_computation((dtype, [2]))(lambda x: x)
    name = "bool" if dtype is bool else np.dtype(dtype).name
    assert str(f.type_signature) == f"({name}[2] -> {name}[2])"
    value = (
        np.array([True, False])
        if dtype is bool
        else np.array([2**40 + 1, 3], np.int64).astype(dtype)
        if np.dtype(dtype).itemsize > 4
        else np.ones(2, dtype)
    )
    assert f(value).dtype == value.dtype
    np.testing.assert_array_equal(f(value), value)


def test_float64_arithmetic_is_float64():
    f = core.jax_computation(np.float64)(lambda x: jnp.sin(x) + 1e-12)
    assert abs(f(0.5) - (np.sin(0.5) + 1e-12)) < 1e-15


def test_open_dimensions():
    @core.jax_computation((np.float32, [None, 2]), (np.float32, [None]))
    def f(x, y):
        return x + y[:, None], jnp.sum(x, axis=0)

    assert str(f.type_signature) == "(<x=float32[?,2],y=float32[?]> -> <float32[?,2],float32[2]>)"
    for n in (1, 3, 8):
        assert f(np.ones((n, 2), np.float32), np.ones(n, np.float32))[0].shape == (n, 2)
    with pytest.raises(FederatedTypeError):  # x and y are of one batch: the function needs that
        f(np.ones((3, 2), np.float32), np.ones(2, np.float32))
    with pytest.raises(FederatedTypeError, match=">= 1"):
        f(np.ones((0, 2), np.float32), np.ones(0, np.float32))


def test_open_dimensions_are_apart_where_they_may_be():
    f = core.jax_computation((np.float32, [None]), (np.float32, [None]))(lambda x, y: jnp.sum(x) * jnp.sum(y))
    assert f(np.ones(3, np.float32), np.ones(5, np.float32)) == 15


def test_calls_within_jax_and_gradients():
    @core.jax_computation(np.float32, {"w": np.float32})
    def loss(x, model):
        return x * model["w"] ** 2

    @core.jax_computation(np.float32, {"w": np.float32})
    def gradient(x, model):
        return jax.grad(loss, argnums=1)(x, model)["w"] + jax.vmap(lambda a: loss(a, model))(jnp.arange(3.0)).sum()

    assert gradient(2.0, {"w": 3.0}) == 2 * 2 * 3 + (0 + 1 + 2) * 9


def test_dicts_keep_the_parameters_order():
    """jax.tree.map sorts a dict's keys; a model's type must not change by that."""
    model = {"w": np.float32, "b": {"z": np.float32, "a": np.float32}}
    f = core.jax_computation(model)(lambda m: (jax.tree.map(lambda x: x + 1, m), {"y": 1, "x": 2.0}))
    assert str(f.type_signature.result) == "<<w=float32,b=<z=float32,a=float32>>,<y=int32,x=float32>>"
    assert f({"w": 1.0, "b": {"z": 2.0, "a": 3.0}})[0] == {"w": 2, "b": {"z": 3, "a": 4}}


def test_containers_come_back():
    f = core.jax_computation(lambda: Point([1, 2], collections.OrderedDict(z=(3,), a=jnp.zeros(1))))
    result = f()
    assert isinstance(result, Point) and isinstance(result.a, list) and isinstance(result.b, collections.OrderedDict)
    assert list(result.b) == ["z", "a"] and result.b["z"] == (3,)


@pytest.mark.full
def test_optimizer_states():
    """Optax states, named tuples, pass through types, calls and results."""
    optimizer = optax.adam(0.1)
    params = {"w": jnp.ones(2)}
    state = optimizer.init(params)

    @core.jax_computation(params, state)
    def step(params, state):
        updates, state = optimizer.update(params, state, params)
        return optax.apply_updates(params, updates), state

    new, new_state = step(params, state)
    updates, expected = optimizer.update(params, state, params)
    np.testing.assert_allclose(new["w"], optax.apply_updates(params, updates)["w"], rtol=1e-6)
    assert jax.tree.structure(new_state) == jax.tree.structure(expected)
    assert new_state[0].count == 1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: core.jax_computation(lambda x: None, np.int32), "returned None"),
        (lambda: core.jax_computation(lambda x: {"a": None}, np.int32), "cannot return"),
        (lambda: core.jax_computation(lambda x: object(), np.int32), "cannot return"),
        (lambda: core.jax_computation(lambda x: {1: x}, np.int32), "strings"),
        (lambda: core.jax_computation(lambda x: x, fl.SequenceType(np.int32)), "sequence_reduce"),
        (lambda: core.jax_computation(lambda x, y: x, np.int32), "2 parameters"),
        (lambda: core.jax_computation(lambda x: x, np.str_), "no strings"),
        (lambda: core.jax_computation(lambda x: x, "int32x"), "describes no type"),
        (lambda: core.jax_computation(lambda *x: x, np.int32), "varargs"),
        (lambda: core.jax_computation(lambda x: fl_identity(x), np.int32), "cannot call a federated_computation"),
    ],
)
def test_what_cannot_be_a_computation(make, match):
    with pytest.raises(FederatedTypeError, match=match):
        make()


@fl.federated_computation(np.int32)
def fl_identity(x):
    return x


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ((1.5,), "int32 is needed, not float 1.5"),
        ((2**40,), "int32 is needed"),
        ((True,), "int32 is needed"),
        ((np.int64(3),), "int32 is needed, not int64"),
        ((np.zeros(2, np.int32),), r"not int32\[2\]"),
        (("a",), "int32 is needed, not str 'a'"),
        ((None,), "int32 is needed"),
    ],
)
def test_arguments_of_another_type(args, match):
    f = core.jax_computation(np.int32)(lambda x: x)
    with pytest.raises(InputError, match=match) as raised:
        f(*args)
    assert isinstance(raised.value, TypeError), "as the federated language raises"


def test_structures_that_do_not_fit():
    f = core.jax_computation({"a": np.int32, "b": np.int32})(lambda p: p["a"] - p["b"])
    assert f({"b": 1, "a": 5}) == f([5, 1]) == 4, "the order of a dict is no part of its value"
    for wrong in ({"a": 1}, {"a": 1, "c": 2}, [1, 2, 3], 4):
        with pytest.raises(FederatedTypeError, match="argument"):
            f(wrong)


@pytest.mark.full
def test_errors_of_the_function_are_its_own():
    with pytest.raises(TypeError, match="dot_general"):
        core.jax_computation(lambda x, y: x @ y, (np.float32, [2, 3]), (np.float32, [2, 3]))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        core.jax_computation(lambda x: 1 if x > 0 else 2, np.int32)
