"""Values refused by builders of trainings: invalid numbers, states and types."""

import dataclasses
import math

import jax
import numpy as np
import optax
import pytest

from tf2jax_lite import federated as fed
from tf2jax_lite.errors import InputError
from tf2jax_lite.federated import client_work
from tf2jax_lite.federated.algorithms import server_optimizer

MODEL = fed.create_model_from_fn(
    {"w": np.ones((3, 2), np.float32)}, lambda params, batch: batch["x"] @ params["w"], "mse"
)
SGD = optax.sgd(0.1)
CLIENTS = [[{"x": np.ones((2, 3), np.float32), "y": np.ones((2, 2), np.float32)}]]
NAN, INF = math.nan, math.inf
WEIGHTS = {"w": np.ones((3, 2), np.float32)}
MOMENTUM = optax.sgd(0.1, momentum=0.9)
ACCURACY = fed.metrics.Accuracy()


def agnostic(**options):
    given = {"init_domain_weights": [1, 1], "init_domain_window": [[1, 1]], **options}
    return fed.build_agnostic_fed_avg(MODEL, SGD, **given)


def scaffold_of(client_id):
    process = fed.build_scaffold(MODEL, 5, 0.1)
    return process.next(process.initialize(), [(client_id, CLIENTS[0])])


def hyp_cluster():
    return fed.build_hyp_cluster(MODEL, 2, SGD)


def average():
    return fed.build_weighted_fed_avg(MODEL, SGD)


def changed(process, *args, weights=..., **options):
    state = process.initialize(*args, **options)
    return state if weights is ... else process.set_model_weights(state, weights)


def kmeans(*args, **options):
    return changed(fed.build_fed_kmeans(2, (3,)), *args, **options)


def clusters(*args, **options):
    return changed(fed.build_hyp_cluster(MODEL, 2, SGD), *args, **options)


def averaging(batch=None, model=None, step_size=0.1):
    batch = {"x": np.float32} if batch is None else batch
    return fed.build_jax_federated_averaging_process(batch, model or {"w": np.float32}, lambda m, b: 0.0, step_size)


def evaluated(**options):
    return fed.run_rounds(average(), lambda number: CLIENTS, 1, evaluate=lambda weights: {}, **options)


# The function called with an option, the option's name, and refused values in addition to NaN, text and True.
NUMBERS = [
    (lambda v: fed.build_scaffold(MODEL, v, 0.1), "num_clients", (0, 1.5, INF, None)),
    (lambda v: fed.build_scaffold(MODEL, 5, v), "client_learning_rate", (0, INF, None)),
    (lambda v: fed.build_scaffold(MODEL, 5, 0.1, server_learning_rate=v), "server_learning_rate", (-1, INF, None)),
    (lambda v: fed.build_per_fed_avg(MODEL, v, SGD), "personal_learning_rate", (0, INF, None)),
    (lambda v: fed.build_fed_buff(MODEL, SGD, buffer_size=v), "buffer_size", (0, 1.5, None)),
    (lambda v: fed.build_fed_buff(MODEL, SGD, concurrency=v), "concurrency", (0, 1.5, None)),
    (lambda v: fed.build_fed_buff(MODEL, SGD, staleness_exponent=v), "staleness_exponent", (-1, INF, None)),
    (lambda v: fed.build_mime(MODEL, SGD, server_learning_rate=v), "server_learning_rate", (-1, INF, None)),
    (lambda v: fed.build_fed_prox(MODEL, v, SGD), "proximal_strength", (-1, INF, None)),
    (lambda v: fed.build_weighted_fed_avg(MODEL, SGD, clients_per_chunk=v), "clients_per_chunk", (0, 1.5, INF)),
    (lambda v: fed.build_fed_kmeans(v, (3,)), "num_clusters", (0, 1.5, None)),
    (lambda v: fed.build_fed_kmeans(2, (v,)), "data_shape", (0, -1, 1.5, None)),
    (lambda v: fed.build_hyp_cluster(MODEL, v, SGD), "num_clusters", (0, 1.5, None)),
    (lambda v: fed.kmeans_init(MODEL, v, CLIENTS, SGD), "num_clusters", (0, 1.5, None)),
    (lambda v: agnostic(domain_learning_rate=v), "domain_learning_rate", (-1, INF, None)),
    (lambda v: fed.with_lora(MODEL, v), "rank", (0, 1.5, None)),
    (lambda v: fed.with_lora(MODEL, 1, alpha=v), "alpha", (INF,)),
    (lambda v: fed.build_fed_opt(MODEL, SGD, "adam", v), "learning_rate", (0, INF, None)),
    (lambda v: server_optimizer("adam", 0.1, beta_1=v), "beta_1", (-0.1, 1, INF, None)),
    (lambda v: server_optimizer("momentum", 0.1, beta_1=v), "beta_1", (-0.1, 1, INF, None)),
    (lambda v: server_optimizer("yogi", 0.1, beta_2=v), "beta_2", (-0.1, 1, INF, None)),
    (lambda v: server_optimizer("adagrad", 0.1, tau=v), "tau", (-1e-3, INF, None)),
    (
        lambda v: server_optimizer("yogi", 0.1, initial_accumulator_value=v),
        "initial_accumulator_value",
        (-1e-6, INF, None),
    ),
    (lambda v: fed.run_rounds(average(), lambda number: CLIENTS, v), "num_rounds", (-1, 1.5, None)),
    (lambda v: evaluated(evaluate_every=v), "evaluate_every", (0, 1.5, None)),
    (lambda v: evaluated(checkpoint_every=v), "checkpoint_every", (0, 1.5, None)),
    (lambda v: averaging(step_size=v), "step_size", (INF, None)),
    (lambda v: fed.build_personalization_eval(MODEL, {}, eval_batch_size=v), "eval_batch_size", (0, 1.5, None)),
]


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        pytest.param(call, name, value, id=f"{number}-{name}-{value}")
        for number, (call, name, values) in enumerate(NUMBERS)
        for value in (*values, NAN, "x", True)
    ],
)
def test_numbers_are_refused_by_name(call, name, value):
    with pytest.raises(InputError, match=f"{name} is "):
        call(value)


