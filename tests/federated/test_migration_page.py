"""The pages on porting have every name of FedJAX and TFF that differs, and run.

`public_names.json` has their public names by module, with the versions of the sources that they were read from.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import json
import re
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated
from tf2jax_lite.errors import DataError

NAMES = json.loads((Path(__file__).parent / "public_names.json").read_text())
DOCS = Path(__file__).parents[2] / "docs"
PAGES = [(DOCS / name).read_text() for name in ("federated-migration.md", "developer/porting-names.md")]
PACKAGES = (
    federated,
    federated.aggregators,
    federated.data,
    federated.datasets,
    federated.metrics,
    federated.optimizers,
)


def section(library):
    ported, apart = (re.findall(rf"^## {library}\n(.*?)(?=^## |\Z)", page, re.M | re.S) for page in PAGES)
    assert len(ported) == len(apart) == 1
    return re.sub(r"```.*?```", "", ported[0] + apart[0], flags=re.S)


def spans(text):
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("library", NAMES)
def test_public_names_are_here_or_on_the_page(library):
    named = {word for span in spans(section(library)) for word in re.findall(r"\w+", span)}
    modules = NAMES[library]["names"]
    assert sum(map(len, modules.values())) > 100
    missing = {
        module: [name for name in names if name not in named and not any(hasattr(p, name) for p in PACKAGES)]
        for module, names in modules.items()
    }
    assert not {module: names for module, names in missing.items() if names}


BATCH = {"x": np.ones((4, 3), np.float32), "y": np.ones(4, np.float32)}
WEIGHTS = {"w": np.zeros(3, np.float32), "b": np.float32(0)}
MODEL = federated.create_model_from_fn(WEIGHTS, lambda p, b: b["x"] @ p["w"] + p["b"], "mse")
DATA = federated.InMemoryFederatedData(dict.fromkeys("ab", BATCH))
SCALAR = jax.ShapeDtypeStruct((), np.float32)


@functools.cache
def samples():
    """Return the values of the names that rows use for a program's own."""
    apfl = federated.build_apfl(
        MODEL, optax.sgd(0.1), client_batching=federated.BatchHParams(2), client_diagnostics=True
    )
    sampler = federated.UniformGetClientSampler(DATA, 2, 0)
    state, metrics = apfl.next(apfl.initialize(), sampler.sample())
    values = {
        "model": MODEL,
        "model_fn": MODEL,
        "federated_data": DATA,
        "process": apfl,
        "state": state,
        "metrics": MetricsAndKeys(metrics),
        "sampler": sampler,
        "clients": sampler.sample(),
        "params": WEIGHTS,
        "client_values": [[1, 0], [1]],
        "client_id": "a",
        "batch": BATCH,
        "predictions": BATCH["y"],
        "mask": BATCH["y"] > 0,
        "metric": federated.metrics.MeanSquaredError(),
        "factory": federated.aggregators.MeanFactory(),
        "template": SCALAR,
        "optimizer": optax.sgd(0.1),
        "client_optimizer": optax.sgd(0.1),
        "is_local": lambda name: name == "w",
        "trains": lambda name: True,
        "selects": lambda name: name == "w",
        "keys": "x",
        "max_keys": 2,
        "fn": lambda *examples: examples[-1],
        "loss": "mse",
        "path": Path("nothing.sqlite"),
        "element_spec": {"x": SCALAR},
        "split_name": "train",
        "vocab": ["the"],
        "shares": [0.5],
        "non_trainable": (),
        "regularization": 0.0,
        "regularizer": lambda params: 0.0,
        "iterator": iter("ab"),
        "message": None,
        "stat": None,
        "threshold": 1,
        "lower": 0.0,
        "upper": 1.0,
        "bound": 1.0,
        "step_size": 0.5,
        "rate": 0.1,
        "momentum": 0.9,
        "levels": 4,
        "length": 5,
        "size": 2,
        "epochs": 1,
        "num_bins": 3,
        "num_rounds": 1,
        "num_clients": 2,
        "num_clusters": 2,
        "proximal_strength": 0.1,
        "rounds": 3,
        "seed": 0,
        "x": BATCH["x"],
        "y": BATCH["y"],
    }
    own = federated.build_model_delta_client_work(MODEL, optax.sgd(0.1))
    blocks = ("initialize", "client_init", "client_step", "client_final")
    values |= {name: getattr(own, name) for name in blocks}
    values |= {
        "client_work": own,
        "aggregator": federated.aggregators.MeanFactory(),
        "distributor": federated.build_broadcast_process(),
        "finalizer": federated.build_apply_optimizer_finalizer(optax.sgd(1.0)),
        "federated_language": None,
    }
    aggregation = federated.aggregators.MeanFactory().create(SCALAR)
    values |= {name: getattr(aggregation, name) for name in ("zero", "accumulate", "merge", "report")}
    values |= {name: getattr(DATA, name) for name in ("preprocess_client",)}
    values |= {name: getattr(federated.datasets.EMNIST, name) for name in ("load_data", "synthetic")}
    return values | dict.fromkeys(("bits_per_client", "compression_ratio", "distortion"))


