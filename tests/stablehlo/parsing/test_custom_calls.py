"""Custom calls: those of JAX run; others are refused before XLA sees them."""

import contextlib
import dataclasses
import functools
import importlib
import re
import types

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.mlir.dialects import stablehlo

import tf2jax_lite
from tf2jax_lite.errors import (
    InputError,
    InvalidModelError,
    LimitError,
    ShapeMismatchError,
    Tf2JaxError,
    UnsupportedError,
)
from tf2jax_lite.jaxprs.compat import serialize_portable_artifact
from tf2jax_lite.stablehlo import api

LINALG = lax.linalg
SIZES = {"b": 2, "m": 5, "n": 3, "k": 2}
# Functions with the dimensions of their arguments; those marked False compare sizes, and take no symbolic ones.
OPS = {
    "cholesky": (LINALG.cholesky, ["n,n"], True),
    "lu": (LINALG.lu, ["m,n"], True),
    "solve": (jnp.linalg.solve, ["n,n", "n,k"], True),
    "det": (jnp.linalg.det, ["n,n"], True),
    "qr": (functools.partial(LINALG.qr, full_matrices=False), ["m,n"], False),
    "qr_full": (functools.partial(LINALG.qr, full_matrices=True), ["m,n"], False),
    "qr_wide": (functools.partial(LINALG.qr, full_matrices=True), ["k,m"], False),
    "householder_product": (LINALG.householder_product, ["m,n", "k"], False),
    "eigh": (LINALG.eigh, ["n,n"], True),
    "eig": (LINALG.eig, ["n,n"], True),
    "eigvals": (jnp.linalg.eigvals, ["n,n"], True),
    "schur": (LINALG.schur, ["n,n"], True),
    "schur_form": (functools.partial(LINALG.schur, compute_schur_vectors=False), ["n,n"], True),
    "hessenberg": (LINALG.hessenberg, ["n,n"], False),
    "tridiagonal": (functools.partial(LINALG.tridiagonal, lower=False), ["n,n"], True),
    "svd": (functools.partial(LINALG.svd, full_matrices=False), ["m,n"], True),
    "svd_full": (functools.partial(LINALG.svd, full_matrices=True), ["m,n"], True),
    "svd_wide": (functools.partial(LINALG.svd, full_matrices=True), ["n,m"], True),
    "singular_values": (functools.partial(LINALG.svd, compute_uv=False), ["m,n"], True),
    "triangular_solve": (functools.partial(LINALG.triangular_solve, left_side=True, lower=True), ["n,n", "n,k"], True),
    "triangular_right": (
        functools.partial(LINALG.triangular_solve, left_side=False, transpose_a=True),
        ["n,n", "k,n"],
        True,
    ),
    "tridiagonal_solve": (LINALG.tridiagonal_solve, ["n", "n", "n", "n,k"], True),
    "expm": (jax.scipy.linalg.expm, ["n,n"], True),
    "fft": (jnp.fft.fft, ["m,n"], False),
    "top_k": (lambda x: lax.top_k(x, 2), ["m,n"], False),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 2), ["m,n"], False),
    "approx_min_k": (lambda x: lax.approx_min_k(x, 2), ["m,n"], False),
    "cumsum": (lambda x: lax.cumsum(x, 0), ["m,n"], True),
    "random_bits": (lambda x: lax.rng_bit_generator(np.zeros(4, np.uint32), x.shape)[1] + 0 * x, ["m,n"], True),
}
COMPLEX = (
    "cholesky",
    "lu",
    "qr",
    "eigh",
    "eig",
    "schur",
    "hessenberg",
    "tridiagonal",
    "svd",
    "triangular_solve",
    "solve",
)


def specs(name, dtype=np.float32, batch=("b",), symbolic=False):
    scope = jax.export.SymbolicScope()
    shapes = [",".join([*batch, *dims.split(",")]) for dims in OPS[name][1]]
    if not symbolic:
        return [jax.ShapeDtypeStruct(tuple(SIZES[d] for d in text.split(",")), dtype) for text in shapes]
    kept = "bmnk" if OPS[name][2] else "b"  # the others are numbers
    shapes = [",".join(d if d in kept else str(SIZES[d]) for d in text.split(",")) for text in shapes]
    return [jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=scope), dtype) for text in shapes]


