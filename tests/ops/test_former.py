"""Ops that TensorFlow runs in old graphs only: it is asked with a graph that says that it is one."""

import jax
import numpy as np
import pytest
import tensorflow as tf

import tf2jax_lite as tf2jax
from tf2jax_lite.errors import Tf2JaxError
from tf2jax_lite.ops import registry

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 4, 3, 5)).astype(np.float32)
MEAN, BETA, GAMMA = (RNG.normal(size=5).astype(np.float32) for _ in range(3))
VARIANCE = RNG.uniform(0.5, 2, 5).astype(np.float32)
NORM, NORM_GRAD = "BatchNormWithGlobalNormalization", "BatchNormWithGlobalNormalizationGrad"
SQUARES = RNG.normal(size=(2, 3, 3)).astype(np.float32)
POSITIVE = SQUARES @ SQUARES.transpose(0, 2, 1) + np.eye(3, dtype=np.float32)
FACTORS = np.linalg.cholesky(POSITIVE)
ONE, ZERO, RIDGE = np.int64(1), np.int64(0), np.float64(0.1)

ASKED = [
    *(
        (NORM, [IMAGE, MEAN, VARIANCE, BETA, GAMMA], {"variance_epsilon": 0.01, "scale_after_normalization": s})
        for s in (True, False)
    ),
    *(
        (
            NORM_GRAD,
            [IMAGE, MEAN, VARIANCE, GAMMA, IMAGE**2],
            {"variance_epsilon": 0.01, "scale_after_normalization": s},
        )
        for s in (True, False)
    ),
    ("BatchCholesky", [POSITIVE], {}),
    ("BatchCholeskyGrad", [FACTORS, SQUARES], {}),
    ("BatchMatrixInverse", [POSITIVE], {"adjoint": True}),
    ("BatchMatrixDeterminant", [POSITIVE], {}),
    ("BatchMatrixSolve", [POSITIVE, SQUARES], {"adjoint": False}),
    ("BatchMatrixTriangularSolve", [FACTORS, SQUARES], {"lower": True, "adjoint": True}),
    ("BatchMatrixSolveLs", [POSITIVE, SQUARES, RIDGE], {"fast": True}),
    ("BatchMatrixBandPart", [SQUARES, ONE, ZERO], {}),
    ("BatchMatrixDiag", [SQUARES[0]], {}),
    ("BatchMatrixDiagPart", [SQUARES], {}),
    ("BatchMatrixSetDiag", [SQUARES, SQUARES[:, 0]], {}),
    ("BatchSelfAdjointEigV2", [POSITIVE], {"compute_v": False}),
    ("BatchSvd", [POSITIVE], {"compute_uv": False, "full_matrices": False}),
]
TESTED_OTHERWISE = {op for op, _, _ in ASKED}


def graph_of(op, inputs, attrs):
    """Returns a GraphDef of TensorFlow 0.5, before each of these ops was given up, and the names of its results."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = 8
    names = [f"in{i}" for i in range(len(inputs))]
    typed = {name: tf.as_dtype(value.dtype).as_datatype_enum for name, value in zip(names, inputs, strict=True)}
    for name in names:
        graph_def.node.add(name=name, op="Placeholder").attr["dtype"].type = typed[name]
    node = graph_def.node.add(name="made", op=op, input=names)
    node.attr["T"].type = typed["in0"]
    for key, value in attrs.items():
        setattr(node.attr[key], "b" if isinstance(value, bool) else "f", value)
    return graph_def, names, [f"made:{i}" for i in range(5 if op == NORM_GRAD else 1)]


@pytest.mark.parametrize(("op", "inputs", "attrs"), ASKED, ids=lambda v: v if isinstance(v, str) else "")
def test_against_tensorflow(op, inputs, attrs):
    graph_def, names, results = graph_of(op, inputs, attrs)
    with tf.Graph().as_default():
        tf.compat.v1.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session() as session:
            feed = {f"{name}:0": value for name, value in zip(names, inputs, strict=True)}
            expected = session.run(results, feed)
    converted, params = tf2jax.convert_graph_def(graph_def, names, results)
    with jax.enable_x64(True):
        static = {i for i, value in enumerate(inputs) if value.dtype == np.int64}

        def call(*traced):
            given = iter(traced)
            return converted(params, *(v if i in static else next(given) for i, v in enumerate(inputs)))[0]

        actual = jax.jit(call)(*(v for i, v in enumerate(inputs) if i not in static))
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_names_that_changed_share_one_function():
    for op in TESTED_OTHERWISE - {NORM, NORM_GRAD}:
        assert registry.lookup(op).fn is registry.lookup(op.removeprefix("Batch")).fn


def test_shapes_are_checked():
    graph_def, names, results = graph_of(*ASKED[0])
    converted, params = tf2jax.convert_graph_def(graph_def, names, results)
    with pytest.raises(Tf2JaxError, match=r"'made' \(BatchNormWithGlobalNormalization\).*4 dimensions"):
        converted(params, IMAGE[0], MEAN, VARIANCE, BETA, GAMMA)
