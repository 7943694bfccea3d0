"""Unstable JAX APIs work as assumed: a test per entry and release."""

from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tf2jax_lite.jaxprs import compat

X = np.array([0.5, 1.5, 2.5], np.float32)


@jax.custom_jvp
def _squared(x):
    return x * x


_squared.defjvp(lambda primals, tangents: (_squared(*primals), 7.0 * tangents[0]))


@jax.custom_vjp
def _halved(x):
    return x / 2


_halved.defvjp(lambda x: (_halved(x), None), lambda _, ct: (5.0 * ct,))

FUNCTIONS = {
    "one result": jnp.sin,
    "several results": lambda x: lax.sort((x, x), num_keys=1),
    "call": jax.jit(lambda x: x + 1),
    "scan": lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.float32(1), x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x),
    "branches": lambda x: lax.cond(x[0] > 1, jnp.sin, jnp.cos, x),
    "custom_jvp": _squared,
    "custom_vjp": _halved,
}


@pytest.mark.default_cases("several results")
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_bind_evaluates_an_equation(fn):
    closed = jax.make_jaxpr(fn)(X)
    env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, X], strict=True))
    for eqn in closed.jaxpr.eqns:
        inputs = [v.val if hasattr(v, "val") else env[v] for v in eqn.invars]
        env.update(zip(eqn.outvars, compat.bind(eqn, *inputs), strict=True))
    for found, expected in zip([env[v] for v in closed.jaxpr.outvars], jax.tree.leaves(fn(X)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.full
@pytest.mark.parametrize(("fn", "derivative"), [(_squared, 7.0), (_halved, 5.0)])
def test_bind_keeps_derivative_rules(fn, derivative):
    (eqn,) = jax.make_jaxpr(fn)(X).jaxpr.eqns
    np.testing.assert_array_equal(jax.grad(lambda x: compat.bind(eqn, x)[0].sum())(X), derivative)


def test_bind_with_another_primitive():
    (eqn,) = jax.make_jaxpr(lambda x: lax.reduce_max(x, (0,)))(X).jaxpr.eqns
    (other,) = jax.make_jaxpr(lambda x: lax.reduce_min(x, (0,)))(X).jaxpr.eqns
    assert compat.bind(eqn, X, primitive=other.primitive) == [0.5]


@pytest.mark.default_cases("0-0-1", "0-1-1", "1-0-0", "1-1-0", "2-3-2")
@pytest.mark.parametrize(
    ("closed_over", "carried", "sliced"), [(0, 1, 1), (1, 1, 0), (2, 3, 2), (0, 0, 1), (1, 0, 0), (0, 2, 0)]
)
def test_scan_counts(closed_over, carried, sliced):
    def run(closed, carry, xs):
        def body(carry, xs):
            total = sum([*closed, *carry, *xs], jnp.float32(0))
            return [c + total for c in carry], total

        return lax.scan(body, carry, xs, length=3)

    args = [[jnp.float32(i)] * n for i, n in enumerate((closed_over, carried))]
    (eqn,) = [e for e in jax.make_jaxpr(run)(*args, [X] * sliced).jaxpr.eqns if e.primitive.name == "scan"]
    counts = compat.scan_counts(eqn.params)
    assert counts == (closed_over, carried)
    assert len(eqn.invars) == sum(counts) + sliced


def test_composite_jaxpr():
    """JAX before 0.12 has no such equations; `jnp.searchsorted` is other ones there."""
    grid = np.arange(3, dtype=np.float32)
    closed = jax.make_jaxpr(jnp.searchsorted)(grid, X)
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == compat.COMPOSITE:
            assert compat.composite_jaxpr(eqn).out_avals == [v.aval for v in eqn.outvars]


def test_inconclusive_dimension_operation():
    (n,) = jax.export.symbolic_shape("n")
    with pytest.raises(compat.InconclusiveDimensionOperation):
        bool(n > 3)


def test_max_dim_and_min_dim():
    (n,) = jax.export.symbolic_shape("n")
    assert compat.max_dim(n, 1) == n
    assert compat.min_dim(n, 1) == 1
    assert (compat.max_dim(2, 3), compat.min_dim(2, 3)) == (3, 2)


def test_inline_when_traced_leaves_no_call():
    inner = jax.jit(lambda x: x + 1, inline=compat.INLINE_WHEN_TRACED)
    assert [e.primitive.name for e in jax.make_jaxpr(inner)(X).jaxpr.eqns] == ["add"]


def test_is_traced():
    seen = []
    jax.make_jaxpr(lambda x: seen.append(compat.is_traced(x)))(X)
    assert seen == [True]
    assert not any(map(compat.is_traced, (X, jnp.asarray(X), 1, jax.ShapeDtypeStruct((), np.float32))))


def test_varying_axes():
    assert compat.varying_axes(jax.typeof(X)) == frozenset()
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    seen = []

    def run(x):
        seen.append(compat.varying_axes(jax.typeof(x)))
        return x

    spec = jax.sharding.PartitionSpec("data")
    jax.make_jaxpr(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec))(X)
    assert frozenset({"data"}) in seen


def test_parts_of_a_jaxpr():
    closed = jax.make_jaxpr(lambda x: x + np.float32(2))(jax.ShapeDtypeStruct((), np.float32))
    assert isinstance(closed, compat.ClosedJaxpr)
    assert isinstance(closed.jaxpr, compat.Jaxpr)
    (eqn,) = closed.jaxpr.eqns
    assert isinstance(eqn.primitive, compat.Primitive)
    assert [type(v) for v in eqn.invars] == [compat.Var, compat.Literal]
    assert eqn.invars[1].val == 2
    assert isinstance(eqn.invars[0].aval, compat.AbstractValue)
    assert eqn.invars[0].aval.update(weak_type=False) == compat.ShapedArray((), np.float32)
    assert compat.jaxpr_as_fun(closed)(np.float32(1)) == [3]


def test_used_inputs_looks_into_calls():
    def run(x, y, z):
        return jax.jit(lambda x, y, z: (x + y, z))(x, y, z)[0]

    assert compat.used_inputs(jax.make_jaxpr(run)(X, X, X)) == [True, True, False]


def test_named_primitive():
    assert compat.named_primitive("lt_to_p").name == "lt_to"
    assert compat.named_primitive("no_such_p") is None


def test_define_prng_impl():
    """A kind of keys whose bits are the key's own number."""
    kind = compat.define_prng_impl(
        key_shape=(1,),
        seed=lambda seed: jnp.asarray(seed, jnp.uint32)[None],
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 1)),
        random_bits=lambda key, width, shape: jnp.broadcast_to(key[0], shape).astype(f"uint{width}"),
        fold_in=lambda key, data: key + jnp.asarray(data, jnp.uint32),
        name="constant_for_tests",
        tag="con",
    )
    key = jax.random.wrap_key_data(jnp.asarray([7], jnp.uint32), impl=kind)
    assert jax.random.bits(jax.random.fold_in(key, 2), (2,)).tolist() == [9, 9]