@pytest.mark.full_cases("<lambda>-centroids are numbers of shape3", "<lambda>-weights are numbers of shape \\\\[2\\\\]")
@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fed.build_scaffold(MODEL, 5, 0.1).next(None, [(0, CLIENTS[0])]), "state must be the result"),
        (lambda: fed.build_fed_kmeans(2, (3,)).next(None, CLIENTS), "state must be the result"),
        (lambda: fed.build_hyp_cluster(MODEL, 2, SGD).next(None, CLIENTS), "state must be the result"),
        (lambda: fed.build_fed_eval(MODEL).next(average().initialize(), CLIENTS), "not LearningAlgorithmState"),
        (lambda: average().set_model_weights(average().initialize(), None), "not None"),
        (lambda: fed.build_fed_eval(MODEL).set_model_weights(fed.build_fed_eval(MODEL).initialize(), None), "not None"),
        (lambda: fed.build_weighted_fed_avg(MODEL, None), "client optimizer"),
        (lambda: kmeans(0), "key is a JAX key"),
        (lambda: kmeans(params="x"), "centroids are numbers of shape"),
        (lambda: kmeans(params=[[1, 2], [3]]), "centroids are numbers of shape"),
        (lambda: kmeans(params=jax.random.key(0)), "centroids are numbers of shape"),
        (lambda: kmeans(params=np.ones((3, 2))), r"of shape \[2, 3\], not float64\[3, 2\]"),
        (lambda: kmeans(weights=None), "centroids are numbers of shape"),
        (lambda: kmeans(weights=fed.ModelWeights(np.ones((2, 3)), None)), r"weights are numbers of shape \[2\]"),
        (lambda: kmeans(weights=fed.ModelWeights(np.ones((2, 3)), np.ones(3))), r"weights are .*, not float64\[3\]"),
        (lambda: fed.build_fed_kmeans(2, (3,)).set_model_weights(None, np.ones((2, 3))), "state must be the result"),
        (lambda: clusters(0), "key is a JAX key"),
        (lambda: clusters(params=3), "params is a list .*, not int"),
        (lambda: clusters(params=MODEL.init(None)), "params is a list .*, not ModelWeights"),
        (lambda: clusters(weights=None), "weights is a list .*, not NoneType"),
        (lambda: clusters(weights=[None]), "weights has 1 entries for 2"),
        (lambda: clusters(weights=[None, None]), "not None"),
        (lambda: fed.freeze(MODEL, "w"), "trains is a function"),
        (lambda: fed.with_lora(MODEL, 1, adapts="w"), "adapts is a function"),
        (lambda: fed.build_fed_kmeans(2, 3), "data_shape is a tuple"),
        (lambda: agnostic(init_domain_weights="x"), "are numbers"),
        (lambda: fed.build_personalization_eval(MODEL, {"sgd": SGD}), "'sgd' is a pair"),
        (lambda: averaging(batch=3), "batch_type is a dict"),
        (lambda: averaging(model={"w": "weights"}), "a type is a dtype"),
        (lambda: fed.build_mime(MODEL, lambda number: SGD), "base_optimizer is an optax.GradientTransformation"),
        (lambda: agnostic(server_optimizer=lambda number: SGD), "a server optimizer is an optax.*; not function"),
        (lambda: agnostic(server_optimizer="adam"), "a server optimizer is an optax.*; not str"),
        (lambda: fed.build_mime(MODEL, None), "base_optimizer"),
        (lambda: fed.build_weighted_fed_avg(MODEL, SGD, train_metrics=[ACCURACY]), "train_metrics is a dict"),
        (lambda: fed.build_fed_sgd(MODEL, train_metrics={"accuracy": 3}), "train_metrics.*'accuracy' is a int"),
        (lambda: fed.build_mime(MODEL, SGD, train_metrics=[ACCURACY]), "train_metrics is a dict"),
        (lambda: fed.build_scaffold(MODEL, 2, 0.1, train_metrics=[ACCURACY]), "scaffold: train_metrics is a dict"),
        (lambda: agnostic(train_metrics=[ACCURACY]), "build_agnostic_fed_avg: train_metrics is a dict"),
        (lambda: client_work.build_model_delta_client_work(MODEL, SGD, train_metrics=[ACCURACY]), "is a dict"),
        (lambda: client_work.build_fed_sgd_client_work(MODEL, train_metrics=[ACCURACY]), "is a dict"),
        (lambda: fed.build_scaffold(None, 2, 0.1), "a model is a federated.Model"),
        (lambda: scaffold_of([0]), r"text or a number; not list: \[0\]"),
        (lambda: scaffold_of(("a", {})), "text or a number; not tuple"),
        (lambda: fed.create_model_from_fn(np.ones(3), lambda w, b: b["x"] @ w, "mse", [1]), "eval_metrics is a dict"),
        (lambda: hyp_cluster().initialize(0), "key is a JAX key"),
        (lambda: hyp_cluster().initialize(params=np.zeros((2, 3, 2))), "params is a list"),
        (lambda: hyp_cluster().initialize(params=[WEIGHTS]), "params has 1 entries for 2 clusters"),
        (lambda: hyp_cluster().set_model_weights(hyp_cluster().initialize(), [WEIGHTS]), "weights has 1 entries for 2"),
        (lambda: hyp_cluster().set_model_weights(hyp_cluster().initialize(), None), "weights is a list"),
        (lambda: fed.run_rounds(average(), CLIENTS, 1), "clients is a function of the round"),
    ],
)
def test_values_of_the_wrong_type(call, says):
    with pytest.raises(InputError, match=says):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fed.freeze(None, lambda name: True),
        lambda: fed.with_lora(None, 1),
        lambda: fed.evaluate_model(None, WEIGHTS, CLIENTS[0]),
        lambda: fed.build_fed_eval(None),
        lambda: fed.build_personalization_eval(None, {}),
        lambda: fed.build_hyp_cluster(None, 2, SGD),
        lambda: fed.build_mime(None, SGD),
        lambda: fed.kmeans_init(None, 1, CLIENTS, SGD),
        lambda: fed.model_grad(None),
        lambda: fed.model_per_example_loss(None),
    ],
)
def test_no_model(call):
    with pytest.raises(InputError, match="a model is a federated"):
        call()