def arrays(name, dtype=np.float32):
    rng = np.random.default_rng(0)
    found = []
    for spec in specs(name, dtype):
        x = rng.uniform(0.1, 1, spec.shape).astype(dtype)
        if len(x.shape) > 2 and x.shape[-1] == x.shape[-2] and name != "svd":
            x = (x + np.swapaxes(x, -1, -2)) / 2 + 4 * np.eye(x.shape[-1], dtype=dtype)
        found.append(x)
    return found


def exported(name, platforms=("cpu",), **kwargs):
    return jax.export.export(jax.jit(OPS[name][0]), platforms=list(platforms))(*specs(name, **kwargs))


@pytest.mark.default_cases("lu-f4-True", "qr-f4-False", "svd-c8-True", "cumsum-f4-True", "top_k-f4-False")
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [(n, "f4") for n in OPS] + [(n, "c8") for n in COMPLEX])
def test_calls_of_jax_run(name, dtype, symbolic):
    if (name, symbolic) == ("hessenberg", True):
        pytest.skip("JAX cannot export it")
    content = bytes(exported(name, dtype=np.dtype(dtype), symbolic=symbolic).serialize())
    given = arrays(name, np.dtype(dtype))
    found = api.checked_call(api.read_exported(content))(*given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, OPS[name][0](*given))


@pytest.mark.default_cases("True-cuda")
@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_calls_for_other_platforms_are_listed(platform, symbolic):
    missing = []
    for name in OPS:
        try:
            payload = exported(name, (platform,), symbolic=symbolic).mlir_module_serialized
        except Exception:  # JAX has no such kernel, or does not export it
            missing.append(name)
            continue
        if api.check_payload(payload).has_dynamic_calls:
            api.check_payload(payload, [spec.shape for spec in specs(name)])
    assert len(missing) < len(OPS) / 2


@functools.cache
def calls():
    """Return a custom call of JAX for each function, target and dtype."""
    found = {}
    for name in OPS:
        for dtype in [np.float32, *([np.complex64] if name in COMPLEX else [])]:
            for line in exported(name, dtype=dtype).mlir_module().splitlines():
                match = re.search(
                    r"custom_call (@lapack_\w+)\(.*?mhlo.backend_config = (\{.*?\}).* : \((.*)\) -> (.*) loc", line
                )
                if match:
                    types = [re.findall(r"tensor<((?:\d+x)*)(\w+(?:<f32>)?)>", match[i]) for i in (3, 4)]
                    sides = [
                        [(element, [int(d) for d in dims.split("x")[:-1]]) for dims, element in side] for side in types
                    ]
                    found.setdefault((name, match[1]), (match[1], match[2], *sides))
    return found


def module(target, config, operands, results):
    operands, results = (
        [f"tensor<{''.join(f'{d}x' for d in dims)}{e}>" for e, dims in side] for side in (operands, results)
    )
    args = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    made = f"({', '.join(results)})"
    values = ", ".join(f"%r#{i}" if len(results) > 1 else "%r" for i in range(len(results)))
    return (
        f"module {{ func.func public @main({args}) -> {made} {{\n"
        f"%r{f':{len(results)}' if len(results) > 1 else ''} = stablehlo.custom_call {target}({names}) "
        f"{{mhlo.backend_config = {config}}} : ({', '.join(operands)}) -> {made}\n"
        f"return {values} : {', '.join(results)} }} }}"
    )


_WIDER = {"f32": "f64", "complex<f32>": "complex<f64>", "i32": "i64"}


def changes(target, config, operands, results):
    """Yield calls with one change: of a size, a rank, a dtype, an attribute, a target."""
    types = [*operands, *results]
    for i, (element, dims) in enumerate(types):
        others = [(_WIDER[element], dims), (element, [2, *dims])]
        for axis, size in enumerate(dims):
            others += [
                (element, [*dims[:axis], other, *dims[axis + 1 :]]) for other in {1, size - 1, size + 1} - {size}
            ]
        for other in others:
            changed = [*types[:i], other, *types[i + 1 :]]
            yield target, config, changed[: len(operands)], changed[len(operands) :]
    yield target, config, [*operands, operands[0]], results
    yield target, config, operands, [*results, results[-1]]
    yield target.replace("lapack", "lapak"), config, operands, results
    yield target, config.replace("{", "{what = 1 : ui8, ").replace(", }", "}"), operands, results
    for attribute in re.findall(r"\w+ = \d+ : \w+", config):
        yield target, config.replace(attribute, re.sub(r"\d+ :", "99 :", attribute)), operands, results