@pytest.mark.full
def test_threefry2x32_p():
    words = [np.array([i], np.uint32) for i in range(4)]
    found = compat.threefry2x32_p.bind(*words)
    assert [w.dtype for w in found] == [np.uint32, np.uint32]


def _cubed(name):
    """Return a primitive with every rule that `register` takes for an operand."""
    cubed = compat.Primitive(name)

    def jvp(primals, tangents):
        (x,), (t,) = primals, tangents
        result = cubed.bind(x)
        if type(t) is compat.Zero:
            return result, compat.Zero(jax.typeof(result).to_tangent_aval())
        return result, 3 * x**2 * t

    compat.register(
        cubed,
        impl=lambda x: x**3,
        abstract=lambda x: x,
        jvp=jvp,
        batch="elementwise",
        lowering=compat.lower_fun(lambda x: x**3, multiple_results=False),
    )
    return cubed


def test_register_impl_abstract_jvp_batch_lowering():
    cubed = _cubed("cubed")
    np.testing.assert_allclose(cubed.bind(X), X**3)
    np.testing.assert_allclose(jax.jit(jax.vmap(cubed.bind))(X), X**3, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: cubed.bind(x).sum())(X), 3 * X**2)


def test_register_cpu_lowering():
    cubed = _cubed("cubed_on_cpu")
    compat.register(cubed, cpu_lowering=compat.lower_fun(lambda x: x + 100, multiple_results=False))
    lowered = jax.jit(cubed.bind).trace(X).lower(lowering_platforms=("cpu",))
    assert "1.000000e+02" in lowered.as_text()