BATCH = CLIENTS[0][0]


@pytest.mark.parametrize(
    ("weights", "batch", "says"),
    [
        ({"v": 3}, BATCH, "trainable weights.*'w'.* have shape none"),
        ({"w": np.ones((4, 2), np.float32)}, BATCH, r"have shape \(4, 2\), the model's \(3, 2\)"),
        (
            None,
            {**BATCH, "x": np.zeros((2, 5))},
            r"the model \(<lambda>, test_refusals.py:\d+\) does not take batch 0 "
            r"\(x: float64\[2,5\], y: float32\[2,2\]\): TypeError",
        ),
        (None, {"y": BATCH["y"]}, "KeyError: 'x'"),
        (None, {"x": BATCH["x"]}, "'y'"),
        (None, {**BATCH, "when": np.zeros(2, "M8[s]")}, r"batch 0 .*when: datetime64\[s\]\[2\]\): TypeError"),
        (None, 3, "a batch is a dict of arrays, not int"),
    ],
)
def test_what_does_not_fit_a_model_is_not_evaluated(weights, batch, says):
    with pytest.raises(InputError, match=says):
        fed.evaluate_model(MODEL, WEIGHTS if weights is None else weights, [batch])


def test_domains_that_there_are_none_of():
    """An index beyond domains would use another's weight; padding is ignored."""

    def clients(*domains):
        batch = {"x": np.ones((3, 3), np.float32), "y": np.ones((3, 2), np.float32), "domain_id": np.array(domains)}
        return [None, [batch | {"__mask__": np.array([True, True, False])}]]

    process = agnostic()
    state = process.initialize()
    process.next(state, clients(0, 1, 9))
    for wrong in (2, -1):
        with pytest.raises(InputError, match=f"client 1 of the round: 'domain_id' names domain {wrong}; .* 0 to 1"):
            process.next(state, clients(0, wrong, 0))