class MetricsAndKeys(dict):
    """A round's metrics, and the names of the subpackage ``metrics``."""

    def __getattr__(self, name):
        return getattr(federated.metrics, name)


PRIVATE = "aggregators.extract_dp_event(process, rounds)"
# Given where a row says ``...``, or nothing.
REST = {"client_optimizer": optax.sgd(0.1), "num_clients": 2, "seed": 0, "proximal_strength": 0.1}
KERAS = {"create_model_from_tf(keras_model, loss)", "create_model_from_tf(model, loss)"}
KERAS |= {"create_model_from_tf(model, loss, metrics)"}  # tests/learning/test_keras_training.py
LANGUAGE = {"core.stablehlo(fn)", "fn.to_proto()", "set_default_context()"}  # tests/federated/core
SHELL = {"tf2jax-lite convert --train"}


def keywords():
    """Return all names of parameters of public functions and classes."""
    found = set()
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name, None)
            if callable(value):
                with contextlib.suppress(ValueError, TypeError):
                    found |= set(inspect.signature(value).parameters)
    return found


class Fill(ast.NodeTransformer):
    """Leave out ``...`` of calls and lists."""

    def visit_Call(self, node):
        self.generic_visit(node)
        node.args = [arg for arg in node.args if not self.rest(arg)]
        return node

    def visit_List(self, node):
        node.elts = [item for item in node.elts if not self.rest(item)]
        return node

    @staticmethod
    def rest(node):
        return isinstance(node, ast.Constant) and node.value is ...


def completed(function):
    """Return a function that takes `REST` for arguments that a row leaves out."""

    @functools.wraps(function)
    def call(*args, **given):
        signature = inspect.signature(function)
        bound = signature.bind_partial(*args, **given).arguments
        needed = [n for n, p in signature.parameters.items() if p.default is p.empty and n not in bound]
        return function(*args, **given, **{name: REST[name] for name in needed if name in REST})

    return call


def evaluated(span, before):
    """Return the value of a row's expression; ``before`` is the one before it."""
    if span.startswith("."):
        first = "federated_data" if "preprocess" in span else before.rpartition(".")[0]
        span = first + span
    tree = ast.fix_missing_locations(Fill().visit(ast.parse(span, mode="eval")))
    if span == PRIVATE:
        factory = federated.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(1.0, 2, 1.0)
        return federated.aggregators.extract_dp_event(factory.create(SCALAR), 3)
    names = {}
    for name in (node.id for node in ast.walk(tree) if isinstance(node, ast.Name)):
        roots = [package for package in (*PACKAGES, federated) if hasattr(package, name)]
        names[name] = samples()[name] if name in samples() else getattr(roots[0], name) if roots else ROOTS[name]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and inspect.isfunction(names[node.func.id]):
            names[node.func.id] = completed(names[node.func.id])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("UniformGet"):
            names[node.func.id] = functools.partial(names[node.func.id], num_clients=2, seed=0)
    return eval(compile(tree, span, "eval"), names)


ROOTS = {"optax": optax, "dataclasses": dataclasses, "list": list}


@pytest.mark.parametrize("library", NAMES)
def test_rows_run(library):
    """Each counterpart is evaluated, with values for a program's own names."""
    rows = [line for line in section(library).splitlines() if re.match(r"\| .*`.* \|$", line)]
    assert len(rows) > 30
    parameters, wrong = keywords(), []
    for row in rows:
        before = ""
        for span in spans(row.rstrip(" |").split(" | ")[-1]):
            if span in SHELL | KERAS | LANGUAGE:
                continue
            try:
                if re.match(r"\w+=", span):
                    unknown = {span.split("=")[0]} - parameters
                    assert not unknown, unknown
                else:
                    evaluated(re.sub(r"(\w+)=(?=[,)])", r"\1=\1", span), before)
            except Exception as error:  # of any row; readers find no such file
                reads = isinstance(error, DataError | FileNotFoundError) and "path" in span
                wrong += [] if reads else [(span, repr(error))]
            before = span
    assert not wrong, "\n".join(map(str, wrong))