@pytest.mark.full
def test_register_abstract_of_another_primitive_and_batch_rule():
    def batch(args, axes):
        return [half.bind(jnp.moveaxis(args[0], axes[0], 0))[0]], [0]

    half = compat.Primitive("half")
    compat.register(half, multiple_results=True, impl=lambda x: [x / 2], abstract=lambda x: [x], batch=batch)
    compat.register(half, lowering=compat.lower_fun(lambda x: [x / 2], multiple_results=True))
    np.testing.assert_array_equal(jax.vmap(lambda x: half.bind(x)[0], in_axes=1)(np.ones((2, 3))), np.full((3, 2), 0.5))
    sine = compat.Primitive("sine")
    compat.register(sine, abstract=lax.neg_p)
    assert jax.eval_shape(sine.bind, X).shape == X.shape


def test_register_linear_and_transpose():
    double, shift = compat.Primitive("double"), compat.Primitive("shift")
    for primitive in (double, shift):
        compat.register(primitive, impl=lambda x: 2 * x, abstract=lambda x: x)
    compat.register(double, linear=lambda ct, x: [2 * ct])
    np.testing.assert_array_equal(jax.grad(lambda x: double.bind(x).sum())(X), [2, 2, 2])

    def transpose(ct, x):
        assert compat.is_undefined_primal(x)
        return [7 * compat.instantiate_zeros(ct)]

    compat.register(
        shift, jvp=lambda primals, tangents: (shift.bind(*primals), shift.bind(*tangents)), transpose=transpose
    )
    np.testing.assert_array_equal(jax.grad(lambda x: shift.bind(x).sum())(X), [7, 7, 7])


def test_register_bilinear():
    product = compat.Primitive("product")
    compat.register(
        product,
        impl=lambda x, y: x * y,
        abstract=lambda x, y: x,
        bilinear=(lambda ct, x, y: product.bind(ct, y), lambda ct, x, y: product.bind(x, ct)),
    )
    x_bar, y_bar = jax.grad(lambda x, y: product.bind(x, y).sum(), (0, 1))(X, 2 * X)
    np.testing.assert_array_equal(x_bar, 2 * X)
    np.testing.assert_array_equal(y_bar, X)


def test_core_call_lowering():
    call = compat.Primitive("called")

    def lower(ctx, x, *, jaxpr):
        return compat.core_call_lowering(ctx, x, name="called", call_jaxpr=jaxpr)

    compat.register(call, multiple_results=True, abstract=lambda x, *, jaxpr: jaxpr.out_avals, lowering=lower)
    closed = jax.make_jaxpr(jnp.sin)(X)
    lowered = jax.jit(lambda x: call.bind(x, jaxpr=closed)[0]).lower(X)
    assert "@called" in lowered.as_text()
    np.testing.assert_allclose(lowered.compile()(X), np.sin(X), rtol=1e-6)


def test_mlir_modules_read_a_portable_artifact():
    stablehlo, chlo, sdy = map(compat.mlir_dialect, ("stablehlo", "chlo", "sdy"))
    text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
    payload = compat.serialize_portable_artifact(text, stablehlo.get_current_version())
    with compat.ir.Context() as context:
        for dialect in (stablehlo, chlo, sdy):
            dialect.register_dialect(context)
        module = stablehlo.deserialize_portable_artifact(context, payload)
        assert [str(op.attributes["sym_name"]) for op in module.body] == ['"main"']
        with pytest.raises(compat.ir.MLIRError):
            compat.ir.Module.parse("no module", context)


def test_evaluate_compiled():
    with jax.disable_jit():
        assert compat.evaluate_compiled(jax.lax.neg_p, np.float32(1)) == -1


def test_with_vjp():
    exported = jax.export.export(jax.jit(lambda x: x * x))(np.float32(1))
    given = jax.export.deserialize(exported.serialize(vjp_order=1))
    derivative = given.vjp()
    read = compat.with_vjp(given, derivative)
    assert read.has_vjp() and read.vjp() is derivative and not derivative.has_vjp()
    assert jax.grad(read.call)(np.float32(3)) == 6


