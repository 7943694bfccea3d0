"""Ops of old graphs only, by the graph's producer version."""

import jax
import numpy as np
import pytest
import scipy.stats
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
VOLUME = RNG.normal(size=(2, 4, 3, 5, 3)).astype(np.float32)
FILTER = RNG.normal(size=(2, 1, 3, 3, 2)).astype(np.float32)
UNDILATED = {"dilations": [1, 1, 1, 1, 1]}
BYTES = RNG.integers(0, 255, (4, 3, 5)).astype(np.uint8)
NOT_GIVEN = {"range_given": False, "input_min": 0.0, "input_max": 0.0}
GIVEN = {"range_given": True, "input_min": -1.5, "input_max": 0.75}
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
    ("SelfAdjointEig", [POSITIVE[0]], {}),
    ("BatchSelfAdjointEig", [POSITIVE], {}),
    ("MatrixExponential", [SQUARES], {}),
    *(
        (op, [VOLUME, FILTER, np.ones((2, *VOLUME.shape[1:4], 2), np.float32) * IMAGE[:, :, :1, None, :1]], attrs)
        for op in ("Conv3DBackpropInput", "Conv3DBackpropFilter")
        for attrs in ({"strides": [1] * 5, "padding": "SAME"}, {"strides": [1] * 5, "padding": "SAME", **UNDILATED})
    ),
    *(
        ("QuantizeAndDequantize", [IMAGE], {"num_bits": bits, "signed_input": signed, **given})
        for bits, signed, given in ((8, True, NOT_GIVEN), (3, False, NOT_GIVEN), (5, True, GIVEN), (4, False, GIVEN))
    ),
    *(("AdjustContrast", [x, np.float32(2.5), np.float32(-1), np.float32(70)], {}) for x in (IMAGE, BYTES)),
]
# TensorFlow 2 has no kernel for TileGrad's OpDef.
TESTED_OTHERWISE = {op for op, _, _ in ASKED} | {"RandomCrop", "RandomPoisson", "TileGrad"}


def graph_of(op, inputs, attrs):
    """Return a GraphDef of TensorFlow 0.5, and the names of its results."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.versions.producer = 1 if op == "AdjustContrast" else 8
    names = [f"in{i}" for i in range(len(inputs))]
    typed = {name: tf.as_dtype(value.dtype).as_datatype_enum for name, value in zip(names, inputs, strict=True)}
    for name in names:
        graph_def.node.add(name=name, op="Placeholder").attr["dtype"].type = typed[name]
    node = graph_def.node.add(name="made", op=op, input=names)
    if op == "RandomPoisson":
        node.attr["S"].type, node.attr["dtype"].type = typed["in0"], typed["in1"]
    else:
        node.attr["T"].type = typed["in0"]
    for key, value in attrs.items():
        if isinstance(value, list):
            node.attr[key].list.i.extend(value)
        elif isinstance(value, str):
            node.attr[key].s = value.encode()
        else:
            setattr(node.attr[key], {bool: "b", int: "i", float: "f"}[type(value)], value)
    return graph_def, names, [f"made:{i}" for i in range(5 if op == NORM_GRAD else 1)]


@pytest.mark.default_cases(
    "BatchNormWithGlobalNormalizationGrad--1",
    "BatchMatrixSolveLs--",
    "BatchSvd--",
    "SelfAdjointEig--",
    "Conv3DBackpropInput--1",
    "Conv3DBackpropFilter--0",
    "QuantizeAndDequantize--2",
    "AdjustContrast--0",
)
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
        if "Eig" in op:  # eigenvectors are determined up to sign
            ours, theirs = np.abs(ours), np.abs(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_renamed_ops_share_one_function():
    for op in {op for op in TESTED_OTHERWISE if op.startswith("Batch")} - {NORM, NORM_GRAD}:
        assert registry.lookup(op).fn is registry.lookup(op.removeprefix("Batch")).fn


def test_invalid_shapes_raise():
    graph_def, names, results = graph_of(*ASKED[0])
    converted, params = tf2jax.convert_graph_def(graph_def, names, results)
    with pytest.raises(Tf2JaxError, match=r"'made' \(BatchNormWithGlobalNormalization\).*4 dimensions"):
        converted(params, IMAGE[0], MEAN, VARIANCE, BETA, GAMMA)


def test_tile_grad():
    x, multiples = tf.constant(IMAGE), np.array([3, 1, 2, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.tile(x, multiples)
    sent = RNG.normal(size=y.shape).astype(np.float32)
    fn = registry.lookup("TileGrad").fn
    np.testing.assert_allclose(fn(sent, multiples), tape.gradient(y, x, sent), rtol=1e-5, atol=1e-5)
    for wrong in ([2, 1, 2, 3], [1, 1, 1], [6, 0, 1, 1]):
        with pytest.raises(Tf2JaxError, match="is not made of"):
            fn(sent, np.array(wrong))


def drawn(op, inputs, count):
    graph_def, names, results = graph_of(op, inputs, {})
    converted, params = tf2jax.convert_graph_def(graph_def, names, results)
    # Static values may be neither traced nor mapped.
    return jax.jit(jax.vmap(lambda key: converted(params, *inputs, rng=key)[0][0]))(
        jax.random.split(jax.random.key(1), count)
    )


@pytest.mark.full
def test_random_poisson_has_the_dtype_of_rates():
    fn = registry.lookup("RandomPoisson").fn
    for dtype in (np.float16, np.float32):
        found = jax.eval_shape(lambda key, d=dtype: fn(np.array([3, 2]), np.ones(4, d), key=key), jax.random.key(0))
        assert found.shape == (3, 2, 4) and found.dtype == dtype


@pytest.mark.full  # the sampler is RandomPoissonV2's, and compiles slowly
def test_random_poisson():
    rates = np.float32([1.5, 30])
    found = drawn("RandomPoisson", [np.array([500], np.int32), rates], 4)
    assert found.shape == (4, 500, 2) and found.dtype == np.float32
    for row, rate in zip(np.asarray(found).reshape(-1, 2).T, rates, strict=True):
        counts = np.bincount(row.astype(int), minlength=70)[:70]
        expected = scipy.stats.poisson(rate).pmf(np.arange(70)) * 2000
        assert (np.abs(counts - expected) < 5 * np.sqrt(expected + 1)).all()


@pytest.mark.full
def test_random_crop():
    image = np.arange(4 * 5 * 2.0).reshape(4, 5, 2).astype(np.float32)
    found = np.asarray(drawn("RandomCrop", [image, np.array([2, 5])], 300))
    assert found.shape == (300, 2, 5, 2)
    starts = found[:, 0, 0, 0] // 10
    np.testing.assert_array_equal(found, np.stack([image[int(i) : int(i) + 2] for i in starts]))
    assert (np.bincount(starts.astype(int), minlength=3) > 60).all()
    fn = registry.lookup("RandomCrop").fn
    for size, what in (([5, 2], "does not fit"), ([-1, 2], "does not fit"), ([2], "height and width")):
        with pytest.raises(Tf2JaxError, match=what):
            fn(image, np.array(size), key=jax.random.key(0))
