"""Mixed precision and rematerialization: changed operations, equal results."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.artifacts.conftest import make_examples
from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import finetune, finetune_artifact
from tf2jax_lite.finetuning.precision import float32_predictions, in_bfloat16
from tf2jax_lite.finetuning.remat import cut_positions, in_blocks, rematerialized
from tf2jax_lite.learning.losses import named_loss
from tf2jax_lite.learning.model import model_value_and_grad
from tf2jax_lite.learning.sources import create_model_from_fn

LAYERS, WIDTH = 9, 8
RNG = np.random.default_rng(0)
PARAMS = {f"kernel{i}": RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 3 for i in range(LAYERS)}
PARAMS |= {f"bias{i}": RNG.normal(size=WIDTH).astype(np.float32) for i in range(LAYERS)}
BATCH = {"x": RNG.normal(size=(16, WIDTH)).astype(np.float32), "y": RNG.integers(0, WIDTH, 16).astype(np.int32)}
KEY = jax.random.key(0)


def layer(params, i, x):
    # Between layers goes one array of the width; inside of them, one of three times the width.
    hidden = jnp.concatenate([x, jnp.tanh(x @ params[f"kernel{i}"] + params[f"bias{i}"]), x], -1)
    return x + jnp.exp(-jnp.square(hidden)).reshape(len(x), 3, -1).sum(1) / 3


def deep(params, batch):
    x = batch["x"]
    for i in range(LAYERS):
        x = jax.jit(layer, static_argnums=1)(params, i, x)
    return x


def recurrent(params, batch):
    def step(carry, x):
        return jnp.tanh(carry @ params["kernel0"] + x), None

    return jax.lax.scan(step, batch["x"], jnp.ones((3, 1)))[0]


def model_of(apply):
    loss = named_loss("sparse_categorical_crossentropy", from_logits=True)
    return create_model_from_fn(PARAMS, apply, loss)


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


@pytest.mark.default_cases("recurrent")
@pytest.mark.parametrize("apply", [deep, recurrent])
def test_products_are_bfloat16_and_results_float32(apply):
    model = float32_predictions(model_of(apply))
    weights = model.init(KEY)
    exact = model_value_and_grad(model)
    mixed = in_bfloat16(exact)
    closed = jax.make_jaxpr(mixed)(weights, BATCH, KEY)
    dots = [eqn for eqn in equations(closed.jaxpr) if eqn.primitive.name == "dot_general"]
    for eqn in dots:  # on CPU, products with float32 results take bfloat16 values as float32
        assert {v.aval.dtype for v in eqn.invars} == {eqn.outvars[0].aval.dtype}
    kinds = collections.Counter(str(eqn.outvars[0].aval.dtype) for eqn in dots)
    if apply is deep:  # forward, and with respect to the input but for the first layer; kernels' gradients are sums
        assert kinds == {"bfloat16": 2 * LAYERS - 1, "float32": LAYERS}
    assert all(
        v.aval.dtype == jnp.float32
        for eqn in equations(closed.jaxpr)
        if eqn.primitive.name in ("exp", "log", "reduce_sum")
        for v in eqn.invars
    )
    (expected, wanted), (found, grads) = exact(weights, BATCH, KEY), jax.jit(mixed)(weights, BATCH, KEY)
    assert found.loss.dtype == jnp.float32 and float(found.loss) == pytest.approx(float(expected.loss), rel=0.03)
    for name, grad in grads.items():
        assert grad.dtype == jnp.float32
        np.testing.assert_allclose(grad, wanted[name], atol=0.05 * np.abs(wanted[name]).max() + 1e-6, err_msg=name)


def test_blocks_are_cut_where_little_goes_on():
    """Nine products make three blocks: between layers one array of the batch is live."""
    closed = jax.make_jaxpr(plain)(PARAMS, BATCH)
    cuts = cut_positions(closed.jaxpr)
    assert len(cuts) == 2
    for cut in cuts:
        made = {v for eqn in closed.jaxpr.eqns[:cut] for v in eqn.outvars}
        live = {v for eqn in closed.jaxpr.eqns[cut:] for v in eqn.invars if not hasattr(v, "val") and v in made}
        assert [v.aval.shape for v in live] == [(16, WIDTH)]


def plain(params, batch):
    x = batch["x"]
    for i in range(LAYERS):
        x = layer(params, i, x)
    return x


@pytest.mark.full
def test_rematerialized_models_have_the_same_gradients():
    model, other = model_of(deep), rematerialized(model_of(deep))
    weights = model.init(KEY)
    found, grads = jax.jit(model_value_and_grad(other))(weights, BATCH, KEY)
    expected, wanted = jax.jit(model_value_and_grad(model))(weights, BATCH, KEY)
    assert float(found.loss) == pytest.approx(float(expected.loss), rel=1e-6)
    for name in wanted:
        np.testing.assert_allclose(grads[name], wanted[name], rtol=1e-4, atol=1e-6)
    closed = jax.make_jaxpr(model_value_and_grad(other))(weights, BATCH, KEY)
    dots = sum(eqn.primitive.name == "dot_general" for eqn in equations(closed.jaxpr))
    assert dots > 3 * LAYERS - 1  # those of the first blocks are computed again
    assert in_blocks(lambda x: x + 1)(1) == 2


def test_both_together_train():
    data = {name: np.concatenate([value] * 4) for name, value in BATCH.items()}
    options = {"optimizer": optax.sgd(0.1), "epochs": 2, "batch_size": 16}
    weights, history = finetune(model_of(deep), data, **options, precision="bf16", remat=True, microbatches=2)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(weights))
    assert history.records[-1]["loss"] < history.records[1]["loss"]
    with pytest.raises(InputError, match="no precision 'float16'"):
        finetune(model_of(deep), data, **options, precision="float16")


@pytest.mark.full
def test_artifacts_train_in_bfloat16(artifact, tmp_path):
    """StableHLO is evaluated by operation; source has blocks to rematerialize."""
    options = {
        "loss": "sparse_categorical_crossentropy",
        "from_logits": True,
        "epochs": 1,
        "batch_size": 16,
        "learning_rate": 0.01,
    }
    train = make_examples(48, 0)
    exact = finetune_artifact(artifact, train, tmp_path / "exact", **options)
    mixed = finetune_artifact(artifact, train, tmp_path / "mixed", **options, precision="bf16")
    assert mixed.history.records[1]["loss"] == pytest.approx(exact.history.records[1]["loss"], rel=0.05)
    with pytest.raises(InputError, match="backend='source'"):
        finetune_artifact(artifact, train, tmp_path / "x", **options, remat=True)


@pytest.mark.full
@pytest.mark.parametrize("options", [{"remat": True}, {"remat": True, "precision": "bf16"}])
def test_source_of_a_transformer_is_rematerialized(converted, tmp_path, options):
    rng = np.random.default_rng(0)
    train = {"x": rng.integers(0, 32, (32, 12)).astype(np.int32), "y": rng.integers(0, 4, 32).astype(np.int32)}
    common = {"loss": "sparse_categorical_crossentropy", "batch_size": 16, "backend": "source", "from_logits": True}
    plain_report = finetune_artifact(converted("transformer"), train, tmp_path / "a", **common)
    report = finetune_artifact(converted("transformer"), train, tmp_path / "b", **common, **options)
    losses = [r.history.records[1]["loss"] for r in (plain_report, report)]
    assert losses[1] == pytest.approx(losses[0], rel=0.03 if "precision" in options else 1e-5)
