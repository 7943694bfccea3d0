"""Training on meshes: eight virtual devices give one's weights; refused options."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from tf2jax_lite.errors import InputError
from tf2jax_lite.finetuning import finetune
from tf2jax_lite.finetuning.sharding import Placement, make_placement, mesh_text, parse_mesh, parse_rule
from tf2jax_lite.learning.process import ModelWeights
from tf2jax_lite.learning.sources import create_model_from_fn

PROGRAM = Path(__file__).parent / "mesh_program.py"
# Shapes can be checked without the devices.
MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
WEIGHTS = ModelWeights(
    {
        "dense/kernel": jax.ShapeDtypeStruct((6, 8), np.float32),
        "dense/bias": jax.ShapeDtypeStruct((8,), np.float32),
        "scale": jax.ShapeDtypeStruct((), np.float32),
    },
    {"mean": jax.ShapeDtypeStruct((3,), np.float32)},
)


def specs(placement):
    found = placement.weight_shardings(WEIGHTS)
    return {name: tuple(sharding.spec) for part in found for name, sharding in part.items()}


def test_params_are_split_by_rules_or_along_their_largest_axis():
    assert set(specs(Placement(MESH)).values()) == {()}
    full = specs(Placement(MESH, fully_sharded=True))
    assert full == {"dense/kernel": (None, "data"), "dense/bias": ("data",), "scale": (), "mean": ()}
    rules = tuple(parse_rule(rule) for rule in ("kernel$=model,data", "bias=data+model"))
    mixed = specs(Placement(MESH, rules, fully_sharded=True))
    assert mixed == {"dense/kernel": ("model", "data"), "dense/bias": (("data", "model"),), "scale": (), "mean": ()}


def test_statistics_of_the_optimizer_are_split_like_params():
    placement = Placement(MESH, fully_sharded=True)
    shardings = placement.weight_shardings(WEIGHTS).trainable
    found = placement.optimizer_shardings(optax.adam(1e-3), WEIGHTS.trainable, shardings)
    assert found[0].mu["dense/kernel"].spec == P(None, "data") and found[0].nu["dense/bias"].spec == P("data")
    assert found[0].count.spec == P()


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("kernel$=None,axis", "does not fit the param 'dense/kernel'"),
        ("kernel$=data", "does not fit the param 'dense/kernel'"),
        ("bias=None,model", "does not fit the param 'dense/bias'"),
        ("gamma=data", "matches no param; there are .*'dense/kernel'"),
        ("kernel", "a sharding rule is REGEX=AXIS"),
        ("=model", "a sharding rule is REGEX=AXIS"),
        ("(=model", "no regular expression"),
    ],
)
def test_rules_that_do_not_fit(rule, says):
    with pytest.raises(InputError, match=says):
        Placement(MESH, (parse_rule(rule),)).weight_shardings(WEIGHTS)


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        ("data=2", "does not have the 1 devices"),
        ("data=-1,model=-1", "does not have the"),
        ("data=0", "does not have the"),
        ("model=1", "no axis 'data'"),
        ("data", "a mesh is axes and their sizes"),
        ("data=1,data=1", "a mesh is axes and their sizes"),
        ("data=x", "a mesh is axes and their sizes"),
    ],
)
def test_meshes_that_do_not_fit(mesh, says):
    with pytest.raises(InputError, match=says):
        parse_mesh(mesh)


def test_meshes_are_text_mappings_or_meshes():
    for mesh in ("data=-1,model=1", {"data": 1, "model": 1}, parse_mesh("data=1,model=1")):
        assert dict(parse_mesh(mesh).shape) == {"data": 1, "model": 1}
    assert mesh_text(parse_mesh("data=-1")) == "data=1"
    for rules in ("w=None,model", ["w=None,model"], {"w": "None,model"}, {"w": P(None, "model")}):
        ((pattern, spec),) = make_placement("data=1,model=1", rules).rules
        assert pattern.pattern == "w" and spec == P(None, "model")
    with pytest.raises(InputError, match="no sharding 'zero'"):
        make_placement("data=1", "zero")
    with pytest.raises(InputError, match="go with a mesh"):
        make_placement(None, "fsdp")


def test_batches_that_are_not_split_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Placement(MESH).check_split(32, 2)
    for sizes in ((18, 1), (32, 16)):
        with pytest.warns(UserWarning, match="the mesh data=4,model=2 does not split parts of"):
            Placement(MESH).check_split(*sizes)


X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
DATA = {"x": X, "y": (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)}


def trained(**options):
    model = create_model_from_fn({"w": np.zeros((3, 1), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    weights, history = finetune(model, DATA, epochs=2, batch_size=8, **{"optimizer": optax.sgd(0.1), **options})
    return np.asarray(weights.trainable["w"]), history


@pytest.mark.full
def test_a_mesh_and_microbatches_leave_the_weights_as_they_are():
    plain, history = trained(eval_examples=DATA)
    for options in ({"mesh": "data=1"}, {"mesh": "data=1", "sharding": "fsdp"}, {"microbatches": 3}):
        found, records = trained(eval_examples=DATA, **options)
        np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)
        assert records.records[-1]["eval/loss"] == pytest.approx(history.records[-1]["eval/loss"], rel=1e-4)


@pytest.mark.full
def test_the_average_is_that_of_numpy():
    """With full batches SGD's path is known."""
    w = average = np.zeros((3, 1))
    for _ in range(4):
        w = w - 0.1 * 2 * X.T.astype(float) @ (X @ w - DATA["y"]) / 30
        average = 0.8 * average + 0.2 * w
    model = create_model_from_fn({"w": np.zeros((3, 1), np.float32)}, lambda p, b: b["x"] @ p["w"], "mse")
    found, history = finetune(
        model, DATA, optimizer=optax.sgd(0.1), epochs=4, batch_size=30, ema_decay=0.8, eval_examples=DATA
    )
    np.testing.assert_allclose(found.trainable["w"], average, rtol=1e-4)
    expected = np.mean((X @ average - DATA["y"]) ** 2)
    assert history.records[-1]["eval/loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"microbatches": 0}, "microbatches is an integer"),
        ({"ema_decay": 1.0}, "ema_decay .* above 0 and below 1"),
    ],
)
def test_options_out_of_range(options, says):
    with pytest.raises(InputError, match=says):
        trained(**options)


def on_eight_devices(model):
    done = subprocess.run([sys.executable, str(PROGRAM), str(model)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    for found in report.values():
        assert found["weights"] < 1e-5 and found["loss"] < 1e-5, report
    # The program of data parallelism reduces gradients and gathers no weights; the others hold split weights.
    assert report["data"]["collectives"].keys() == {"all-reduce"} and not report["data"]["sharded"]
    assert report["fsdp"]["collectives"]["all-gather"] and report["fsdp"]["sharded"]
    assert report["rules"]["sharded"] and report["rules"]["collectives"]["all-reduce"]


@pytest.mark.full
def test_eight_devices_give_the_weights_of_one():
    on_eight_devices("dense")


@pytest.mark.full
@pytest.mark.parametrize("name", ["transformer", "resnet"])
def test_converted_models_on_eight_devices(converted, name):
    on_eight_devices(converted(name))
