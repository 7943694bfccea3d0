"""A fixed slice of random graphs, and faults that the oracle must see."""

import random

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tools.random_graphs import generate, gradients, oracle, source
from tools.random_graphs.programs import PARAM, Node, Program, Ref, Refused, show
from tools.random_graphs.shrink import shrink

X = np.float32([0.5, -1.0, 2.0])


def report(program, finding):
    small, finding = shrink(program, finding)
    return f"{finding.kind} {finding.how} {finding.op}: {finding.message}\n{show(small)}"


@pytest.mark.full
@pytest.mark.parametrize("seed", range(6))
def test_a_few(seed):
    rng = random.Random(seed)
    program = generate.write([rng.randrange(2**32) for _ in range(20)], 4 + 4 * seed)
    try:
        outcome = oracle.check(program)
    except Refused:
        pytest.skip("TensorFlow's shape functions refuse it")
    assert outcome.values
    assert outcome.finding is None, report(program, outcome.finding)


@pytest.mark.full
def test_many():
    """Hypothesis shrinks here; ``python -m tools.random_graphs`` on its own."""

    @hypothesis.settings(
        max_examples=200, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(generate.programs())
    def run(program):
        try:
            outcome = oracle.check(program)
        except Refused:
            hypothesis.reject()
        assert outcome.finding is None, report(program, outcome.finding)

    run()


def chain():
    """Twelve nodes, of which one is a Softplus."""
    nodes = [Node(0, "op", "Sin", (Ref(PARAM, 0),))]
    for i in range(1, 12):
        nodes.append(Node(i, "op", "Softplus" if i == 6 else "Cos" if i % 2 else "Tanh", (Ref(i - 1, 0),)))
    return Program((X,), tuple(nodes))


@pytest.mark.full
def test_a_right_chain_has_no_finding():
    assert oracle.check(chain()).finding is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda features: jax.nn.softplus(features) * 1.0001, "value"),
        # The lowering raises for other dtypes than the recorded one.
        (lambda features: jax.nn.softplus(features).astype(jnp.float64), "LoweringError"),
        (lambda features: jax.nn.softplus(features)[:2], "shape"),
    ],
)
def test_a_wrong_op_is_found_and_made_small(wrong, kind):
    with tf2jax.override_op("Softplus", wrong):
        finding = oracle.check(chain()).finding
        assert finding is not None and (finding.kind, finding.op) == (kind, "Softplus")
        small, finding = shrink(chain(), finding)
    assert [node.op for node in small.nodes] == ["Softplus"]
    assert finding.kind == kind


@pytest.mark.full
def test_a_wrong_op_within_a_loop_is_found():
    body = Program((X,), (Node(0, "op", "Sin", (Ref(PARAM, 0),)), Node(1, "op", "Tanh", (Ref(0, 0),))), (Ref(1, 0),))
    settings = {"count": 3, "limit": None, "stack": True}
    loop = Program((X,), (Node(0, "while", "", (Ref(PARAM, 0),), settings, (body,)),))
    assert oracle.check(loop).finding is None
    with tf2jax.override_op("Sin", lambda x: jnp.sin(x) * 1.001):
        finding = oracle.check(loop).finding
    assert finding is not None and finding.op == "while"


@pytest.mark.full
def test_round_off_is_no_finding():
    """A sum that cancels: any order of summation is right."""
    rng = np.random.default_rng(0)
    x = np.float32(rng.normal(size=3000) * 1e3)
    x[-1] = -x[:-1].astype(np.float64).sum()
    program = Program((x,), (Node(0, "op", "Sum", (Ref(PARAM, 0), np.array([0], np.int32))),))
    assert oracle.check(program).finding is None


@pytest.mark.full
def test_variables_that_inner_nodes_write_are_judged_by_what_they_then_hold():
    # The branch computes in float32, so what the variable holds afterwards is known to that precision only.
    inside = Program(
        params=(X,),
        nodes=(
            Node(0, "op", "Tanh", (Ref(PARAM, 0),)),
            Node(1, "op", "Cast", (Ref(0, 0),), {"DstT": tf.float64}),
            Node(2, "op", "Sum", (Ref(1, 0), np.int32([0]))),
            Node(3, "add", "w", (Ref(2, 0),)),
        ),
        results=(Ref(3, 0),),
    )
    other = Program(params=(X,), nodes=(Node(0, "read", "w"),), results=(Ref(0, 0),))
    program = Program(
        params=(X, np.bool_(True)),
        nodes=(
            Node(0, "cond", inputs=(Ref(PARAM, 1), Ref(PARAM, 0)), bodies=(inside, other)),
            Node(1, "read", "w"),
            Node(2, "add", "w", (np.float64(1.0),)),
        ),
        variables={"w": np.float64(2.0)},
    )
    assert oracle.check(program).finding is None