def test_serialized_levels():
    n = jax.export.symbolic_shape("n")[0]
    exported = jax.export.export(jax.jit(lambda x: x * x))(jax.ShapeDtypeStruct((n, 3), np.float32))
    levels = list(compat.serialized_levels(bytes(exported.serialize(vjp_order=2)), 100))
    assert len(levels) == 3
    assert all(set(sizes) == {"n", "3"} and not sharded for sizes, sharded in levels)
    with pytest.raises(ValueError, match="more than 2"):
        list(compat.serialized_levels(bytes(exported.serialize()), 2))
    mesh = jax.make_mesh((1,), ("x",))
    spec = jax.ShapeDtypeStruct((3,), np.float32, sharding=jax.NamedSharding(mesh, jax.P("x")))
    content = bytes(jax.export.export(jax.jit(lambda x: x * x))(spec).serialize())
    assert next(compat.serialized_levels(content, 100))[1]


def test_without_source_paths():
    def function(x):
        with jax.named_scope("layer"):
            return jnp.sin(x)

    limit = jax.config.jax_traceback_in_locations_limit
    with compat.without_source_paths():
        text = jax.jit(lambda x: function(x)).lower(X).as_text(debug_info=True)
    assert "layer/sin" in text and ".py" not in text
    assert ".py" in jax.jit(lambda x: function(x)).lower(X).as_text(debug_info=True)
    assert jax.config.jax_traceback_in_locations_limit == limit


@pytest.mark.full
def test_every_entry_has_a_test():
    source = Path(__file__).read_text()
    assert [name for name in compat.__all__ if f"compat.{name}" not in source] == []


@pytest.mark.parametrize("wrapped", [lambda fn: fn, jax.jit], ids=["same trace", "inner trace"])
def test_tracers_have_equations_constants_and_identities(wrapped):
    """`compat.equation_of`, `compat.constant_of` and `compat.identity_of`."""

    def function(x, y):
        shifted = lax.add(x, y)
        name, operands, params = compat.equation_of(lax.slice(shifted, (1,), (3,)))
        assert name == "slice" and params["start_indices"] == (1,)
        assert compat.identity_of(operands[0]) == compat.identity_of(shifted) != compat.identity_of(x)
        name, operands, _ = compat.equation_of(shifted)
        assert name == "add" and [compat.identity_of(v) for v in operands] == list(map(compat.identity_of, (x, y)))
        assert compat.equation_of(x)[0] == "" and compat.constant_of(x) is None

        def inside(v):  # a value of the outer trace is a constant here
            product = lax.mul(v, shifted)
            assert compat.identity_of(compat.equation_of(product)[1][1]) == compat.identity_of(shifted)
            return product

        return wrapped(inside)(x)

    jax.make_jaxpr(function)(X, X)
    np.testing.assert_array_equal(compat.constant_of(X), X)
    np.testing.assert_array_equal(compat.constant_of(jnp.asarray(X)), X)


def test_dim_terms():
    n, m = jax.export.symbolic_shape("n, m")
    assert compat.dim_terms(n) == ((1, (("n", 1),)),)
    assert compat.dim_terms(3 * n**2 * m - 2 * m + 5) == ((3, (("m", 1), ("n", 2))), (-2, (("m", 1),)), (5, ()))
    for dim, name, operand, number in (
        ((n + 1) // 2, "floordiv", n + 1, 2),
        (n % 3, "mod", n, 3),
        (compat.max_dim(n - 2, 0), "max", n - 2, 0),
        (compat.min_dim(n, 9), "min", n, 9),
    ):
        assert compat.dim_terms(dim) == ((1, (((name, operand, number), 1),)),)


def test_inconclusive_comparison_under_whole_tracebacks():
    """Outside of a trace, the first needs the second."""
    n, m = jax.export.symbolic_shape("n, m")
    for comparison, expected in (
        (lambda: n >= 5, (n, 5)),
        (lambda: n < m, (n, m)),
        (lambda: n <= 7, (7, n)),
        (lambda: m > n + 1, (n + 1, m)),
    ):
        with pytest.raises(compat.InconclusiveDimensionOperation) as failed:
            comparison()
        assert compat.inconclusive_comparison(failed.value) == expected
    assert compat.inconclusive_comparison(ValueError("comparison 'n' >= '5' is inconclusive")) is None
    before = jax.config.jax_traceback_filtering
    with pytest.raises(compat.InconclusiveDimensionOperation) as failed, compat.whole_tracebacks():
        jax.export.export(jax.jit(lambda x: jnp.zeros(x.shape[0] - 4)))(jax.ShapeDtypeStruct((n,), np.float32))
    assert compat.inconclusive_comparison(failed.value) == (n - 4, 0)
    assert jax.config.jax_traceback_filtering == before