@pytest.mark.default_cases("mime")
@pytest.mark.parametrize(
    "build",
    [
        lambda model: fed.build_fed_prox(model, np.float32(0.5), MOMENTUM),
        lambda model: fed.build_mime(model, MOMENTUM, server_learning_rate=np.float32(0.5)),
        lambda model: fed.build_fed_opt(model, MOMENTUM, "momentum", np.float32(0.5)),
    ],
    ids=["fed_prox", "mime", "fed_opt"],
)
def test_numbers_of_numpy_leave_the_weights_their_dtype(build):
    """In JAX ``np.float32(0.5) * bfloat16`` is float32, unlike 0.5."""
    start = {"w": jax.numpy.ones((3, 2), jax.numpy.bfloat16)}
    process = build(fed.create_model_from_fn(start, lambda params, batch: batch["x"] @ params["w"], "mse"))
    state = process.initialize()
    for _ in range(2):
        state = process.next(state, CLIENTS).state
    assert process.get_model_weights(state).trainable["w"].dtype == jax.numpy.bfloat16


@pytest.mark.default_cases("scalar type and pair")
@pytest.mark.parametrize(
    "model_type",
    [
        {"b": np.float32, "w": (np.float32, (3,))},
        {"b": np.dtype("float32"), "w": jax.ShapeDtypeStruct((3,), np.float32)},
        {"b": jax.numpy.float32, "w": np.zeros(3, np.float32)},
    ],
    ids=["scalar type and pair", "dtype and struct", "jax and array"],
)
def test_types_of_jax_averaging(model_type):
    """One step of SGD a client from zero, for every notation of the types."""
    process = fed.build_jax_federated_averaging_process(
        {"x": (np.float32, (None, 3)), "y": (np.float32, [None])},
        model_type,
        lambda m, batch: jax.numpy.mean((batch["x"] @ m["w"] + m["b"] - batch["y"]) ** 2),
        0.5,
    )
    rng = np.random.default_rng(0)
    clients = [{"x": rng.normal(size=(n, 3)), "y": rng.normal(size=n)} for n in (2, 5)]
    state, _ = process.next(
        process.initialize(), [[{name: v.astype(np.float32) for name, v in c.items()}] for c in clients]
    )
    found = process.get_model_weights(state).trainable
    np.testing.assert_allclose(found["b"], np.mean([np.mean(c["y"]) for c in clients]), rtol=1e-5)
    expected = np.mean([c["y"] @ c["x"] / len(c["y"]) for c in clients], axis=0)
    np.testing.assert_allclose(found["w"], expected, rtol=1e-5)


def broken(*args):
    raise KeyError("mine")


@pytest.mark.default_cases("train_loss", "metric")
@pytest.mark.parametrize("part", ["train_loss", "metric", "client_step", "client_final"])
def test_error_of_a_users_function_names_it(part):
    @dataclasses.dataclass(frozen=True)
    class Broken(fed.metrics.Accuracy):
        def evaluate_example(self, example, prediction):
            return broken()

    loss = broken if part == "train_loss" else "mse"
    model = fed.create_model_from_fn(
        {"w": np.zeros(2, np.float32)},
        lambda p, b: b["x"] @ p["w"],
        loss,
        {"a": Broken()} if part == "metric" else None,
    )
    batch = {"x": np.ones((2, 2), np.float32), "y": np.ones(2, np.float32)}
    says = {"metric": "a metric .*Broken"}.get(part, rf"{part} \(broken, test_refusals.py:\d+")
    with pytest.raises(InputError, match=rf"^{says}.*\) raised KeyError: 'mine'"):
        if part in ("train_loss", "metric"):
            fed.evaluate_model(model, model.init(None), [batch])
        work = fed.build_model_delta_client_work(model, optax.sgd(0.1))
        process = fed.compose_learning_process(
            model,
            client_work=dataclasses.replace(work, **{part: broken}) if part.startswith("client") else work,
            aggregator=fed.aggregators.MeanFactory(),
            finalizer=fed.build_add_finalizer(),
        )
        process.next(process.initialize(), [[batch]])


def test_model_of_weights_that_returns_predictions_raises():
    start = fed.ModelWeights(np.ones(2), ())
    model = fed.Model(lambda key: start, lambda w, b, rng: b["x"], lambda w, b: b["x"], fed.named_loss("mse"))
    with pytest.raises(InputError, match=r"apply_for_train .* expected a TrainOutput"):
        fed.model_grad(model)(start, {"x": np.ones((2, 2))}, None)


@pytest.mark.full
def test_model_grad_of_other_weights_names_the_weights():
    weights = fed.ModelWeights({"w": None}, ())
    with pytest.raises(InputError, match=r"weights are not those of the model: trainable weights\['w'\] .* none"):
        fed.model_grad(MODEL)(weights, CLIENTS[0][0], None)