@pytest.mark.full
def test_changed_calls_are_refused():
    passed = []
    for call in calls().values():
        api.check_payload(module(*call))
        for changed in changes(*call):
            with contextlib.suppress(Tf2JaxError):
                api.check_payload(module(*changed))
                passed.append(changed)
    # Products of fewer reflectors than there are columns.
    assert all("gqr" in target and operands[1][1][-1] <= operands[0][1][-1] for target, _, operands, _ in passed)
    assert len(calls()) > 25


CALLBACKS = ["xla_ffi_python_cpu_callback", "xla_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback"]
OTHERS = [
    "my_kernel",
    "tpu_custom_call",
    "PadToStatic",
    "__cublas$gemm",
    "lapack_sgetrf",
    "lapack_sgetrf_ffi2",
    "dce_sink",
]


@pytest.mark.parametrize("target", [*CALLBACKS, *OTHERS])
@pytest.mark.parametrize("place", ["main", "unused", "branch"])
def test_targets_that_are_not_listed(target, place):
    call = f'%r = stablehlo.custom_call @"{target}"(%x) {{has_side_effect = true}} : (tensor<3xf32>) -> tensor<3xf32>'
    inner = f"func.func private @inner(%x: tensor<3xf32>) -> tensor<3xf32> {{ {call}\nreturn %r : tensor<3xf32> }}"
    branch = (
        "%i = stablehlo.constant dense<0> : tensor<i32>\n"
        f'%b = "stablehlo.case"(%i) ({{ {call}\nstablehlo.return %r : tensor<3xf32> }})'
        " : (tensor<i32>) -> tensor<3xf32>"
    )
    body = {"main": call, "unused": "", "branch": branch}[place]
    text = (
        f"module {{ {inner if place == 'unused' else ''}\n"
        f"func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {{ {body}\nreturn %x : tensor<3xf32> }} }}"
    )
    with pytest.raises(UnsupportedError, match=re.escape(target)):
        api.read_exported(with_module(text))
    with pytest.raises(UnsupportedError, match=re.escape(target)):
        tf2jax_lite.from_stablehlo(text)


@functools.cache
def template(symbolic=False):
    n = jax.export.symbolic_shape("n")[0] if symbolic else 3
    return jax.export.export(jax.jit(lambda x: x * 2), platforms=["cpu"])(jax.ShapeDtypeStruct((n,), np.float32))


def portable(text):
    return serialize_portable_artifact(text, stablehlo.get_current_version())


def with_module(text, symbolic=False, **changes):
    payload = portable(text) if isinstance(text, str) else text
    return bytes(dataclasses.replace(template(symbolic), mlir_module_serialized=payload, **changes).serialize())


def test_pivots_of_one_element():
    matrix = ("f32", [2000, 2000])
    text = module("@lapack_sgetrf_ffi", "{}", [matrix], [matrix, ("i32", [1]), ("i32", [])])
    with pytest.raises(InvalidModelError, match=r"lapack_sgetrf_ffi.*a size is 1 where m\^n is 2000"):
        tf2jax_lite.from_stablehlo(text)


@pytest.mark.parametrize("dims", ["9", "%n"])
def test_sizes_that_only_a_call_determines(dims):
    """The pivots have nine elements, for any number of columns."""
    count = (
        "%k = stablehlo.constant dense<9> : tensor<1xi32>"
        if dims == "9"
        else "%k = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>"
    )
    text = f"""module {{ func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      {count}
      %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
      %s = stablehlo.concatenate %v, %v, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %m = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
      %e = stablehlo.constant dense<> : tensor<0xi32>
      %r:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%m, %s, %k, %e) {{has_side_effect = true,
        indices_of_shape_operands = dense<[1, 2, 3]> : tensor<3xi64>, mhlo.backend_config = {{}}}} :
        (tensor<?x?xf32>, tensor<2xi32>, tensor<1xi32>, tensor<0xi32>) -> (tensor<?x?xf32>, tensor<?xi32>, tensor<i32>)
      return %x : tensor<?xf32> }} }}"""
    function = api.checked_call(api.read_exported(with_module(text, symbolic=True)))
    np.testing.assert_array_equal(function(np.ones(9, np.float32)), 1)
    if dims == "9":
        with pytest.raises(InvalidModelError, match=r"lapack_sgetrf_ffi.*a size is 9 where m\^n is 2000"):
            function(np.ones(2000, np.float32))
        with pytest.raises(InvalidModelError, match="lapack_sgetrf_ffi"):
            jax.jit(jax.grad(lambda x: function(x).sum()))(np.ones(2000, np.float32))
    else:
        np.testing.assert_array_equal(function(np.ones(20, np.float32)), 1)
    with pytest.raises(InputError, match="known sizes"):
        jax.export.export(jax.jit(function))(template(True).in_avals[0])