@pytest.mark.full
def test_what_xla_does_to_tensorflow_as_well_is_the_compilers():
    """XLA makes ``log(pow(x, y))`` ``y * log(abs(x))``, without NaN."""
    x = np.float32([-1.4, 2.0, -0.8, 0.5])
    nodes = (Node(0, "op", "Pow", (Ref(PARAM, 0), Ref(PARAM, 0))), Node(1, "op", "Log", (Ref(0, 0),)))
    outcome = oracle.check(Program((x,), nodes))
    assert outcome.finding is None and outcome.explained["compiler"] == 1
    with tf2jax.override_op("Log", lambda x: jnp.where(jnp.isnan(x), 1.0, jnp.log(x))):
        finding = oracle.check(Program((x,), nodes)).finding
    assert finding is not None and finding.op == "Log"


@pytest.mark.full
def test_half_precision_inside_of_a_branch_is_seen():
    half = Program(
        params=(X,),
        nodes=(
            Node(0, "op", "Cast", (Ref(PARAM, 0),), {"DstT": tf.float16}),
            Node(1, "op", "Expm1", (Ref(0, 0),)),
            Node(2, "op", "Cast", (Ref(1, 0),), {"DstT": tf.float64}),
        ),
        results=(Ref(2, 0),),
    )
    program = Program((X,), (Node(0, "call", inputs=(Ref(PARAM, 0),), bodies=(half,)),))
    assert oracle.check(program).finding is None
    with tf2jax.override_op("Expm1", lambda x: jnp.expm1(x) * jnp.float16(1.002)):
        assert oracle.check(program).finding is None
    with tf2jax.override_op("Expm1", lambda x: jnp.expm1(x) * jnp.float16(1.05)):
        assert oracle.check(program).finding is not None


@pytest.mark.full
@pytest.mark.parametrize("seed", [pytest.param(s, marks=[] if s < 2 else [pytest.mark.full]) for s in range(20)])
def test_gradients(seed):
    compared = 0
    for _, program in gradients.programs(8, 1000 + 8 * seed):
        try:
            count, found = gradients.differences(program)
        except Refused:
            continue
        assert not found, f"{found[0]}\n{show(program)}"
        compared += count
    assert compared


@pytest.mark.full
def test_a_wrong_gradient_is_found():
    @jax.custom_jvp
    def wrong(features):
        return jax.nn.softplus(features)

    wrong.defjvp(lambda primals, tangents: (wrong(*primals), tangents[0] * 0.9 * jax.nn.sigmoid(primals[0])))
    assert gradients.differences(chain()) == (12, [])
    with tf2jax.override_op("Softplus", wrong):
        _, found = gradients.differences(chain())
    assert [(difference.kind, difference.op) for difference in found] == [("grad", "Softplus")]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_source(seed):
    compared = 0
    for _, program in gradients.programs(4, 2000 + 4 * seed):
        try:
            outcome = source.check(program)
        except Refused:
            continue
        found = [d for d in outcome.found if d.op != "Fingerprint"]  # a hash of values that are rounded
        assert not found, f"{found[0]}\n{show(program)}"
        assert not outcome.unwritten
        compared += outcome.values
    assert compared


@pytest.mark.full
def test_wrong_source_is_found(monkeypatch):
    outcome = source.check(chain())
    assert (outcome.found, outcome.values, outcome.gradients) == ([], 13, 1)
    own = source.source_of

    def wrong(converted):
        fn, params = own(converted)
        return lambda params, *args: ([1.01 * r for r in fn(params, *args)[0]], params), params

    monkeypatch.setattr(source, "source_of", wrong)
    found = [(difference.kind, difference.op) for difference in source.check(chain()).found]
    assert found == [("value", "Sin"), ("value", "Cos"), ("gradient", "")]