def test_dynamic_sizes_that_depend_on_data():
    text = """module { func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %t = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32>, tensor<f32>)
        -> tensor<f32>
      %i = stablehlo.convert %t : (tensor<f32>) -> tensor<i32>
      %v = stablehlo.reshape %i : (tensor<i32>) -> tensor<1xi32>
      %s = stablehlo.concatenate %v, %v, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %m = stablehlo.dynamic_broadcast_in_dim %t, %s, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x?xf32>
      %e = stablehlo.constant dense<> : tensor<0xi32>
      %r:2 = stablehlo.custom_call @lapack_spotrf_ffi(%m, %s, %e) {has_side_effect = true, indices_of_shape_operands =
        dense<[1, 2]> : tensor<2xi64>, mhlo.backend_config = {uplo = 76 : ui8}} : (tensor<?x?xf32>, tensor<2xi32>,
        tensor<0xi32>) -> (tensor<?x?xf32>, tensor<i32>)
      return %x : tensor<?xf32> } }"""
    function = api.checked_call(api.read_exported(with_module(text, symbolic=True)))
    with pytest.raises(ShapeMismatchError):
        function(np.ones(9, np.float32))


def test_dynamic_shapes_that_the_container_denies():
    content = with_module(template(True).mlir_module_serialized, symbolic=True, uses_global_constants=False)
    with pytest.raises(InvalidModelError, match="dynamic shapes"):
        api.read_exported(content)


HOSTILE = module("@lapack_sgetrf_ffi", "{}", [("f32", [3])], [("f32", [3])])


def derivative(text=None, order=1):
    """Return bytes whose derivative of an order has another module."""
    changed = template()
    levels = [changed, *(changed := changed.vjp() for _ in range(order))]
    bad = dataclasses.replace(levels[-1], mlir_module_serialized=text)
    for level in levels[-2::-1]:
        bad = dataclasses.replace(level, _get_vjp=lambda _, inner=bad: inner)
    return bytes(bad.serialize(vjp_order=order))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("damage", ["call", "bytes", "types"])
def test_derivatives_are_looked_at_as_well(order, damage):
    payload = template().mlir_module_serialized
    if damage == "types":
        payload = payload if order == 2 else template().vjp().vjp().mlir_module_serialized
    if damage == "call":
        payload = portable(HOSTILE)
    elif damage == "bytes":
        payload = payload[:40] + b"\xff" * 60 + payload[100:]
    with pytest.raises(
        Tf2JaxError, match={"call": "lapack_sgetrf_ffi", "bytes": "MLIR", "types": "its module"}[damage]
    ):
        api.read_exported(derivative(payload, order))


def test_derivatives_of_too_many_orders():
    bad = template()
    for _ in range(12):
        bad = dataclasses.replace(template(), _get_vjp=lambda _, inner=bad: inner)
    with pytest.raises(InvalidModelError, match="orders"):
        api.read_exported(bytes(bad.serialize(vjp_order=12)))


@pytest.mark.parametrize(
    "changes",
    [
        {"in_avals": (jax.core.ShapedArray((4,), np.float32),)},
        {"out_avals": (jax.core.ShapedArray((3,), np.int32),)},
        {"module_kept_var_idx": (1,)},
    ],
)
def test_containers_that_contradict_their_module(changes):
    content = bytes(dataclasses.replace(template(), **changes).serialize())
    with pytest.raises(InvalidModelError, match="its module"):
        api.read_exported(content)


def doubling(count):
    lines = [
        f"func.func private @f{i}(%x: tensor<3xf32>) -> tensor<3xf32> {{\n"
        f"%0 = func.call @f{i + 1}(%x) : (tensor<3xf32>) -> tensor<3xf32>\n"
        f"%1 = func.call @f{i + 1}(%0) : (tensor<3xf32>) -> tensor<3xf32>\nreturn %1 : tensor<3xf32> }}"
        for i in range(count)
    ]
    return (
        "module {" + "\n".join(lines) + f"func.func private @f{count}(%x: tensor<3xf32>) -> tensor<3xf32> {{\n"
        "%0 = stablehlo.sine %x : tensor<3xf32>\nreturn %0 : tensor<3xf32> }\n"
        "func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "%0 = func.call @f0(%x) : (tensor<3xf32>) -> tensor<3xf32>\nreturn %0 : tensor<3xf32> } }"
    )


def test_functions_that_call_the_next_one_twice():
    np.testing.assert_allclose(tf2jax_lite.from_stablehlo(doubling(3))(np.zeros(3, np.float32)), 0)
    with pytest.raises(LimitError, match="max_nodes"):
        tf2jax_lite.from_stablehlo(doubling(40))
    with pytest.raises(LimitError, match="max_nodes"):
        api.read_exported(with_module(doubling(40)))


def test_trusted_modules_are_not_looked_at():
    content = with_module(doubling(40))
    with tf2jax_lite.override_config("trusted", "StableHLO"):
        assert api.checked_call(exported_ := api.read_exported(content)) == exported_.call


_HANDLE = "channel_handle = #stablehlo.channel_handle<handle = 1, type = {}>, is_host_transfer = true"
_CHANNELS = {
    "infeed": ("%t", 'infeed_config = ""', "!stablehlo.token", "(tensor<3xf32>, !stablehlo.token)"),
    "outfeed": ("%x, %t", 'outfeed_config = ""', "tensor<3xf32>, !stablehlo.token", "!stablehlo.token"),
    "send": ("%x, %t", _HANDLE.format(2), "tensor<3xf32>, !stablehlo.token", "!stablehlo.token"),
    "recv": ("%t", _HANDLE.format(3), "!stablehlo.token", "(tensor<3xf32>, !stablehlo.token)"),
}


@pytest.mark.parametrize("op", _CHANNELS)
def test_waiting_for_another_process(op):
    given, attributes, types, made = _CHANNELS[op]
    results = "%0:2" if made.startswith("(") else "%0"
    text = (
        "module { func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {\n"
        "%t = stablehlo.create_token : !stablehlo.token\n"
        f'{results} = "stablehlo.{op}"({given}) {{{attributes}}} : ({types}) -> {made}\nreturn %x : tensor<3xf32> }} }}'
    )
    with pytest.raises(UnsupportedError, match=f"{op}.*waits"):
        api.read_exported(with_module(text))


@pytest.fixture
def written_as(monkeypatch):
    """Return a function that serializes the template with other parts."""
    serialization = importlib.import_module("jax._src.export.serialization")

    def write(name, make):
        original = getattr(serialization, name)
        with monkeypatch.context() as patch:
            patch.setattr(serialization, name, lambda builder, item, **kwargs: make(original, builder, item, **kwargs))
            return bytes(template().serialize(vjp_order=1))

    return write


@pytest.mark.parametrize("size", ["b^99999999", "(b+c)*(d+e)", "b*(c+1)", "b+" * 600 + "b"])
def test_sizes_that_take_long_to_read(written_as, size):
    def make(original, builder, aval):
        return original(builder, types.SimpleNamespace(shape=(size,), dtype=aval.dtype, memory_space=aval.memory_space))

    with pytest.raises(InvalidModelError, match="a dimension has the size"):
        api.read_exported(written_as("_serialize_aval", make))


def test_structures_whose_parts_stand_for_many(written_as):
    def make(original, builder, item):
        for _ in range(40):  # each has the one before twice
            item, kind = original(builder, jax.tree.structure(())) if not isinstance(item, int) else item, 2
            flat = serialized._serialize_array(builder, lambda _, offset: offset, [item, item])
            serialized.ser_flatbuf.PyTreeDefStart(builder)
            serialized.ser_flatbuf.PyTreeDefAddKind(builder, kind)
            serialized.ser_flatbuf.PyTreeDefAddChildren(builder, flat)
            item = serialized.ser_flatbuf.PyTreeDefEnd(builder)
        return item

    serialized = importlib.import_module("jax._src.export.serialization")
    with pytest.raises(InvalidModelError, match="sizes or nodes"):
        api.read_exported(written_as("_serialize_pytreedef", make))


def test_shardings_are_refused(written_as):
    def make(original, builder, item, **kwargs):
        serialized = importlib.import_module("jax._src.export.serialization").ser_flatbuf
        proto = builder.CreateByteVector(b"\x08\x03")
        serialized.ShardingStart(builder)
        serialized.ShardingAddHloShardingProto(builder, proto)
        return serialized.ShardingEnd(builder)

    with pytest.raises(UnsupportedError, match="shardings"):
        api.read_exported(written_as("_serialize_sharding", make))
